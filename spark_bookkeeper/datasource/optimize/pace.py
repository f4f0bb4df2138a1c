"""How fast an optimize copies, so that it leaves others their share of bookies and cores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


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
        self._bytes_per_second = bytes_per_second
        self._clock_s = clock_s
        self._stopped = threading.Event()
        self._wait_s = wait_s or self._stopped.wait
        self._lock = threading.Lock()
        self._free_s = clock_s()
        """When what was begun so far has had its time."""

    def stop(self) -> None:
        """Let nobody begin anything more, whoever waits included."""
        self._stopped.set()

    def take(self, size_bytes: int) -> None:
        """Wait until what others began has had its time, then begin to copy so much; blocks.

        Raises:
            StoppedError: the work was given up meanwhile.
        """
        if self._bytes_per_second:
            with self._lock:
                begin_s = max(self._free_s, self._clock_s())
                self._free_s = begin_s + size_bytes / self._bytes_per_second
            if (left_s := begin_s - self._clock_s()) > 0:
                self._wait_s(left_s)
        if self._stopped.is_set():
            raise StoppedError
