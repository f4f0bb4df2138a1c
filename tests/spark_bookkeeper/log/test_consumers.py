"""Cursors of consumers: forward only, whoever moves them and whatever replies are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from bookkeeper_metadata.errors import MetadataConflictError, MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.store.operations import BadVersionError
from spark_bookkeeper.log.cleaning.consumers import ADVANCE_ATTEMPTS_MAX, Consumers, CursorHolder
from spark_bookkeeper.log.errors import NoConsumerError, NoSuchLogError
from spark_bookkeeper.log.format.model import Cursor, LogSettings
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.nodes.reads import LogNodes

DAY_MS = 86_400_000


class World:
    """One log and the clock."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.now_ms = 1_000_000

        async def nothing(ledger_id: int) -> None:
            raise AssertionError("no ledger is touched")

        self.layer = LogLayer(
            store,
            "/ledgers",
            fence=nothing,
            delete_ledger=nothing,
            clock_ms=lambda: self.now_ms,
            random=Random(1),
        )
        self.nodes: LogNodes
        self.consumers: Consumers

    async def create(self) -> None:
        log_id = await self.layer.catalog.create("orders", LogSettings(), b"schema")
        self.nodes = self.layer.nodes(log_id, "orders")
        self.consumers = self.layer.consumers(log_id, "orders")


def play(scene: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        store = MemoryStore()
        await store.create("/ledgers", b"", make_parents=True)
        world = World(store)
        await world.create()
        await scene(world)
        await store.close()

    asyncio.run(run())


def test_a_cursor_is_made_moves_forward_and_never_back() -> None:
    async def scene(world: World) -> None:
        assert await world.nodes.cursors() == {}
        await world.consumers.advance("report/1", 10, DAY_MS)
        world.now_ms += 5
        await world.consumers.advance("report/1", 30, DAY_MS)
        world.now_ms -= 3  # another host's clock
        await world.consumers.advance("report/1", 20, 7)

        assert await world.nodes.cursors() == {"report/1": Cursor(30, 1_000_005, 7)}

    play(scene)


def test_retention_waits_for_the_slowest_live_consumer() -> None:
    async def scene(world: World) -> None:
        with pytest.raises(NoConsumerError, match=r"log=orders expired=none"):
            await world.consumers.consumed_row()
        await world.consumers.advance("slow", 10, DAY_MS)
        world.now_ms += DAY_MS
        await world.consumers.advance("fast", 30, DAY_MS)
        assert await world.consumers.consumed_row() == 10

        world.now_ms += 1
        assert await world.consumers.consumed_row() == 30

        world.now_ms += DAY_MS
        with pytest.raises(NoConsumerError, match=r"expired=fast,slow"):
            await world.consumers.consumed_row()
        await world.consumers.advance("slow", 11, DAY_MS)
        assert await world.consumers.consumed_row() == 11

    play(scene)


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("operation", ["create", "put"])
def test_a_lost_reply_moves_a_cursor_once_or_not_at_all(operation: str, fault: Fault) -> None:
    async def scene(world: World) -> None:
        if operation == "put":
            await world.consumers.advance("report", 10, DAY_MS)
        world.store.fault = lambda name, path: fault if name == operation else None
        with pytest.raises(MetadataUnavailableError):
            await world.consumers.advance("report", 20, DAY_MS)
        world.store.fault = None

        await world.consumers.advance("report", 20, DAY_MS)

        assert (await world.nodes.cursors())["report"].row == 20

    play(scene)


def test_consumers_of_one_name_share_the_cursor_of_the_faster() -> None:
    async def scene(world: World) -> None:
        await asyncio.gather(
            *(world.consumers.advance("shared", row, DAY_MS) for row in range(30, 0, -2))
        )

        assert (await world.nodes.cursors())["shared"].row == 30

    play(scene)


def test_a_cursor_that_others_move_every_time_is_given_up_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(world: World) -> None:
        await world.consumers.advance("report", 10, DAY_MS)
        tries = []

        async def refuse(path: str, value: bytes, version: int) -> int:
            tries.append(path)
            raise BadVersionError(path)

        monkeypatch.setattr(world.store, "put", refuse)
        with pytest.raises(MetadataConflictError, match="consumer report of log orders"):
            await world.consumers.advance("report", 20, DAY_MS)
        assert len(tries) == ADVANCE_ATTEMPTS_MAX

    play(scene)


def test_a_cursor_of_a_deleted_log_is_not_made_again() -> None:
    async def scene(world: World) -> None:
        await world.consumers.advance("report", 10, DAY_MS)
        await world.layer.catalog.delete("orders")

        with pytest.raises(NoSuchLogError):
            await world.consumers.advance("report", 20, DAY_MS)
        assert await world.store.children("/ledgers-logs") == ["names"]

    play(scene)


def test_a_forgotten_consumer_holds_nothing_back_until_it_is_heard_of_again() -> None:
    async def scene(world: World) -> None:
        holder = CursorHolder(world.consumers, "slow", DAY_MS, lambda: world.now_ms)
        await holder.advance(3)
        await world.consumers.advance("fast", 50, DAY_MS)

        assert await world.consumers.forget("slow") == Cursor(3, world.now_ms, DAY_MS)

        assert await world.consumers.forget("slow") is None
        assert await world.consumers.consumed_row() == 50
        await holder.heartbeat(3)
        assert await world.consumers.consumed_row() == 50
        await holder.advance(7)
        assert await world.consumers.consumed_row() == 7

    play(scene)


def test_a_holder_writes_only_what_moves_or_is_about_to_expire() -> None:
    async def scene(world: World) -> None:
        holder = CursorHolder(world.consumers, "report", 8_000, lambda: world.now_ms)
        writes: list[str] = []
        world.store.fault = lambda name, path: writes.append(name) if name != "get" else None

        await holder.heartbeat(10)
        await holder.heartbeat(50)
        await holder.advance(10)
        await holder.advance(5)
        assert writes == ["create"]
        await holder.advance(20)
        assert writes == ["create", "put"]
        world.now_ms += 999
        await holder.heartbeat(50)
        assert writes == ["create", "put"]
        world.now_ms += 1
        await holder.heartbeat(50)
        world.store.fault = None

        assert writes == ["create", "put", "put"]
        assert (await world.nodes.cursors())["report"] == Cursor(20, world.now_ms, 8_000)

    play(scene)
