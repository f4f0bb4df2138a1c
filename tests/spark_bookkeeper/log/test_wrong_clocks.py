"""A host whose clock is wrong takes nothing from a consumer that is there, and no consumer forgets to say so."""

from __future__ import annotations

import pytest

from spark_bookkeeper.log.cleaning.consumers import Consumers, CursorHolder, remove_lapsed_cursors
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.format.model import Retention
from tests.doubles.stores import ScriptedStore
from tests.spark_bookkeeper.log.world import DAY_MS, LogWorld

AHEAD_MS = 400 * DAY_MS


@pytest.fixture
async def daily(world: LogWorld) -> LogWorld:
    """Twenty days of commits, of which a week stays."""
    for day in range(20):
        world.now_ms += DAY_MS
        await world.append(Job.of_batch(f"day {day}"), 1)
    week = Retention(time_ms=7 * DAY_MS, is_consumed_kept=True)
    await world.logs.change_retention(world.log_id, "orders", lambda _: week)
    return world


async def test_a_collection_ahead_of_time_leaves_live_consumers_their_rows(daily: LogWorld) -> None:
    told = await daily.logs.consumers(daily.log_id, "orders").advance("c", 0, 7 * DAY_MS)
    ahead = daily.client(ahead_ms=AHEAD_MS)

    report = await ahead.collector.collect(daily.log_id, log="orders")

    assert report.consumers_forgotten == []
    assert (await daily.head()).base_row == told.row


async def test_a_retention_ahead_of_time_leaves_live_consumers_their_rows(daily: LogWorld) -> None:
    told = await daily.logs.consumers(daily.log_id, "orders").advance("c", 0, 7 * DAY_MS)

    await daily.client(ahead_ms=AHEAD_MS).drop_expired(daily.log_id, "orders")

    assert (await daily.head()).base_row == told.row


async def test_an_idle_consumer_whose_clock_is_set_back_goes_on_saying_that_it_is_there(
    daily: LogWorld,
) -> None:
    ahead_ms = 30 * DAY_MS

    def clock_ms() -> int:
        return daily.now_ms + ahead_ms

    holder = CursorHolder(Consumers(daily.nodes(), clock_ms), "c", DAY_MS, clock_ms)
    await holder.heartbeat(0)
    ahead_ms = 0
    for _ in range(48):
        daily.now_ms += 3_600_000
        await holder.heartbeat(0)
    await daily.collect()

    assert (await daily.head()).base_row == 0


async def test_a_consumer_that_takes_over_a_cursor_from_the_future_says_that_it_is_there(
    daily: LogWorld,
) -> None:
    """The cursor keeps the later time of the two, so it tells nothing of when it was written."""
    fast = Consumers(daily.nodes(), lambda: daily.now_ms + AHEAD_MS)
    await fast.advance("c", 0, DAY_MS)
    consumers = daily.logs.consumers(daily.log_id, "orders")
    holder = CursorHolder(consumers, "c", DAY_MS, lambda: daily.now_ms)
    await holder.heartbeat(0)
    for _ in range(48):
        daily.now_ms += 3_600_000
        await holder.heartbeat(0)
    await daily.collect()

    assert (await daily.head()).base_row == 0


async def test_a_consumer_that_is_back_while_it_is_forgotten_stays(daily: LogWorld) -> None:
    consumers = daily.logs.consumers(daily.log_id, "orders")
    await consumers.advance("c", 0, DAY_MS)
    daily.now_ms += AHEAD_MS
    await daily.append(Job.of_batch("late"), 1)
    store = ScriptedStore(daily.tree)

    async def touch(operation: str, path: str) -> None:
        if operation == "delete":
            await consumers.advance("c", 0, DAY_MS)

    store.before = touch
    nodes = daily.client(store).nodes(daily.log_id, "orders")

    assert await remove_lapsed_cursors(nodes) == []
    assert list(await daily.nodes().cursors()) == ["c"]
