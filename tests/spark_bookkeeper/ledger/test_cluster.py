"""What a client knows of its bookies: where they are, and how often it asks."""

from __future__ import annotations

import asyncio
from random import Random
from unittest.mock import Mock, create_autospec

from bookie_server.client.interface import BookieClient
from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.bookies import BookieRegistry, encode_service_info
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.cookies import Cookie, CookieStore
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, GRPC, BookieServiceInfo, Endpoint
from bookkeeper_metadata.store.memory import MemoryStore
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.settings import ClientSettings
from tests.doubles.stores import Script
from tests.doubles.virtual_time import on_virtual_time

ROOT = "/ledgers"


def listens_at(port: int) -> BookieServiceInfo:
    return BookieServiceInfo((Endpoint(BOOKIE_ENDPOINT, "127.0.0.1", port, GRPC),))


async def new_cluster(store: MemoryStore, made: dict[str, Mock]) -> LedgerContext:
    """A cluster whose connections are noted by address."""

    def connect(bookie_id: str, endpoint: Endpoint, settings: ConnectionSettings) -> Mock:
        made[endpoint.address] = create_autospec(BookieClient, instance=True)
        return made[endpoint.address]

    await initialize(store, ROOT, random=Random(0))
    return LedgerContext(
        store, ROOT, settings=ClientSettings(), random=Random(0), make_client=connect
    )


async def test_a_bookie_that_moved_is_found_where_it_is_now() -> None:
    store, made = MemoryStore(), dict[str, Mock]()
    cluster = await new_cluster(store, made)
    await BookieRegistry(store, ROOT).register("b1", listens_at(1111))
    await cluster.usable_bookies()
    before = cluster.client("b1")
    assert cluster.client("b1") is before

    await store.put(f"{ROOT}/available/b1", encode_service_info(listens_at(2222)), 0)
    await cluster.usable_bookies()
    cluster.client("b1")

    assert list(made) == ["127.0.0.1:1111", "127.0.0.1:2222"]
    # Whoever waits for an answer there still gets it.
    made["127.0.0.1:1111"].close.assert_not_awaited()
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


def test_who_waits_for_bookies_is_told_and_does_not_ask_all_the_time() -> None:
    """Each of a job's tasks asked four times a second, which is when ZooKeeper has the least to give."""

    async def main() -> None:
        script, loop = Script(), asyncio.get_running_loop()
        store = MemoryStore(fault=script)
        await initialize(store, ROOT, random=Random(0))
        registry, cookies = BookieRegistry(store, ROOT), CookieStore(store, ROOT)
        for bookie_id in ("b0", "b1", "b2"):
            cookie = Cookie(bookie_id, ("/j",), ("/l",))
            await cookies.write_cookie(cookie, await cookies.read(bookie_id))
        await registry.register("b0", listens_at(1110))
        cluster = LedgerContext(
            store, ROOT, settings=ClientSettings(), random=Random(0), make_client=create_autospec
        )
        choosing = asyncio.create_task(cluster.choose_ensemble(QuorumConfig(3, 3, 2)))
        await asyncio.sleep(30)
        asked = script.paths("children").count(f"{ROOT}/available")

        await registry.register("b1", listens_at(1111))
        back_s = loop.time()
        chosen = await choosing

        # Each look lists the writable ones twice: at first, as the watch begins, every five seconds.
        assert asked <= 2 * (2 + 30 // 5)
        assert loop.time() - back_s < 1
        assert {"b0", "b1"} < set(chosen.members)
        await store.close()

    on_virtual_time(main())
