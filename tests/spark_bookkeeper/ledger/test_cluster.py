"""What a client knows of its bookies: where they are, and how often it asks."""

from __future__ import annotations

from random import Random
from unittest.mock import Mock, create_autospec

from bookie_server.client.interface import BookieClient
from bookkeeper_metadata.bookies import (
    BOOKIE_ENDPOINT,
    GRPC,
    BookieRegistry,
    BookieServiceInfo,
    Endpoint,
)
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.store.memory import MemoryStore
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.settings import ClientSettings
from tests.doubles.stores import Script

ROOT = "/ledgers"


async def registered(store: MemoryStore, bookie_id: str, port: int) -> None:
    endpoint = Endpoint(BOOKIE_ENDPOINT, "127.0.0.1", port, GRPC)
    await BookieRegistry(store, ROOT).register(bookie_id, BookieServiceInfo((endpoint,)))


async def new_cluster(store: MemoryStore, made: dict[str, Mock]) -> LedgerContext:
    """A cluster whose connections are noted by address."""

    def connect(bookie_id: str, address: str, settings: ClientSettings) -> Mock:
        made[address] = create_autospec(BookieClient, instance=True)
        return made[address]

    await initialize(store, ROOT, random=Random(0))
    return LedgerContext(
        store, ROOT, settings=ClientSettings(), random=Random(0), make_client=connect
    )


async def test_a_bookie_that_moved_is_found_where_it_is_now() -> None:
    async def moved(store: MemoryStore, port: int) -> tuple[bytes, int]:
        other = MemoryStore()
        await initialize(other, ROOT, random=Random(0))
        await registered(other, "b1", port)
        there, here = (
            await other.get(f"{ROOT}/available/b1"),
            await store.get(f"{ROOT}/available/b1"),
        )
        assert there is not None
        assert here is not None
        await other.close()
        return there.value, here.version

    store, made = MemoryStore(), dict[str, Mock]()
    cluster = await new_cluster(store, made)
    await registered(store, "b1", 1111)
    await cluster.usable_bookies()
    before = cluster.client("b1")
    assert cluster.client("b1") is before

    await store.put(f"{ROOT}/available/b1", *await moved(store, 2222))
    await cluster.usable_bookies()
    cluster.client("b1")

    assert list(made) == ["127.0.0.1:1111", "127.0.0.1:2222"]
    made[
        "127.0.0.1:1111"
    ].close.assert_not_awaited()  # whoever waits for an answer there still gets it
    await cluster.close()
    assert all(connection.close.await_count == 1 for connection in made.values())
    await store.close()


async def test_a_bookie_nobody_knows_is_not_looked_for_with_every_request() -> None:
    store, made = MemoryStore(), dict[str, Mock]()
    cluster = await new_cluster(store, made)
    store.fault = script = Script()
    for _ in range(50):
        await cluster.prepare(("gone",))

    assert 1 <= len(script.paths("children")) <= 4
    await store.close()
