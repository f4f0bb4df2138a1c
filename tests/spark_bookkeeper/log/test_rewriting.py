"""Rewriting ranges in the tree of chunks: what is equal is exchanged, all else is given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bookkeeper_metadata.foundation.invariant import InvariantViolation
from spark_bookkeeper.log.format.columns import ColumnRange
from spark_bookkeeper.log.format.epoch import LedgerWritten
from spark_bookkeeper.log.format.model import (
    Chunk,
    ChunkRef,
    GarbageReason,
    LedgerRange,
    Retention,
)
from spark_bookkeeper.log.rules import chunks
from spark_bookkeeper.log.rules import rewriting as rewriting_rules
from spark_bookkeeper.log.rules.chunks import ChunkNames
from spark_bookkeeper.log.rules.grouping import GroupLimits, groups_of
from spark_bookkeeper.log.rules.rewriting import Exchanged, Replacement, Rewriting, rewritten
from spark_bookkeeper.log.rules.transitions import truncate
from tests.spark_bookkeeper.log.test_transitions import Tree, ledgers
from tests.spark_bookkeeper.log.test_truncation import grown, opened_for

Group = tuple[LedgerRange, ...]


def replacement(group: Group, ledger_id: int) -> Replacement:
    rows = sum(item.rows for item in group)
    written = LedgerWritten(ledger_id, 3, rows, 10 * rows, group[0].schema_id)
    return Replacement(group, (rewritten(group, written),))


def some_groups(ranges: Sequence[LedgerRange], random: Random) -> list[Replacement]:
    """Neighbours, two to six at a time, with gaps between."""
    found: list[Replacement] = []
    at = random.randrange(4)
    while at + 6 < len(ranges):
        size = random.randint(2, 6)
        found.append(replacement(tuple(ranges[at : at + size]), 10_000 + len(found)))
        at += size + random.randrange(3) * random.randrange(3)
    return found


class Reader:
    """Opens chunks of a tree and counts."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.opened = 0

    async def __call__(self, ref: ChunkRef) -> Chunk:
        self.opened += 1
        return self.tree.chunk(ref)


def dumb(ranges: list[LedgerRange], wanted: Sequence[Replacement]) -> list[LedgerRange]:
    """The dumb twin: exchange in one flat list."""
    ranges = list(ranges)
    for each in wanted:
        inside = [item for item in ranges if each.first_row <= item.first_row < each.next_row]
        if inside == list(each.planned):
            at = ranges.index(inside[0])
            ranges[at : at + len(inside)] = each.made
    return ranges


def check(tree: Tree, before: list[LedgerRange], found: Exchanged) -> None:
    """The new head lists what the old one did but for what it names as garbage."""
    head = tree.head
    levels = [ref.level for ref in head.chunks]
    assert levels == sorted(levels, reverse=True)
    garbage = found.transition.garbage
    assert garbage is not None
    assert garbage.reason is GarbageReason.REWRITE
    assert garbage.ranges == ()
    dropped = [item for ref in garbage.chunks for item in tree.below(ref)]
    kept = {item.ledger_id for item in tree.ranges()}
    assert sorted(item.ledger_id for item in dropped) == sorted(
        item.ledger_id for item in before if item.ledger_id not in kept
    )


async def test_groups_are_exchanged_wherever_they_stand(small_chunks: None) -> None:
    for seed in range(40):
        random = Random(seed)
        tree = grown(40 + random.randrange(120))
        before = tree.ranges()
        wanted = some_groups(before, random)
        unchanged = (tree.head.base_row, tree.head.next_row, tree.head.last_commit_ms)

        rewriting = Rewriting(wanted, ChunkNames(10_000))
        found = await rewriting.exchange(tree.head, Reader(tree), 7)

        assert found is not None
        tree.apply(found.transition)
        installed = [wanted[at] for at in sorted(found.installed)]
        assert tree.ranges() == dumb(before, installed)
        check(tree, before, found)
        assert (tree.head.base_row, tree.head.next_row, tree.head.last_commit_ms) == unchanged
        assert tree.head.format_version == 2
        # Those that two parents list between them are given up, and those are few.
        assert len(installed) >= 0.6 * len(wanted)


