"""A cluster in one process: real bookies on real files, memory metadata, faults at the boundary.

Every request passes a :class:`FaultyClient`, so a test decides per bookie what the network and a
broken peer do; the bytes on either side are the wire's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from bookie_server.bookie import Bookie
from bookie_server.client.interface import BookieClient
from bookie_server.client.local import LocalBookieClient
from bookie_server.client.read_stream import unreachable
from bookie_server.limbo import put_ledgers_in_limbo
from bookie_server.settings import BookieSettings
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.opening import open_storage
from bookie_server.wire.messages import (
    BookieInfo,
    EncodedSection,
    EntryList,
    IdRange,
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
from bookkeeper_metadata.store.interface import Registration
from bookkeeper_metadata.store.memory import MemoryStore
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.settings import ClientSettings
from tests.patience import Deadline

ROOT = "/ledgers"


@dataclass
class Faults:
    """What happens to requests to one bookie."""

    is_dead: bool = False
    """Nothing arrives, nothing is answered but UNREACHABLE."""
    hangs: bool = False
    """Nothing is ever answered, though adds arrive."""
    drops_writes: bool = False
    """Adds never arrive and are never answered."""
    write_status: Status | None = None
    """Adds are not stored and answered like this."""
    read_status: Status | None = None
    """Reads return nothing and claim this."""
    alter_read: Callable[[ReadReply], ReadReply] | None = None
    alter_lac: Callable[[ReadLacReply], ReadLacReply] | None = None
    holds_reads: asyncio.Event | None = None
    """Replies to reads come when it is set."""
    writes_seen: list[EncodedSection] = field(default_factory=list)
    reads_seen: list[ReadRequest] = field(default_factory=list)
    polls_seen: list[LongPoll] = field(default_factory=list)
    lacs_seen: list[bytes] = field(default_factory=list)


class FaultyClient(BookieClient):
    """A client whose requests and replies suffer ``faults``."""

    def __init__(self, inner: LocalBookieClient, faults: Faults) -> None:
        self.bookie_id = inner.bookie_id
        self._inner = inner
        self._faults = faults

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        self._faults.writes_seen.append(section)
        status = Status.UNREACHABLE if self._faults.is_dead else self._faults.write_status
        if status is not None:
            asyncio.get_running_loop().call_soon(done, status)
        elif not self._faults.drops_writes:
            self._inner.write(section, (lambda status: None) if self._faults.hangs else done)

    async def read(self, request: ReadRequest) -> ReadReply:
        self._faults.reads_seen.append(request)
        if self._faults.hangs:
            await asyncio.Event().wait()
        if self._faults.is_dead:
            return unreachable(request)
        if self._faults.read_status is not None:
            ids = IdRange(request.first_entry, request.last_entry, self._faults.read_status)
            return ReadReply((), (ids,), -1)
        reply = await self._inner.read(request)
        if self._faults.holds_reads is not None:
            await self._faults.holds_reads.wait()
        return self._faults.alter_read(reply) if self._faults.alter_read else reply

    async def read_lac(
        self,
        ledger_id: int,
        *,
        is_fencing: bool = False,
        master_key: bytes = b"",
        long_poll: LongPoll | None = None,
    ) -> ReadLacReply:
        if long_poll is not None:
            self._faults.polls_seen.append(long_poll)
        if self._faults.hangs:
            await asyncio.Event().wait()
        if self._faults.is_dead:
            return ReadLacReply(Status.UNREACHABLE)
        reply = await self._inner.read_lac(
            ledger_id, is_fencing=is_fencing, master_key=master_key, long_poll=long_poll
        )
        return self._faults.alter_lac(reply) if self._faults.alter_lac else reply

    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        self._faults.lacs_seen.append(packet)
        if self._faults.hangs:
            await asyncio.Event().wait()
        if self._faults.is_dead:
            return Status.UNREACHABLE
        return await self._inner.write_lac(ledger_id, master_key, packet)

    async def info(self) -> BookieInfo | None:
        return await self._inner.info()

    async def list_entries(self, ledger_id: int) -> EntryList:
        return await self._inner.list_entries(ledger_id)

    async def close(self) -> None:
        """Nothing is held."""


class TestCluster:
    """Bookies ``b0:1``, ``b1:1``, …; use inside :func:`running_cluster`."""

    __test__ = False

    def __init__(self, directory: Path, settings: ClientSettings) -> None:
        self.store = MemoryStore()
        self.faults: dict[str, Faults] = {}
        self.bookies: dict[str, Bookie] = {}
        self.registrations: dict[str, Registration] = {}
        self._directory = directory
        self._settings = settings

    async def start_bookie(self, bookie_id: str) -> None:
        """Open the storage of that name and register."""
        await self.restart_bookie(bookie_id)
        host, port = bookie_id.split(":")
        endpoint = Endpoint(BOOKIE_ENDPOINT, host, int(port), GRPC)
        registry = BookieRegistry(self.store, ROOT)
        self.registrations[bookie_id] = await registry.register(
            bookie_id, BookieServiceInfo((endpoint,))
        )

    async def restart_bookie(self, bookie_id: str) -> None:
        """Open the storage of a bookie that was stopped, from what is on disk."""
        place = self._directory / bookie_id.replace(":", "_")
        settings = BookieSettings(
            bookie_id=bookie_id,
            journal_directories=(str(place / "journal"),),
            ledger_directories=(str(place / "ledgers"),),
            journal_zero_chunk_bytes=64 * 1024,
        )
        storage = open_storage(
            RealFileSystem(),
            settings.storage,
            instance_id=bookie_id.encode().ljust(16),
            clock_ms=lambda: 1,
        )
        if storage.contents.is_damaged:
            await put_ledgers_in_limbo(storage, self.store, ROOT, bookie_id)
        bookie = self.bookies[bookie_id] = Bookie(storage, settings)
        await bookie.start()
        self.faults.setdefault(bookie_id, Faults())

    def client(self, seed: int = 1) -> LedgerClient:
        """A client of its own, as another process would have."""
        cluster = LedgerContext(
            self.store,
            ROOT,
            settings=self._settings,
            random=Random(seed),
            make_client=lambda bookie_id, address, settings: FaultyClient(
                LocalBookieClient(bookie_id, self.bookies[bookie_id]), self.faults[bookie_id]
            ),
        )
        return LedgerClient(cluster)

    def copies(self, ledger_id: int, entry_id: int) -> dict[str, bytes]:
        """By bookie: the record it holds of an entry, whoever should."""
        found: dict[str, bytes] = {}
        for bookie_id, bookie in self.bookies.items():
            plan = bookie.storage.contents.plan_read(
                ledger_id, entry_id, entry_id, size_bytes_max=1
            )
            if record := b"".join(bookie.storage.execute(plan).chunks):
                found[bookie_id] = record
        return found

    def ensemble_faults(self, ensemble: tuple[str, ...]) -> list[Faults]:
        """The faults of an ensemble's bookies, by position."""
        return [self.faults[bookie_id] for bookie_id in ensemble]


@asynccontextmanager
async def running_cluster(
    directory: Path, bookies: int = 3, **settings: int
) -> AsyncIterator[TestCluster]:
    """A cluster of ``bookies``; stops them at the end.

    Explicit LACs are off unless asked for: what bookies know is for the tests to decide.
    """
    settings = {"explicit_lac_interval_ms": 0} | settings
    cluster = TestCluster(directory, replace(ClientSettings(), **settings))  # type: ignore[arg-type]
    await initialize(cluster.store, ROOT, random=Random(0))
    for number in range(bookies):
        await cluster.start_bookie(f"b{number}:1")
    try:
        yield cluster
    finally:
        for bookie in cluster.bookies.values():
            await bookie.stop()
        await cluster.store.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is on its way.

    Raises:
        AssertionError: it is not.
    """
    deadline = Deadline(5)
    while not condition():
        assert not deadline.has_passed, "waited in vain"
        await asyncio.sleep(0.01)
