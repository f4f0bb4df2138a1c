"""The bare heap: virtual microseconds and what happens next; nothing else moves the model."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeVarTuple

EVENTS_MAX = 20_000
"""More in one schedule means that somebody runs in circles."""

Ts = TypeVarTuple("Ts")


class EndlessScheduleError(Exception):
    """A schedule that does not come to rest."""


class Heap:
    """Events in order of time; of one time, in the order they were planned."""

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        self._planned: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._sequence = 0

    def after(self, delay_us: int, action: Callable[[*Ts], None], *arguments: *Ts) -> None:
        """Plan ``action(*arguments)``."""
        self._sequence += 1
        heappush(self._planned, (self.now_us + delay_us, self._sequence, action, arguments))

    def run_until(self, end_us: int, is_done: Callable[[], bool] | None = None) -> None:
        """Let everything planned before ``end_us`` happen, or until ``is_done`` says so.

        Raises:
            EndlessScheduleError: there was more of it than any schedule needs.
        """
        planned = self._planned
        while planned and planned[0][0] < end_us:
            self.now_us, _, action, arguments = heappop(planned)
            self.events += 1
            if self.events > EVENTS_MAX:
                raise EndlessScheduleError(f"{EVENTS_MAX} events and no end")
            action(*arguments)
            if is_done is not None and is_done():
                return
        self.now_us = max(self.now_us, end_us)