async def test_groups_that_changed_since_the_plan_are_given_up(small_chunks: None) -> None:
    tree = grown(60)
    ranges = tree.ranges()
    groups = [tuple(ranges[at : at + 4]) for at in range(0, 40, 4)]
    wanted = [replacement(group, 10_000 + at) for at, group in enumerate(groups)]
    # Another ledger, other rows, another schema, and one that was cut off by a truncation.
    wanted[1] = replace(wanted[1], planned=(replace(groups[1][0], ledger_id=99), *groups[1][1:]))
    wanted[3] = replace(wanted[3], planned=(*groups[3][:-1], replace(groups[3][-1], schema_id=7)))
    wanted[6] = replace(wanted[6], planned=(replace(groups[6][0], last_entry=77), *groups[6][1:]))
    before_row = ranges[2].first_row
    cut = truncate(tree.head, before_row, opened_for(tree, before_row), ChunkNames(9_000), 1)
    assert cut is not None
    tree.apply(cut)

    found = await Rewriting(wanted, ChunkNames(10_000)).exchange(tree.head, Reader(tree), 7)

    assert found is not None
    assert not found.installed & {0, 1, 3, 6}
    assert len(found.installed) >= 4
    before = tree.ranges()
    tree.apply(found.transition)
    assert tree.ranges() == dumb(before, [wanted[at] for at in sorted(found.installed)])


async def test_nothing_left_to_exchange_is_no_change(small_chunks: None) -> None:
    tree = grown(30)
    wanted = [replacement(tuple(tree.ranges()[:4]), 10_000)]
    tree.head = replace(tree.head, chunks=(), ranges=(), base_row=tree.head.next_row)

    assert await Rewriting(wanted, ChunkNames(1)).exchange(tree.head, Reader(tree), 7) is None


