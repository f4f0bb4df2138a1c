"""Restarts: bookies of a local cluster that died are started again, as a service manager would do it.

Only those that ended by themselves or were killed from outside: one that was stopped or killed by its
cluster's methods stays down. One that dies again and again is started ever more rarely.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.errors import LocalStartError, log_tail

_LOGGER = logging.getLogger(__name__)
PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class _Restart:
    """The latest restart of one bookie."""

    at_s: float
    pause_s: float
    """Before the next one, should it die again."""


class Restarts:
    """Looks after bookies in a thread of its own, between ``begin`` and ``end``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latest: dict[str, _Restart] = {}
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, bookies: Callable[[], Sequence[LocalBookie]]) -> None:
        """Look from now on, every second. Idempotent."""
        if self._thread is not None:
            return
        self._is_over.clear()
        self._thread = threading.Thread(
            target=self._look_on, args=(bookies,), name="restart-bookies", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Start nothing any more. Idempotent."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _look_on(self, bookies: Callable[[], Sequence[LocalBookie]]) -> None:
        while not self._is_over.wait(PAUSE_MIN_S):
            try:
                self.look(bookies())
            except (OSError, LocalStartError) as error:
                _LOGGER.warning("a bookie could not be started again; %s", error)

    def look(self, bookies: Sequence[LocalBookie]) -> None:
        """Start those again that have died, unless it is too early."""
        now_s = self._clock()
        for bookie in bookies:
            latest = self._latest.get(bookie.bookie_id)
            if not bookie.has_died:
                if latest is not None and now_s >= latest.at_s + PAUSE_MAX_S:
                    del self._latest[bookie.bookie_id]  # it lives
                continue
            if latest is not None and now_s < latest.at_s + latest.pause_s:
                continue
            pause_s = PAUSE_MIN_S if latest is None else min(2 * latest.pause_s, PAUSE_MAX_S)
            self._latest[bookie.bookie_id] = _Restart(now_s, pause_s)
            code = bookie.exit_code
            # A signal needs no explanation, and its log has none.
            why = f"\n{log_tail(bookie.log_path)}" if code is not None and code >= 0 else ""
            _LOGGER.warning(
                "bookie ended, starting it again; bookie_id=%s exit_code=%s%s",
                bookie.bookie_id,
                code,
                why,
            )
            bookie.spawn()
