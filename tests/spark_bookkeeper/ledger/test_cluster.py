"""What a client knows of its bookies: where they are, and how often it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from bookie_server.client.interface import BookieClient
from bookie_server.wire.messages import (
    BookieInfo,
    EncodedSection,
    EntryList,
    LongPoll,
    ReadLacReply,
    ReadReply,
    ReadRequest,
    Status,
)
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

ROOT = "/ledgers"


class Connection(BookieClient):
    """Knows where it leads, and whether it was closed."""

    def __init__(self, bookie_id: str, address: str) -> None:
        self.bookie_id = bookie_id
        self.address = address
        self.is_closed = False

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        raise NotImplementedError

    async def read(self, request: ReadRequest) -> ReadReply:
        raise NotImplementedError

    async def read_lac(
        self,
        ledger_id: int,
        *,
        is_fencing: bool = False,
        master_key: bytes = b"",
        long_poll: LongPoll | None = None,
    ) -> ReadLacReply:
        raise NotImplementedError

    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        raise NotImplementedError

    async def info(self) -> BookieInfo | None:
        raise NotImplementedError

    async def list_entries(self, ledger_id: int) -> EntryList:
        raise NotImplementedError

    async def close(self) -> None:
        self.is_closed = True


async def registered(store: MemoryStore, bookie_id: str, port: int) -> None:
    endpoint = Endpoint(BOOKIE_ENDPOINT, "127.0.0.1", port, GRPC)
    await BookieRegistry(store, ROOT).register(bookie_id, BookieServiceInfo((endpoint,)))


async def new_cluster(store: MemoryStore, made: list[Connection]) -> LedgerContext:
    def connect(bookie_id: str, address: str, settings: ClientSettings) -> BookieClient:
        made.append(Connection(bookie_id, address))
        return made[-1]

    await initialize(store, ROOT, random=Random(0))
    return LedgerContext(
        store, ROOT, settings=ClientSettings(), random=Random(0), make_client=connect
    )


def test_a_bookie_that_moved_is_found_where_it_is_now() -> None:
    async def main() -> None:
        store, made = MemoryStore(), list[Connection]()
        cluster = await new_cluster(store, made)
        await registered(store, "b1", 1111)
        await cluster.usable_bookies()
        before = cluster.client("b1")
        assert cluster.client("b1") is before

        await store.put(f"{ROOT}/available/b1", *await moved(store, 2222))
        await cluster.usable_bookies()
        cluster.client("b1")

        assert [connection.address for connection in made] == ["127.0.0.1:1111", "127.0.0.1:2222"]
        assert not made[0].is_closed  # whoever waits for an answer there still gets it
        await cluster.close()
        assert all(connection.is_closed for connection in made)
        await store.close()

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

    asyncio.run(main())


def test_a_bookie_nobody_knows_is_not_looked_for_with_every_request() -> None:
    async def main() -> None:
        store, made = MemoryStore(), list[Connection]()
        cluster = await new_cluster(store, made)
        listed: list[str] = []

        def count(operation: str, path: str) -> None:
            if operation == "children":
                listed.append(path)

        store.fault = count
        for _ in range(50):
            await cluster.prepare(("gone",))

        assert 1 <= len(listed) <= 4
        await store.close()

    asyncio.run(main())
