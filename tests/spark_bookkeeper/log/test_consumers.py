"""Cursors of consumers: forward only, whoever moves them and whatever replies are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bookkeeper_metadata.errors import MetadataConflictError, MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault
from bookkeeper_metadata.store.operations import BadVersionError
from spark_bookkeeper.log.cleaning.consumers import ADVANCE_ATTEMPTS_MAX, Consumers, CursorHolder
from spark_bookkeeper.log.errors import NoConsumerError, NoSuchLogError
from spark_bookkeeper.log.format.model import Cursor
from tests.spark_bookkeeper.log.world import DAY_MS, LogWorld


@pytest.fixture
def consumers(world: LogWorld) -> Iterator[Consumers]:
    yield world.logs.consumers(world.log_id, "orders")
    assert world.touched == [], "cursors touch no ledger"


async def test_a_cursor_is_made_moves_forward_and_never_back(
    world: LogWorld, consumers: Consumers
) -> None:
    assert await world.nodes().cursors() == {}
    await consumers.advance("report/1", 10, DAY_MS)
    world.now_ms += 5
    await consumers.advance("report/1", 30, DAY_MS)
    world.now_ms -= 3  # another host's clock
    await consumers.advance("report/1", 20, 7)

    (found,) = (await world.nodes().cursors()).items()
    assert (found[0], found[1].cursor) == ("report/1", Cursor(30, 1_000_005, 7))


async def test_retention_waits_for_the_slowest_live_consumer(
    world: LogWorld, consumers: Consumers
) -> None:
    with pytest.raises(NoConsumerError, match=r"log=orders expired=none"):
        await consumers.consumed_row()
    await consumers.advance("slow", 10, DAY_MS)
    world.now_ms += DAY_MS
    await consumers.advance("fast", 30, DAY_MS)
    assert await consumers.consumed_row() == 10

    world.now_ms += 1
    assert await consumers.consumed_row() == 30

    world.now_ms += DAY_MS
    with pytest.raises(NoConsumerError, match=r"expired=fast,slow"):
        await consumers.consumed_row()
    await consumers.advance("slow", 11, DAY_MS)
    assert await consumers.consumed_row() == 11


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("operation", ["multi", "put"])
async def test_a_lost_reply_moves_a_cursor_once_or_not_at_all(
    world: LogWorld, consumers: Consumers, operation: str, fault: Fault
) -> None:
    if operation == "put":
        await consumers.advance("report", 10, DAY_MS)
    world.store.fault = lambda name, path: fault if name == operation else None
    with pytest.raises(MetadataUnavailableError):
        await consumers.advance("report", 20, DAY_MS)
    world.store.fault = None

    await consumers.advance("report", 20, DAY_MS)

    assert (await world.nodes().cursors())["report"].cursor.row == 20


async def test_consumers_of_one_name_share_the_cursor_of_the_faster(
    world: LogWorld, consumers: Consumers
) -> None:
    await asyncio.gather(*(consumers.advance("shared", row, DAY_MS) for row in range(30, 0, -2)))

    assert (await world.nodes().cursors())["shared"].cursor.row == 30


async def test_a_cursor_that_others_move_every_time_is_given_up_in_words(
    world: LogWorld, consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await consumers.advance("report", 10, DAY_MS)
    tries = []

    async def refuse(path: str, value: bytes, version: int) -> int:
        tries.append(path)
        raise BadVersionError(path)

    monkeypatch.setattr(world.store, "put", refuse)
    with pytest.raises(MetadataConflictError, match="consumer report of log orders"):
        await consumers.advance("report", 20, DAY_MS)
    assert len(tries) == ADVANCE_ATTEMPTS_MAX


async def test_a_cursor_of_a_deleted_log_is_not_made_again(
    world: LogWorld, consumers: Consumers
) -> None:
    await consumers.advance("report", 10, DAY_MS)
    await world.logs.catalog.delete("orders")

    with pytest.raises(NoSuchLogError):
        await consumers.advance("report", 20, DAY_MS)
    assert await world.store.children("/ledgers-logs") == ["names"]


async def test_a_forgotten_consumer_holds_nothing_back_until_it_is_heard_of_again(
    world: LogWorld, consumers: Consumers
) -> None:
    holder = CursorHolder(consumers, "slow", DAY_MS, lambda: world.now_ms)
    await holder.advance(3)
    await consumers.advance("fast", 50, DAY_MS)

    assert await consumers.forget("slow") == Cursor(3, world.now_ms, DAY_MS)

    assert await consumers.forget("slow") is None
    assert await consumers.consumed_row() == 50
    await holder.heartbeat(3)
    assert await consumers.consumed_row() == 50
    await holder.advance(7)
    assert await consumers.consumed_row() == 7


async def test_a_holder_writes_only_what_moves_or_is_about_to_expire(
    world: LogWorld, consumers: Consumers
) -> None:
    holder = CursorHolder(consumers, "report", 8_000, lambda: world.now_ms)
    writes: list[str] = []
    world.store.fault = lambda name, path: writes.append(name) if name != "get" else None

    await holder.heartbeat(10)
    await holder.heartbeat(50)
    await holder.advance(10)
    await holder.advance(5)
    assert writes == ["multi"]
    await holder.advance(20)
    assert writes == ["multi", "put"]
    world.now_ms += 999
    await holder.heartbeat(50)
    assert writes == ["multi", "put"]
    world.now_ms += 1
    await holder.heartbeat(50)
    world.store.fault = None

    assert writes == ["multi", "put", "put"]
    assert (await world.nodes().cursors())["report"].cursor == Cursor(20, world.now_ms, 8_000)
