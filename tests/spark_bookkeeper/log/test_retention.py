"""Retention: rows go by age or place, whole ranges, and never from under a consumer that was told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from bookkeeper_metadata.errors import MetadataCorruptError, MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from spark_bookkeeper.log.cleaning.consumers import Consumers
from spark_bookkeeper.log.cleaning.truncation import Dropped
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.format.model import KEEP_ALL, Chunk, ChunkRef, LedgerRange, Retention
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.rules.retention import first_row_kept
from tests.doubles.stores import LoseNth, ScriptedStore, every_mutation
from tests.spark_bookkeeper.log.test_transitions import Tree, ledgers
from tests.spark_bookkeeper.log.world import DAY_MS, LogWorld

Parts = tuple[ChunkRef | LedgerRange, ...]
WEEK = Retention(time_ms=7 * DAY_MS)


async def retain(
    world: LogWorld, limits: Retention, *, layer: LogLayer | None = None, is_dry_run: bool = False
) -> Dropped:
    layer = layer or world.logs
    return await layer.drop_expired(world.log_id, "orders", limits, is_dry_run=is_dry_run)


async def set_retention(world: LogWorld, retention: Retention) -> None:
    await world.logs.change_retention(world.log_id, "orders", lambda _: retention)


async def append_daily(world: LogWorld, days: int) -> None:
    """A commit of one range of ten rows and 1,000 bytes a day; the clock ends with the last."""
    for day in range(days):
        world.now_ms += DAY_MS
        await world.append(Job.of_batch(f"day {day}"), 1)


# -- the rule -----------------------------------------------------------------------------------------


async def test_the_rule_finds_what_looking_at_every_range_finds(small_chunks: None) -> None:
    tree, random = Tree(), Random(5)
    now_ms = 150
    for number in range(now_ms):
        tree.append(ledgers(number, 1 + number % 2))
    whole = tree.ranges()
    assert max(ref.level for ref in tree.head.chunks) >= 2

    async def open_chunk(ref: ChunkRef) -> Chunk:
        return tree.chunk(ref)

    for _ in range(300):
        limits = Retention(
            time_ms=random.choice([None, random.randint(1, now_ms)]),
            size_bytes=random.choice([None, random.randint(0, sum(r.size_bytes for r in whole))]),
        )
        parts: Parts = (*tree.head.chunks, *tree.head.ranges)

        found = await first_row_kept(parts, limits, now_ms, open_chunk)

        assert found == _dumb(whole, limits, now_ms)


def _dumb(ranges: list[LedgerRange], limits: Retention, now_ms: int) -> int:
    for at, item in enumerate(ranges[:-1]):
        behind = sum(later.size_bytes for later in ranges[at + 1 :])
        is_old = limits.time_ms is not None and now_ms - item.commit_ms > limits.time_ms
        if not is_old and (limits.size_bytes is None or behind < limits.size_bytes):
            return item.first_row
    return ranges[-1].first_row


async def test_what_goes_as_a_whole_stays_unread(small_chunks: None) -> None:
    tree = Tree()
    for number in range(200):
        tree.append(ledgers(number, 1))
    opened: list[ChunkRef] = []

    async def open_chunk(ref: ChunkRef) -> Chunk:
        opened.append(ref)
        return tree.chunk(ref)

    parts: Parts = (*tree.head.chunks, *tree.head.ranges)
    found = await first_row_kept(parts, Retention(time_ms=10), 200, open_chunk)

    assert found == next(item.first_row for item in tree.ranges() if item.commit_ms >= 190)
    assert len(opened) <= 1 + max(ref.level for ref in tree.head.chunks)


async def test_a_log_without_ranges_keeps_what_it_has_not() -> None:
    async def open_chunk(ref: ChunkRef) -> Chunk:
        raise AssertionError(ref)

    assert await first_row_kept((), WEEK, 10**15, open_chunk) is None


@pytest.mark.parametrize("bounds", [{"time_ms": 0}, {"time_ms": -1}, {"size_bytes": -1}])
def test_bounds_that_are_none_are_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bounds))):
        Retention(**bounds)


# -- on a log -----------------------------------------------------------------------------------------


async def test_old_ranges_go_and_the_newest_stays(world: LogWorld) -> None:
    await append_daily(world, 10)

    assert await retain(world, WEEK, is_dry_run=True) == Dropped(20, 20, 2_000)
    assert (await world.head()).base_row == 0
    assert await retain(world, WEEK) == Dropped(20, 20, 2_000)
    assert await retain(world, WEEK) == Dropped(20)
    world.now_ms += 100 * DAY_MS
    assert await retain(world, WEEK) == Dropped(90, 70, 7_000)
    assert await world.rows() == 10


async def test_rows_are_dropped_to_the_size_that_stays_at_least(world: LogWorld) -> None:
    await append_daily(world, 10)

    assert await retain(world, Retention(size_bytes=3_001)) == Dropped(60, 60, 6_000)
    assert await retain(world, Retention(size_bytes=3_000)) == Dropped(70, 10, 1_000)
    assert await retain(world, Retention(size_bytes=0)) == Dropped(90, 20, 2_000)


async def test_collection_drops_what_the_logs_own_retention_lets_go(world: LogWorld) -> None:
    await append_daily(world, 10)
    assert (await world.collect()).rows_dropped == 0
    await set_retention(world, Retention(time_ms=7 * DAY_MS + DAY_MS // 2))

    assert (await world.collect(is_dry_run=True)).rows_dropped == 20
    assert (await world.head()).base_row == 0
    assert (await world.collect()).rows_dropped == 20
    world.now_ms += 3_600_000
    report = await world.collect()

    assert len(report.ledgers_deleted) == 2
    assert await world.visible_ledgers() == world.ledgers()


async def test_retention_is_kept_with_the_log_until_it_is_changed(world: LogWorld) -> None:
    assert (await world.head()).format_version == 1
    await set_retention(world, WEEK)
    await append_daily(world, 2)
    await world.append(Job.of_batch("all"), 1, is_overwrite=True)
    await world.logs.truncate(world.log_id, "orders", 30)

    head = await world.head()
    assert (head.retention, head.format_version) == (WEEK, 2)
    # An older program that goes on with the log must not find version 1 again: it would write
    # away what it does not know.
    await set_retention(world, KEEP_ALL)
    head = await world.head()
    assert (head.retention, head.format_version) == (KEEP_ALL, 2)


async def test_a_log_is_created_with_its_retention(world: LogWorld) -> None:
    log_id = await world.logs.catalog.create("kept", (await world.head()).settings, b"schema", WEEK)

    head = (await world.logs.nodes(log_id).head()).head

    assert (head.retention, head.format_version) == (WEEK, 2)


async def test_a_clock_in_the_future_empties_no_log(world: LogWorld) -> None:
    await append_daily(world, 10)
    layer = LogLayer(
        world.store,
        "/ledgers",
        fence=_never,
        delete_ledger=_never,
        clock_ms=lambda: world.now_ms + 1000 * DAY_MS,
    )

    found = await retain(world, WEEK, layer=layer)

    assert found == Dropped(20, 20, 2_000)


async def _never(ledger_id: int) -> None:
    raise AssertionError(ledger_id)


@pytest.mark.parametrize("fault", list(Fault))
async def test_every_mutation_may_be_lost(fault: Fault) -> None:
    async def attempt(lose: LoseNth) -> None:
        world = await LogWorld.with_log()
        await append_daily(world, 6)
        world.store.fault = lose
        with suppress(MetadataUnavailableError):
            await retain(world, WEEK)
            await retain(world, Retention(size_bytes=1_000))
        world.store.fault = None
        await retain(world, Retention(size_bytes=1_000))
        head = await world.head()
        assert (head.base_row, await world.rows()) == (50, 10)
        world.now_ms += 8 * DAY_MS
        await world.collect()
        assert await world.visible_ledgers() == world.ledgers()
        assert await world.nodes().epochs() == []

    assert await every_mutation(attempt, fault) >= 3


# -- consumers ----------------------------------------------------------------------------------------

CONSUMED = Retention(time_ms=1, is_consumed_kept=True)


async def test_rows_a_live_consumer_has_not_passed_stay(world: LogWorld) -> None:
    await append_daily(world, 6)
    consumers = world.logs.consumers(world.log_id, "orders")
    await consumers.advance("slow", 25, 3 * DAY_MS)
    await consumers.advance("fast", 40, 9 * DAY_MS)
    world.now_ms += DAY_MS

    assert await retain(world, CONSUMED) == Dropped(20, 20, 2_000)
    assert await retain(world, Retention(is_consumed_kept=True)) == Dropped(20)
    world.now_ms += 3 * DAY_MS
    assert await retain(world, CONSUMED) == Dropped(40, 20, 2_000)
    world.now_ms += 9 * DAY_MS
    assert await retain(world, CONSUMED) == Dropped(50, 10, 1_000)


async def test_a_cursor_made_since_cursors_were_read_holds_its_rows(world: LogWorld) -> None:
    await append_daily(world, 6)

    found = await _meanwhile(
        world, lambda consumers: consumers.advance("new", 10, DAY_MS), before="multi"
    )

    assert found == Dropped(10, 10, 1_000)


async def test_a_cursor_touched_since_it_was_found_expired_holds_its_rows(
    world: LogWorld,
) -> None:
    await append_daily(world, 6)
    consumers = world.logs.consumers(world.log_id, "orders")
    await consumers.advance("slow", 10, DAY_MS)
    world.now_ms += 2 * DAY_MS

    found = await _meanwhile(
        world, lambda consumers: consumers.advance("slow", 10, DAY_MS), before="multi"
    )

    assert found == Dropped(10, 10, 1_000)


async def test_a_cursor_forgotten_and_made_again_holds_its_rows(world: LogWorld) -> None:
    await append_daily(world, 6)
    consumers = world.logs.consumers(world.log_id, "orders")
    await consumers.advance("slow", 50, DAY_MS)

    async def begin_again(consumers: Consumers) -> None:
        await consumers.forget("slow")
        await consumers.advance("slow", 10, DAY_MS)

    assert await _meanwhile(world, begin_again, before="multi") == Dropped(10, 10, 1_000)


async def _meanwhile(
    world: LogWorld, act: Callable[[Consumers], Awaitable[object]], *, before: str
) -> Dropped:
    """What retention drops if ``act`` happens right before its operation of that name."""
    store = ScriptedStore(world.tree)
    consumers = world.logs.consumers(world.log_id, "orders")
    acted: list[str] = []

    async def intrude(operation: str, path: str) -> None:
        if operation == before and not acted:
            acted.append(path)
            await act(consumers)

    store.before = intrude
    found = await retain(world, CONSUMED, layer=world.client(store))
    assert acted
    return found


async def test_several_at_once_drop_the_same_rows_once(world: LogWorld) -> None:
    await append_daily(world, 10)
    layers = [world.client(MemoryStore(world.tree)) for _ in range(4)]

    found = await asyncio.gather(*(retain(world, WEEK, layer=layer) for layer in layers))

    assert sum(each.rows for each in found) == 20
    assert {each.first_row for each in found} == {20}


async def test_a_head_of_an_older_format_with_a_retention_is_damage(world: LogWorld) -> None:
    await set_retention(world, WEEK)
    path = world.nodes().tree.head
    node = world.tree.node(path)
    assert node is not None
    world.tree.put(path, b"\x08\x01" + node.value[2:], node.version)

    with pytest.raises(MetadataCorruptError, match="format version 2"):
        await world.head()


async def test_nothing_goes_beyond_the_row_that_was_asked_about(world: LogWorld) -> None:
    """What a command asked its user about was found again, with what had expired since."""
    await append_daily(world, 10)
    plan = await retain(world, WEEK, is_dry_run=True)
    world.now_ms += 3 * DAY_MS

    found = await world.logs.drop_expired(world.log_id, "orders", WEEK, before_row=plan.first_row)

    assert found == Dropped(20, 20, 2_000)


async def test_one_hosts_clock_neither_holds_rows_for_years_nor_lets_them_go(
    world: LogWorld,
) -> None:
    """Whether a consumer is live, the store's clock says alone."""
    world.now_ms += 100 * DAY_MS
    await append_daily(world, 6)
    for name, ahead_ms in (("ahead", 3_000 * DAY_MS), ("behind", -30 * DAY_MS)):
        consumers = Consumers(world.nodes(), lambda ahead=ahead_ms: world.now_ms + ahead)  # type: ignore[misc]
        await consumers.advance(name, 10 if name == "behind" else 20, DAY_MS)

    assert await retain(world, CONSUMED) == Dropped(10, 10, 1_000)
    world.now_ms += 2 * DAY_MS
    assert await retain(world, CONSUMED) == Dropped(50, 40, 4_000)


