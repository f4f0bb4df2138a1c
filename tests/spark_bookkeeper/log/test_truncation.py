"""Truncation: whole ranges, from chunks of every level, each to the garbage once and no other."""

from __future__ import annotations

from random import Random

import pytest

from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.format.model import Chunk, GarbageReason, LedgerRange
from spark_bookkeeper.log.rules.chunks import ChunkNames
from spark_bookkeeper.log.rules.transitions import chunk_to_cut, truncate
from tests.doubles.stores import LoseNth, every_mutation
from tests.spark_bookkeeper.log.test_transitions import Tree, ledgers
from tests.spark_bookkeeper.log.world import DAY_MS, LogWorld


def grown(ranges: int) -> Tree:
    tree = Tree()
    for number in range(ranges):
        tree.append(ledgers(number, 1))
    return tree


def opened_for(tree: Tree, before_row: int) -> dict[str, Chunk]:
    opened: dict[str, Chunk] = {}
    ref = chunk_to_cut(tree.head.chunks, before_row)
    while ref is not None:
        opened[ref.name] = tree.chunk(ref)
        ref = chunk_to_cut(opened[ref.name].chunks, before_row)
    return opened


def test_what_ends_before_the_row_goes_and_nothing_else(small_chunks: None) -> None:
    tree = grown(120)
    whole, head = tree.ranges(), tree.head
    assert max(ref.level for ref in head.chunks) >= 2
    wanted = [row for item in whole for row in (item.first_row, item.first_row + 1)]

    for number, before_row in enumerate([*wanted, head.next_row]):
        tree.head, names = head, ChunkNames(1000 + number)
        found = truncate(head, before_row, opened_for(tree, before_row), names, 7)

        # The dumb twin: look at every range.
        kept = [item for item in whole if item.next_row > before_row]
        dropped = [item for item in whole if item.next_row <= before_row]
        if not dropped:
            assert found is None
            continue
        assert found is not None
        assert found.garbage is not None
        assert found.garbage.reason is GarbageReason.TRUNCATE
        tree.apply(found)
        assert tree.ranges() == kept
        garbage: list[LedgerRange] = [
            item for ref in found.garbage.chunks for item in tree.below(ref)
        ]
        assert sorted([*garbage, *found.garbage.ranges], key=lambda each: each.first_row) == dropped
        assert found.head.base_row == (kept[0].first_row if kept else head.next_row)
        assert found.head.next_row == head.next_row
        levels = [ref.level for ref in found.head.chunks]
        assert levels == sorted(levels, reverse=True)


def test_a_truncated_log_grows_and_is_truncated_again(small_chunks: None) -> None:
    tree, random = Tree(), Random(3)
    rows: list[LedgerRange] = []

    for number in range(200):
        tree.append(ledgers(number, 1))
        rows.append(tree.ranges()[-1])
        if random.random() < 0.2:
            before_row = random.randint(tree.head.base_row, tree.head.next_row)
            names = ChunkNames(10_000 + number)
            found = truncate(tree.head, before_row, opened_for(tree, before_row), names, number)
            rows = [item for item in rows if item.next_row > before_row]
            if found is not None:
                tree.apply(found)
        assert tree.ranges() == rows


@pytest.mark.parametrize("fault", Fault)
async def test_collection_deletes_exactly_what_truncation_dropped(
    fault: Fault, small_chunks: None
) -> None:
    async def attempt(lose: LoseNth) -> None:
        world = await LogWorld.with_log()
        for number in range(20):
            await world.append(Job.of_batch(f"job-{number}"))
        whole = await world.visible()
        # Inside a range, which is in the middle of a chunk.
        middle = whole[19]
        other = world.client(fault=lose)

        for row in (middle.first_row + 1, middle.first_row):
            left = await other.truncate(world.log_id, "orders", row)
            assert left.first_row == middle.first_row

        assert await world.visible() == whole[19:]
        assert world.ledgers() == {item.ledger_id for item in whole}
        world.now_ms += DAY_MS * 8
        for _ in range(2):
            await world.collect()
        assert world.ledgers() == {item.ledger_id for item in whole[19:]}
        assert await world.visible() == whole[19:]
        levels = await world.nodes().levels_below((await world.head()).chunks)
        assert world.chunks() == sorted(ref.name for level in levels for ref in level)
        assert await world.nodes().epochs() == []

    assert await every_mutation(attempt, fault) >= 4


async def test_a_row_the_log_does_not_have_is_a_mistake(world: LogWorld) -> None:
    await world.append(Job.of_batch("job"))
    before = await world.head()

    for row in (-1, before.next_row + 1):
        with pytest.raises(ValueError, match="has no row"):
            await world.logs.truncate(world.log_id, "orders", row)

    assert await world.head() == before
    dropped = await world.logs.truncate(world.log_id, "orders", before.next_row)
    assert dropped.first_row == before.next_row
    emptied = await world.head()
    assert (emptied.base_row, emptied.next_row) == (before.next_row, before.next_row)
