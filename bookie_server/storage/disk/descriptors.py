"""Descriptors: connections must not take those that storage needs.

Every connection takes a descriptor, and a bookie that cannot open its next journal file or entry log
has to stop. So connections beyond a limit are refused. Should something else eat up descriptors, there
is a second line: the process may have as many as the system allows it (the hard limit of ``ulimit``),
but for a reserve: whoever opens descriptors on his own account, gRPC above all, meets the soft limit
below it, and storage alone goes beyond, for the moment of an ``open``. A shortage of the whole
machine is waited out: it says nothing about the disk.
"""

from __future__ import annotations

import errno
import math
import resource
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

OWN = 112
"""Below the soft limit, for what the process itself keeps open: files, its metadata session, pipes, HTTP."""
RESERVE = 64
"""More than storage opens at a time: checkpoint, journals and reading threads."""
SOFT_LIMIT_MAX = 65_536
"""Connections enough; some programs walk over all numbers below the limit."""
SHORTAGE_WAIT_S = 10.0
"""How long a shortage may last before it is an error."""
_RETRY_INTERVAL_S = 0.05
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_lock = threading.Lock()


def is_shortage(error: OSError) -> bool:
    """Whether the process or the machine ran short, which says nothing about the disk."""
    return error.errno in _SHORTAGES


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit to the hard one, less the reserve; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    # Where there is hardly anything to share, half of it is storage's.
    soft = SOFT_LIMIT_MAX if unlimited else min(max(hard - RESERVE, hard // 2), SOFT_LIMIT_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def connection_limit(soft_limit: int, connections_max: int) -> int:
    """How many connections may be taken at a time, so that they never meet the soft limit."""
    return max(1, min(connections_max, max(soft_limit - OWN, soft_limit // 2)))


def with_reserve(action: Callable[[], T]) -> T:
    """What ``action``, which opens one descriptor, returns; tried again, with the reserve, when there
    is none left.

    Raises:
        OSError: as ``action``; a shortage only after :data:`SHORTAGE_WAIT_S`.
    """
    until_s = math.inf
    while True:
        try:
            return _with_reserve_once(action)
        except OSError as cause:
            now_s = time.monotonic()
            if not is_shortage(cause) or now_s > until_s:
                raise
            until_s = min(until_s, now_s + SHORTAGE_WAIT_S)
        threading.Event().wait(_RETRY_INTERVAL_S)


def _with_reserve_once(action: Callable[[], T]) -> T:
    try:
        return action()
    except OSError as cause:
        if cause.errno != errno.EMFILE:
            raise
    return _beyond_soft_limit(action)


def _beyond_soft_limit(action: Callable[[], T]) -> T:
    # One at a time, or a second thread would take the raised limit for the one to come back to.
    with _lock:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            return action()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