async def test_cursors_that_lapsed_long_ago_are_removed(world: LogWorld) -> None:
    """Every retention looked at each of them in its multi: ten thousand would not fit into one."""
    consumers = world.logs.consumers(world.log_id, "orders")
    await consumers.advance("gone", 0, DAY_MS)
    await consumers.advance("lapsed", 0, 20 * DAY_MS)
    world.now_ms += 31 * DAY_MS
    await world.append(Job.of_batch("first"), 1)

    assert (await world.collect(is_dry_run=True)).consumers_forgotten == []
    world.now_ms += 1
    assert (await world.collect(is_dry_run=True)).consumers_forgotten == []
    # The store has told of this time by now.
    await world.append(Job.of_batch("second"), 1)
    assert (await world.collect(is_dry_run=True)).consumers_forgotten == ["gone"]
    assert (await world.collect()).consumers_forgotten == ["gone"]
    assert list(await world.nodes().cursors()) == ["lapsed"]


async def test_a_chunk_that_goes_while_ranges_are_looked_at_is_looked_for_again(
    world: LogWorld, small_chunks: None
) -> None:
    """The error behind it is none of ours and went through `logs gc` as a traceback."""
    await append_daily(world, 40)
    store = ScriptedStore(world.tree)
    acted: list[str] = []

    async def overwrite_meanwhile(operation: str, path: str) -> None:
        if operation == "get" and "/chunks/" in path and not acted:
            acted.append(path)
            await world.append(Job.of_batch("all"), 1, is_overwrite=True)
            world.now_ms += DAY_MS
            await world.collect()

    store.before = overwrite_meanwhile
    found = await retain(world, Retention(time_ms=20 * DAY_MS), layer=world.client(store))

    assert acted
    assert found == Dropped(400)