async def test_a_retry_opens_and_writes_little_however_often_the_log_grows(
    small_chunks: None,
) -> None:
    tree = grown(150)
    wanted = some_groups(tree.ranges(), Random(3))
    rewriting, reader = Rewriting(wanted, ChunkNames(10_000)), Reader(tree)
    first = await rewriting.exchange(tree.head, reader, 7)
    assert first is not None
    opened_at_first = reader.opened
    for ref, value in first.transition.chunks:
        tree.chunks[ref.name] = value
    rewriting.keep()
    opened, written = [], []
    for number in range(100):
        tree.append(ledgers(5_000 + number, 1))
        reader.opened = 0
        again = await rewriting.exchange(tree.head, reader, 7)
        assert again is not None
        opened.append(reader.opened)
        written.append(len(again.transition.chunks))
        for ref, value in again.transition.chunks:
            tree.chunks[ref.name] = value
        rewriting.keep()

    before = tree.ranges()
    found = await rewriting.exchange(tree.head, reader, 7)
    assert found is not None
    tree.apply(replace(found.transition, chunks=()))
    assert tree.ranges() == dumb(before, [wanted[at] for at in sorted(found.installed)])
    check(tree, before, found)
    assert len(found.installed) >= len(first.installed)
    # A fold or a spill moves what is below it once; a try beside neither costs nothing.
    assert sum(opened) < opened_at_first
    assert sorted(written)[len(written) // 2] == 0


async def test_chunks_of_a_try_that_failed_are_not_relied_on(small_chunks: None) -> None:
    tree = grown(60)
    wanted = some_groups(tree.ranges(), Random(3))
    rewriting = Rewriting(wanted, ChunkNames(10_000))

    lost = await rewriting.exchange(tree.head, Reader(tree), 7)
    again = await rewriting.exchange(tree.head, Reader(tree), 7)

    assert lost is not None
    assert again is not None
    names = [{ref.name for ref, _ in each.transition.chunks} for each in (lost, again)]
    assert names[0].isdisjoint(names[1])
    referenced = {ref.name for ref in again.transition.head.chunks}
    assert referenced.isdisjoint(names[0])


def store_chunks(tree: Tree, rewriting: Rewriting, tried: Exchanged) -> None:
    """What a commit does before its multi, which is then refused."""
    tree.chunks.update({ref.name: value for ref, value in tried.transition.chunks})
    rewriting.keep()


async def test_a_retry_takes_nothing_of_inline_groups_that_went_meanwhile() -> None:
    tree = Tree()
    tree.append(ledgers(0, 12))
    ranges = tree.ranges()
    wanted = [replacement(tuple(ranges[at : at + 4]), 9_000 + at) for at in (0, 4, 8)]
    rewriting, reader = Rewriting(wanted, ChunkNames(10_000)), Reader(tree)
    first = await rewriting.exchange(tree.head, reader, 7)
    assert first is not None
    assert first.installed == {0, 1, 2}
    store_chunks(tree, rewriting, first)
    cut = truncate(tree.head, ranges[4].first_row, {}, ChunkNames(9_000), 1)
    assert cut is not None
    tree.apply(cut)
    before = tree.ranges()

    second = await rewriting.exchange(tree.head, reader, 7)

    assert second is not None
    assert second.installed == {1, 2}
    tree.apply(second.transition)
    assert tree.ranges() == dumb(before, wanted[1:])
    check(tree, before, second)


async def test_what_was_made_of_leaves_is_used_again_below_the_index_they_fold_into(
    small_chunks: None,
) -> None:
    tree = Tree()
    while len(tree.head.chunks) < chunks.REFS_MAX:
        tree.append(ledgers(tree.epoch, 1))
    wanted = [
        replacement(tuple(tree.below(ref)), 9_000 + at) for at, ref in enumerate(tree.head.chunks)
    ]
    rewriting, reader = Rewriting(wanted, ChunkNames(10_000)), Reader(tree)
    first = await rewriting.exchange(tree.head, reader, 7)
    assert first is not None
    assert reader.opened == chunks.REFS_MAX
    store_chunks(tree, rewriting, first)
    while tree.head.chunks[0].level == 0:
        tree.append(ledgers(tree.epoch, 1))
    reader.opened = 0

    second = await rewriting.exchange(tree.head, reader, 7)

    # The index is opened and written anew; of the leaves, below it and beside it, none is.
    assert second is not None
    assert second.installed == first.installed
    assert reader.opened == 1
    assert [ref.level for ref, _ in second.transition.chunks] == [1]


def test_a_rewritten_range_holds_its_sources_rows_and_times() -> None:
    columns = tuple(ColumnRange(f"column {at} {'x' * 200}", 1, 9) for at in range(40))
    one = LedgerRange(1, 0, 4, 100, 10, 5, 3, 1_000)
    two = LedgerRange(2, 0, 4, 110, 20, 5, 3, 2_000, (), 1_500)

    made = rewritten((one, two), LedgerWritten(9, 0, 30, 77, 3, columns))

    assert replace(made, columns=()) == LedgerRange(9, 0, 0, 100, 30, 77, 3, 2_000, (), 1_000)
    assert chunks.range_size(made) <= chunks.RANGE_BYTES_MAX
    assert made.columns == columns[: len(made.columns)]
    assert (
        rewritten(
            (two, replace(one, first_row=130, commit_ms=3_000)), LedgerWritten(9, 0, 30, 77, 3)
        ).first_commit_ms
        == 1_500
    )
    with pytest.raises(InvariantViolation):
        rewritten((one, two), LedgerWritten(9, 0, 29, 77, 3))


def with_bounds(group: Group, ledger_id: int, text: str = "a") -> Replacement:
    bounds = tuple(ColumnRange(f"column {at}", text * 60, "z" * 60) for at in range(20))
    rows = sum(item.rows for item in group)
    written = LedgerWritten(ledger_id, 3, rows, rows, group[0].schema_id, bounds)
    return Replacement(group, (rewritten(group, written),))


async def test_rewritten_ranges_that_would_need_more_leaves_have_no_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks, "INLINE_BYTES_MAX", 1)
    tree = Tree()
    tree.append(ledgers(1, 400))
    (ref,) = tree.head.chunks
    monkeypatch.setattr(chunks, "CHUNK_BYTES_MAX", len(tree.chunks[ref.name]) + 16)
    ranges = tree.ranges()
    wanted = [with_bounds(tuple(ranges[at : at + 4]), 9_000 + at) for at in range(0, 400, 4)]

    found = await Rewriting(wanted, ChunkNames(10_000)).exchange(tree.head, Reader(tree), 7)

    assert found is not None
    assert len(found.installed) == 100
    tree.apply(found.transition)
    assert [item.rows for item in tree.ranges()] == [
        sum(item.rows for item in each.planned) for each in wanted
    ]
    assert {item.columns for item in tree.ranges()} == {()}


