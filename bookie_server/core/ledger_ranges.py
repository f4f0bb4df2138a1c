"""Sets of ledger ids, for the ledgers that were deleted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator

_FEW_IDS = 64
"""So many are looked up sooner than all known ones are sorted."""


class LedgerRanges:
    """A set of ledger ids, kept as disjoint inclusive ranges; it only grows."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __contains__(self, ledger_id: int) -> bool:
        at = bisect_right(self._firsts, ledger_id) - 1
        return at >= 0 and ledger_id <= self._lasts[at]

    def covers(self, first: int, last: int) -> bool:
        """Whether all of ``first..last`` are in this set."""
        at = bisect_right(self._firsts, first) - 1
        return at >= 0 and last <= self._lasts[at]

    def members(self, known: Collection[int]) -> list[int]:
        """Those of the ``known`` ids that are in this set."""
        if not self._firsts:
            return []
        return [ledger_id for ledger_id in known if ledger_id in self]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._firsts, self._lasts, strict=True)))

    def add(self, first: int, last: int) -> None:
        """Add ``first..last``, and merge it with the ranges it overlaps or adjoins."""
        # A range that ends at ``first - 1`` or begins at ``last + 1`` adjoins this one.
        start = bisect_right(self._lasts, first - 2)
        stop = bisect_right(self._firsts, last + 1)
        if start < stop:
            first = min(first, self._firsts[start])
            last = max(last, self._lasts[stop - 1])
        self._firsts[start:stop] = [first]
        self._lasts[start:stop] = [last]


def within(first: int, last: int, known: Collection[int]) -> list[int]:
    """Those of the ``known`` ids that are in ``first..last``, by whichever way is shorter."""
    if last - first < len(known):
        return [ledger_id for ledger_id in range(first, last + 1) if ledger_id in known]
    return [ledger_id for ledger_id in known if first <= ledger_id <= last]


class IdsBetween:
    """Looks for many ranges among the same ids, which may go meanwhile, and to which none may come."""

    def __init__(self, known: Collection[int]) -> None:
        self._known = known
        self._ascending: list[int] | None = None

    def __call__(self, first: int, last: int) -> list[int]:
        """Those of the ids that are in ``first..last``."""
        if last - first < _FEW_IDS:
            return within(first, last, self._known)
        if self._ascending is None:
            self._ascending = sorted(self._known)
        begin, end = bisect_left(self._ascending, first), bisect_right(self._ascending, last)
        return [ledger_id for ledger_id in self._ascending[begin:end] if ledger_id in self._known]
