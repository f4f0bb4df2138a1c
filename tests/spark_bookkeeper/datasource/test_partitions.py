"""Planning: every wanted row once, in order, in partitions of the wanted size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_bookkeeper.datasource.read.partitions import PlanLimits, Slice, plan
from spark_bookkeeper.log.format.model import LedgerRange

MIB = 1 << 20


def log_of(*ranges: tuple[int, int, int]) -> tuple[list[LedgerRange], int]:
    """Ranges of ``(entries, rows, bytes)``, and the row behind the last."""
    found, row = [], 0
    for ledger_id, (entries, rows, size) in enumerate(ranges):
        found.append(LedgerRange(ledger_id, 0, entries - 1, row, rows, size, 0, 0))
        row += rows
    return found, row


def entries_of(packs: list[tuple[Slice, ...]]) -> list[list[tuple[int, int, int]]]:
    return [[(s.ledger_id, s.first_entry, s.last_entry) for s in pack] for pack in packs]


def planned(*ranges: tuple[int, int, int], **limits: Any) -> list[tuple[Slice, ...]]:
    """The plan of reading all of such a log."""
    found, end = log_of(*ranges)
    return plan(found, 0, end, PlanLimits(**limits), row_is_entry=False)


def test_ranges_that_fill_a_core_each_get_a_partition_each() -> None:
    packs = planned(*[(60, 1_500_000, 60 * MIB)] * 4, cores_hint=4)

    assert entries_of(packs) == [[(n, 0, 59)] for n in range(4)]


def test_a_large_range_is_split_at_entries_and_small_ones_are_packed() -> None:
    packs = planned((300, 3_000, 300 * MIB), (1, 10, 100), (1, 10, 100), (1, 10, 100))

    assert entries_of(packs) == [
        [(0, 0, 99)],
        [(0, 100, 199)],
        [(0, 200, 299), (1, 0, 0), (2, 0, 0), (3, 0, 0)],
    ]


def test_small_ranges_share_partitions_but_not_without_bound() -> None:
    packs = planned(*[(1, 10, 1_000)] * 1_000)

    assert [len(pack) for pack in packs] == [32] * 31 + [8]


def test_at_least_so_many_partitions_as_far_as_entries_go() -> None:
    ranges = (8, 80, 8_000), (2, 20, 2_000)

    assert len(planned(*ranges, partitions_min=6)) >= 6
    assert len(planned(*ranges, partitions_min=50)) == 10


def test_rows_per_partition_are_kept_up_to_an_entry() -> None:
    packs = planned((100, 10_000, MIB), partition_rows_max=1_000)

    assert [pack[0].rows_estimate for pack in packs] == [1_000] * 10


@pytest.mark.parametrize(
    ("entries", "is_raw", "read"),
    [
        (100, True, [(25, 99), (0, 9)]),
        # The footer will say which entries the rows are in.
        (10, False, [(0, 9), (0, 9)]),
    ],
)
def test_entries_of_a_read_that_begins_inside_a_range_are_known_where_they_are_rows(
    entries: int, is_raw: bool, read: list[tuple[int, int]]
) -> None:
    ranges, _ = log_of((entries, 100, 1_000), (entries, 100, 1_000))

    (pack,) = plan(ranges, 25, 110, PlanLimits(), row_is_entry=is_raw)

    assert [(s.first_row, s.end_row) for s in pack] == [(25, 100), (100, 110)]
    assert [(s.first_entry, s.last_entry) for s in pack] == read
    assert not pack[0].is_whole


def test_nothing_wanted_is_no_partition() -> None:
    ranges, end = log_of((10, 100, 1_000))

    assert plan(ranges, 50, 50, PlanLimits(), row_is_entry=False) == []
    assert plan(ranges, end, end + 5, PlanLimits(), row_is_entry=False) == []
    assert plan([], 0, 10, PlanLimits(), row_is_entry=False) == []


@st.composite
def reads(draw: st.DrawFn) -> tuple[list[LedgerRange], int, int, bool]:
    """Ranges of equal entries, some pruned from among them, and the rows wanted of them."""
    is_raw = draw(st.booleans())
    shapes = []
    for _ in range(draw(st.integers(1, 12))):
        entries = draw(st.integers(1, 40))
        rows = entries if is_raw else entries * draw(st.integers(1, 9))
        shapes.append((entries, rows, entries * draw(st.integers(1, 20 * MIB))))
    ranges, end = log_of(*shapes)
    kept = draw(st.lists(st.booleans(), min_size=len(ranges), max_size=len(ranges)))
    first, stop = sorted((draw(st.integers(0, end)), draw(st.integers(0, end))))
    return [r for r, is_kept in zip(ranges, kept, strict=True) if is_kept], first, stop, is_raw


LIMITS = st.builds(
    PlanLimits,
    partition_bytes_max=st.sampled_from([1 * MIB, 64 * MIB, 1 << 40]),
    partition_rows_max=st.sampled_from([None, 1, 17, 200]),
    partitions_min=st.sampled_from([1, 7, 300]),
    cores_hint=st.sampled_from([1, 16]),
)


def rows_of(item: Slice) -> list[int]:
    """The dumb twin: walk entries, knowing that a range's rows are spread evenly over them."""
    per_entry = item.range.rows // (item.range.last_entry + 1)
    first = item.range.first_row + item.first_entry * per_entry
    end = item.range.first_row + (item.last_entry + 1) * per_entry
    return [row for row in range(first, end) if item.first_row <= row < item.end_row]


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(reads(), LIMITS)
def test_every_wanted_row_is_planned_once_and_in_order_within_the_limits(
    read: tuple[list[LedgerRange], int, int, bool], limits: PlanLimits
) -> None:
    ranges, first, stop, is_raw = read

    packs = plan(ranges, first, stop, limits, row_is_entry=is_raw)

    wanted = [row for r in ranges for row in range(r.first_row, r.next_row) if first <= row < stop]
    assert [row for pack in packs for item in pack for row in rows_of(item)] == wanted
    for pack in packs:
        largest = max(item.range.size_bytes // (item.range.last_entry + 1) for item in pack)
        rows_per_entry = max(item.range.rows // (item.range.last_entry + 1) for item in pack)
        rows = sum(len(rows_of(item)) for item in pack)
        assert rows > 0
        assert sum(item.size_bytes for item in pack) <= limits.partition_bytes_max + largest
        assert rows <= (limits.partition_rows_max or rows) + rows_per_entry
    divisible = sum(
        item.last_entry - item.first_entry + 1 if item.is_whole or is_raw else 1
        for pack in packs
        for item in pack
    )
    assert len(packs) >= min(limits.partitions_min, divisible)
