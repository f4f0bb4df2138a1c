"""Has a log cleaned by those who write it: a collection now and then, behind a commit.

So garbage of overwrites and what dead drivers left goes without an operator. It never delays a commit
and never fails one; a process that ends in the middle of it leaves the rest to the next. Each token
and garbage entry says itself how long it counts, so it does not matter whose process collects.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.store.operations import StoreConflict
from spark_bookkeeper.datasource.session import Session

COLLECT_INTERVAL_S = 600.0
"""Between two collections of one log by one process; operators can have one at once."""

_log = logging.getLogger(__name__)
_last_s: dict[tuple[int, str, int], float] = {}
_last_lock = threading.Lock()


def collect_if_due(session: Session, log_id: int, log: str) -> None:
    """Begin a collection, unless this process began one of this log a short while ago."""
    # A forked worker inherits the table, but not the loop its parent's collections ran on.
    key = (os.getpid(), session.ledgers.cluster.root, log_id)
    now_s = time.monotonic()
    with _last_lock:
        if now_s - _last_s.get(key, float("-inf")) < COLLECT_INTERVAL_S:
            return
        # Noted at the beginning, so that a collection that fails is not begun anew by every commit.
        _last_s[key] = now_s
    session.client.start(_collect(session, log_id, log))


async def _collect(session: Session, log_id: int, log: str) -> None:
    try:
        report = await session.collector.collect(log_id, log=log)
    except (BookKeeperError, StoreConflict) as cause:
        _log.warning("collection not finished; the next one goes on. log=%s cause=%s", log, cause)
        return
    _log.info(
        "collected. log=%s ledgers=%d garbage=%d tokens=%d",
        log,
        len(report.ledgers_deleted),
        len(report.garbage_removed),
        len(report.tokens_removed),
    )
