"""What is counted while work is done: plain numbers, which cost the work next to nothing, for others to show.

Each is changed by one thread; any other may look at it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import accumulate

BOUNDS_MS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Milliseconds, as Apache's latencies are."""


class Durations:
    """How long something took: how often up to each of :data:`BOUNDS_MS`, and in all."""

    __slots__ = ("_counts", "sum_ms")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0.0

    def add(self, seconds: float) -> None:
        """It took so long once more."""
        milliseconds = 1_000 * seconds
        self._counts[bisect_left(BOUNDS_MS, milliseconds)] += 1
        self.sum_ms += milliseconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    @property
    def cumulative(self) -> list[tuple[float, int]]:
        """How often it took at most so many milliseconds; the last are infinitely many."""
        return list(zip((*BOUNDS_MS, float("inf")), accumulate(self._counts), strict=True))


class Operation:
    """One kind of request: how long it took, by whether it was granted, and why not."""

    __slots__ = ("failed", "granted", "refusals")

    def __init__(self) -> None:
        self.granted = Durations()
        self.failed = Durations()
        self.refusals: Counter[str] = Counter()
        """By the name of the status."""

    def add(self, seconds: float, refusal: str | None = None) -> None:
        """One was answered so long after it came in."""
        if refusal is None:
            self.granted.add(seconds)
        else:
            self.failed.add(seconds)
            self.refusals[refusal] += 1
