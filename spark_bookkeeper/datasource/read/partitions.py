"""Which entries each Spark task reads: large ranges split, small ones packed, order kept.

Plans from the log's head and chunks alone: ranges say bytes, rows and entries, so nothing is read
of any ledger. A slice wants rows ``first_row`` to ``end_row`` of the log out of some entries; where
a read begins or ends inside a range, the task finds the entries (by the footer) and cuts exactly.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from spark_bookkeeper.log.format.model import LedgerRange

OPEN_COST_BYTES = 4 << 20
"""What opening a ledger counts for when small slices are packed (Spark's ``openCostInBytes``)."""
SPREAD_BYTES_MIN = 8 << 20
"""Partitions are not made smaller than this only to occupy more cores."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of one range that a task reads, in order."""

    ledger_id: int
    first_entry: int
    last_entry: int
    """Inclusive. The rows lie within these entries, which may hold more."""
    first_row: int
    """First row wanted, as a row number of the log."""
    end_row: int
    """Exclusive."""
    range: LedgerRange
    """Where the entries belong, without column bounds."""
    size_bytes: int
    """Stored bytes, estimated where a range is cut."""
    row_is_entry: bool
    """Raw payloads: entries and rows are the same thing."""

    @property
    def is_whole(self) -> bool:
        """All rows of the range are wanted: every row found in the entries is."""
        return self.first_row == self.range.first_row and self.end_row == self.range.next_row

    @property
    def is_part(self) -> bool:
        """Only some of the range's entries: other tasks read the rest."""
        entries = self.range.first_entry, self.range.last_entry
        return (self.first_entry, self.last_entry) != entries

    @property
    def rows_estimate(self) -> int:
        """Rows to expect, when entries of a range hold equally many."""
        entries = self.last_entry - self.first_entry + 1
        if not self.is_whole or self.row_is_entry:
            return self.end_row - self.first_row
        return self.range.rows * entries // (self.range.last_entry - self.range.first_entry + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """How large partitions may be, and how many there should be."""

    partition_bytes_max: int = 128 << 20
    partition_rows_max: int | None = None
    partitions_min: int = 1
    cores_hint: int = 1
    """Cores to occupy when there is data enough; a guess of the planner's host."""


def plan(
    ranges: Iterable[LedgerRange],
    first_row: int,
    end_row: int,
    limits: PlanLimits,
    *,
    row_is_entry: bool,
) -> list[tuple[Slice, ...]]:
    """Partitions that hold the wanted rows once each, in order; empty when there are none."""
    wanted = [found for r in ranges if (found := _wanted(r, first_row, end_row, row_is_entry))]
    # The measure that slices are packed by, in which opening a small ledger counts too.
    cost = sum(max(OPEN_COST_BYTES, found.size_bytes) for found in wanted)
    spread = max(SPREAD_BYTES_MIN, -(-cost // limits.cores_hint))
    target = min(limits.partition_bytes_max, spread, -(-cost // limits.partitions_min) or 1)
    slices = [part for whole in wanted for part in _split(whole, _parts(whole, target, limits))]
    # A quarter more than the target: ranges are never exactly equal, and a tail of a few rows
    # would cost a task of its own.
    size_max = min(limits.partition_bytes_max, target + target // 4)
    return _at_least(limits.partitions_min, _pack(slices, size_max, limits.partition_rows_max))


def _wanted(of: LedgerRange, first_row: int, end_row: int, row_is_entry: bool) -> Slice | None:
    first, end = max(of.first_row, first_row), min(of.next_row, end_row)
    if first >= end:
        return None
    # Bounds have done their work, and would travel to every task.
    bare = replace(of, columns=()) if of.columns else of
    size = max(1, of.size_bytes * (end - first) // of.rows)
    first_entry, last_entry = of.first_entry, of.last_entry
    if row_is_entry:
        first_entry = of.first_entry + first - of.first_row
        last_entry = of.first_entry + end - 1 - of.first_row
    return Slice(of.ledger_id, first_entry, last_entry, first, end, bare, size, row_is_entry)


def _parts(of: Slice, target_bytes: int, limits: PlanLimits) -> int:
    # Rounded up for the limit, which must hold, and to the nearest for the target, which need not.
    parts = max(
        -(-of.size_bytes // limits.partition_bytes_max), round(of.size_bytes / target_bytes), 1
    )
    if limits.partition_rows_max is not None:
        parts = max(parts, -(-(of.end_row - of.first_row) // limits.partition_rows_max))
    return parts


def _split(of: Slice, parts: int) -> list[Slice]:
    """Cut into at most ``parts`` even pieces, never below one entry.

    By entries where all rows of the entries are wanted, so no two tasks read the same entry; by
    rows where a range is cut, because only the footer knows which entries those are in.
    """
    if parts <= 1:
        return [of]
    by_entry = of.is_whole or of.row_is_entry
    rows, entries = of.end_row - of.first_row, of.last_entry - of.first_entry + 1
    # No more pieces than entries by rows either: each would fetch and decode the same entry.
    parts = min(parts, entries) if by_entry else min(parts, entries, rows)
    cuts = [at * (entries if by_entry else rows) // parts for at in range(parts + 1)]
    found = []
    for low, high in pairwise(cuts):
        piece = replace(of, size_bytes=max(1, of.size_bytes // parts))
        if by_entry:
            piece = replace(
                piece, first_entry=of.first_entry + low, last_entry=of.first_entry + high - 1
            )
        if not by_entry or of.row_is_entry:
            piece = replace(piece, first_row=of.first_row + low, end_row=of.first_row + high)
        found.append(piece)
    return found


def _pack(slices: Sequence[Slice], size_max: int, rows_max: int | None) -> list[tuple[Slice, ...]]:
    """Neighbours together while they stay within the limits; a slice alone may exceed them."""
    packs: list[list[Slice]] = []
    size = rows = 0
    for item in slices:
        cost = max(OPEN_COST_BYTES, item.size_bytes)
        item_rows = 0 if rows_max is None else item.rows_estimate
        fits = size + cost <= size_max and (rows_max is None or rows + item_rows <= rows_max)
        if not packs or not fits:
            packs.append([])
            size = rows = 0
        packs[-1].append(item)
        size += cost
        rows += item_rows
    return [tuple(pack) for pack in packs]


def _at_least(count_min: int, packs: list[tuple[Slice, ...]]) -> list[tuple[Slice, ...]]:
    """Halve the largest partitions until there are enough, as far as entries allow."""
    while len(packs) < count_min:
        divisible = [at for at, pack in enumerate(packs) if len(pack) > 1 or _is_divisible(pack[0])]
        if not divisible:
            break
        # Every partition that may be halved is, largest first, so few rounds are needed.
        divisible.sort(key=lambda at: -sum(item.size_bytes for item in packs[at]))
        chosen = set(divisible[: count_min - len(packs)])
        packs = [
            half
            for at, pack in enumerate(packs)
            for half in (_halves(pack) if at in chosen else [pack])
        ]
    return packs


def _halves(pack: tuple[Slice, ...]) -> list[tuple[Slice, ...]]:
    if len(pack) == 1:
        return [(half,) for half in _split(pack[0], 2)]
    middle = len(pack) // 2
    return [pack[:middle], pack[middle:]]


def _is_divisible(of: Slice) -> bool:
    return len(_split(of, 2)) > 1
