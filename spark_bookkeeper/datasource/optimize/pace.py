"""How fast an optimize copies, so that it leaves others their share of bookies and cores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bookkeeper_metadata.foundation import pace


class StoppedError(Exception):
    """The work was given up; nothing more is copied."""


class Pace:
    """So many bytes a second for all threads together, until they are stopped; 0: as fast as can be."""

    def __init__(
        self,
        bytes_per_second: int = 0,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wait_s: Callable[[float], object] | None = None,
    ) -> None:
        self._clock_s = clock_s
        self._stopped = threading.Event()
        self._wait_s = wait_s or self._stopped.wait
        self._lock = threading.Lock()
        self._schedule = pace.Pace(bytes_per_second, clock_s())

    def stop(self) -> None:
        """Let nobody begin anything more, whoever waits included."""
        self._stopped.set()

    def take(self, size_bytes: int) -> None:
        """Wait until what others began has had its time, then begin to copy so much; blocks.

        Raises:
            StoppedError: the work was given up meanwhile.
        """
        with self._lock:
            delay_s = self._schedule.delay_s(size_bytes, self._clock_s())
        if delay_s > 0:
            self._wait_s(delay_s)
        if self._stopped.is_set():
            raise StoppedError
