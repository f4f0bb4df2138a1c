"""Which entry ids a stored block holds, in a few numbers, and how stored ids are looked for.

A striped ledger leaves a bookie groups of consecutive ids at equal distances: ``size`` ids starting
every ``period``, ``count`` times. That is Apache's availability encoding
(``AvailabilityOfEntriesOfLedger``: sequenceSize, sequencePeriod, first and last start).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import ENTRY_ID_MAX

PERIOD_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class IdPattern:
    """``count`` groups of ``size`` consecutive ids, ``period`` apart; one group has period 0."""

    start: int
    size: int
    period: int
    count: int

    @property
    def last(self) -> int:
        return self.start + self.period * (self.count - 1) + self.size - 1

    def __len__(self) -> int:
        return self.size * self.count

    @property
    def is_possible(self) -> bool:
        """Whether there can be such ids; the numbers may be a disk's."""
        return (
            min(self.start, self.size - 1, self.count - 1) >= 0
            and (self.count == 1 or self.period >= self.size)
            and self.last <= ENTRY_ID_MAX
        )

    def ids(self) -> Sequence[int]:
        """The ids, ascending."""
        if self.count == 1:
            return range(self.start, self.start + self.size)
        if self.size == 1:
            return range(self.start, self.last + 1, self.period)
        return [
            first + offset
            for first in range(self.start, self.last + 1, self.period)
            for offset in range(self.size)
        ]


class PatternIds(Sequence[int]):
    """The ids of a pattern, ascending; none is made before it is asked for."""

    def __init__(self, pattern: IdPattern) -> None:
        self._pattern = pattern

    def __len__(self) -> int:
        return len(self._pattern)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        places = range(len(self))[index]
        return self._at(places) if isinstance(places, int) else [self._at(at) for at in places]

    def _at(self, place: int) -> int:
        group, offset = divmod(place, self._pattern.size)
        return self._pattern.start + group * self._pattern.period + offset


def patterns_of(ids: Sequence[int]) -> list[IdPattern]:
    """Describe ascending ``ids`` by few patterns, in their order; the patterns' spans never overlap."""
    if isinstance(ids, range):
        if ids.step == 1 or len(ids) == 1:
            return [IdPattern(ids[0], len(ids), 0, 1)]
        # A wider step has no place in a row; such ids become patterns of one group each, below.
        if ids.step <= PERIOD_MAX:
            return [IdPattern(ids[0], 1, ids.step, len(ids))]
    found: list[IdPattern] = []
    groups = list(consecutive(ids))
    at = 0
    while at < len(groups):
        start, size = groups[at]
        count = 1
        period = groups[at + 1][0] - start if at + 1 < len(groups) else 0
        while (
            at + count < len(groups)
            and groups[at + count] == (start + count * period, size)
            and period <= PERIOD_MAX
        ):
            count += 1
        found.append(IdPattern(start, size, period if count > 1 else 0, count))
        at += count
    invariant(sum(map(len, found)) == len(ids), "patterns hold the ids and nothing else")
    return found


def consecutive(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The groups of consecutive ids among ascending ones, each as its first id and its size."""
    if isinstance(ids, range) and ids.step == 1:
        if ids:
            yield ids[0], len(ids)
        return
    start = size = 0
    for entry_id in ids:
        if size and entry_id == start + size:
            size += 1
            continue
        if size:
            yield start, size
        start, size = entry_id, 1
    if size:
        yield start, size


def clip(ids: Sequence[int], first: int, last: int) -> Sequence[int]:
    """The part of ascending ``ids`` within ``first..last``."""
    if not ids or (first <= ids[0] and ids[-1] <= last):
        return ids
    return ids[bisect_left(ids, first) : bisect_left(ids, last + 1)]