async def test_bounds_stay_where_leaves_have_room_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that one parent lists had to fit into one leaf, or every rewritten range lost its bounds."""
    monkeypatch.setattr(chunks, "INLINE_BYTES_MAX", 1)
    monkeypatch.setattr(chunks, "CHUNK_BYTES_MAX", 4_096)
    tree = Tree()
    for number in range(40):
        tree.append(ledgers(number, 40))
    ranges = tree.ranges()
    wanted = [with_bounds(tuple(ranges[at : at + 80]), 9_000 + at) for at in range(0, 1_600, 80)]
    assert sum(chunks.range_size(each.made[0]) for each in wanted) > 8_192

    found = await Rewriting(wanted, ChunkNames(10_000)).exchange(tree.head, Reader(tree), 7)

    assert found is not None
    tree.apply(found.transition)
    assert all(item.columns for item in tree.ranges() if item.first_commit_ms is not None)


async def test_a_try_with_nothing_to_do_is_cheap_however_many_groups_there_are() -> None:
    """Each try looked at every range that was ever planned: a second, while the head moves on."""
    tree = Tree()
    tree.append(ledgers(1, 3_000))
    ranges = tree.ranges()
    wanted = [replacement(tuple(ranges[at : at + 2]), 9_000 + at) for at in range(0, 2_000, 2)]
    rewriting, reader = Rewriting(wanted, ChunkNames(10_000)), Reader(tree)
    first = await rewriting.exchange(tree.head, reader, 7)
    assert first is not None
    rewriting.keep()
    looked: list[LedgerRange] = []
    identity = rewriting_rules._identity

    def counting(item: LedgerRange) -> tuple[int, ...]:
        looked.append(item)
        return identity(item)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriting_rules, "_identity", counting)
        again = await rewriting.exchange(tree.head, reader, 7)

    assert again is not None
    assert looked == []


@pytest.mark.parametrize("limits", [{"target_bytes": 0}, {"ranges_min": 1}])
def test_limits_that_make_no_group_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        GroupLimits(**limits)


# -- groups -------------------------------------------------------------------------------------------


def sized(*sizes: int, schema_id: int = 0, gap_ms: int = 1) -> list[LedgerRange]:
    return [
        LedgerRange(at, 0, 0, at, 1, size, schema_id, 1_000 + at * gap_ms)
        for at, size in enumerate(sizes)
    ]


def grouped(ranges: Sequence[LedgerRange], **limits: Any) -> list[list[int]]:
    groups = groups_of(ranges, GroupLimits(**{"target_bytes": 100, "ranges_min": 2, **limits}))
    return [[item.ledger_id for item in group] for group in groups]


def test_small_neighbours_make_a_group_up_to_the_target() -> None:
    assert grouped(sized(*[10] * 25)) == [
        list(range(10)), list(range(10, 20)), list(range(20, 25))
    ]  # fmt: skip
    assert grouped(sized(10, 10, 100, 10, 10, 120, 10)) == [[0, 1], [3, 4]]
    assert grouped(sized(10, 10, 10), ranges_min=4) == []


def test_no_range_of_a_group_is_more_than_half_of_it() -> None:
    assert grouped(sized(90, 3, 3, 3)) == [[1, 2, 3]]
    assert grouped(sized(3, 3, 50, 3, 3)) == [[0, 1], [3, 4]]
    assert grouped(sized(50, 50)) == [[0, 1]]
    assert grouped(sized(40, 10)) == []


def test_groups_are_of_one_schema_and_of_a_tenth_of_the_retention() -> None:
    ranges = [*sized(10, 10, 10), *(replace(item, schema_id=1) for item in sized(*[10] * 6)[3:])]
    assert grouped(ranges) == [[0, 1, 2], [3, 4, 5]]
    assert grouped(sized(*[10] * 6, gap_ms=10), retention_ms=200) == [[0, 1, 2], [3, 4, 5]]
    spanning = [replace(item, first_commit_ms=item.commit_ms - 15) for item in sized(*[10] * 4)]
    assert grouped(spanning, retention_ms=200) == [[0, 1, 2, 3]]
    assert grouped(spanning, retention_ms=150) == []


def test_groups_are_small_beside_what_a_retention_keeps() -> None:
    """Whole ranges go: with one range of all rows a retention by size would let nothing go, ever."""
    limits = GroupLimits(target_bytes=1_000, ranges_min=2)

    assert limits.within(Retention(size_bytes=2_000)).target_bytes == 200
    assert limits.within(Retention(size_bytes=1 << 40)).target_bytes == 1_000
    assert limits.within(Retention(size_bytes=3)).target_bytes == 1
    assert limits.within(Retention(time_ms=7)).retention_ms == 7
    assert limits.within(Retention()) == limits
