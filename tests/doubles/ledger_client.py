"""The data source's client boundary in memory: metadata in a tree, ledgers as lists of payloads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from bookie_server.client.interface import BookieClient
from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.endpoints import Endpoint
from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.model import DigestType, Fragment, LedgerMetadata
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from spark_bookkeeper.blocking.add_future import AddFuture
from spark_bookkeeper.blocking.read_handle import ReadHandle
from spark_bookkeeper.blocking.write_handle import WriteHandle
from spark_bookkeeper.bookkeeper import BookKeeper
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.entry import Entry
from spark_bookkeeper.ledger.errors import (
    LedgerFencedError,
    NoSuchEntryError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from spark_bookkeeper.ledger.protocol.placement import FirstEnsemble
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.read_handle import ReadHandle as AsyncReadHandle
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.settings import ClientSettings
from tests.doubles.ledgers import StoredLedger

ROOT = "/ledgers"
T = TypeVar("T")


@dataclass(kw_only=True)
class FakeLedger(StoredLedger):
    """One ledger: what was appended, and whether anybody may go on."""

    metadata: LedgerMetadata
    is_closed: bool = False
    confirmed: int | None = None
    """What bookies say is confirmed; ``None``: every entry."""


class FakeFuture(AddFuture[int]):
    """An append that is acknowledged when somebody waits for it, or earlier by the test."""

    def __init__(self, client: FakeClient, ledger_id: int, size_bytes: int, entry_id: int) -> None:
        self._client = client
        self._ledger_id = ledger_id
        self._size_bytes = size_bytes
        self._entry_id = entry_id
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def result(self, timeout: float | None = None) -> int:
        if not self._is_done:
            self._client.before_acknowledge(self._ledger_id, self._entry_id)
            self._is_done = True
            self._client.in_flight_bytes -= self._size_bytes
        return self._entry_id


class FakeWriter(WriteHandle):
    def __init__(self, client: FakeClient, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self._client = client
        self._ledger = client.ledgers[ledger_id]

    @property
    def bookies_missed(self) -> frozenset[str]:
        return self._client.bookies_missed

    def append_async(self, payload: bytes | bytearray | memoryview) -> FakeFuture:
        payload = bytes(payload)
        self._client.before_append(self.ledger_id, len(self._ledger.payloads))
        if self._ledger.is_fenced:
            raise LedgerFencedError(self.ledger_id)
        self._ledger.payloads.append(payload)
        self._client.in_flight_bytes += len(payload)
        self._client.in_flight_bytes_peak = max(
            self._client.in_flight_bytes_peak, self._client.in_flight_bytes
        )
        entry_id = len(self._ledger.payloads) - 1
        return FakeFuture(self._client, self.ledger_id, len(payload), entry_id)

    def close(self) -> None:
        self._client.before_close(self.ledger_id)
        if self._ledger.is_fenced:
            raise LedgerFencedError(self.ledger_id)
        self._ledger.is_closed = True


class FakeReader(ReadHandle):
    def __init__(self, client: FakeClient, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self._client = client
        self._ledger = client.ledgers[ledger_id]

    @property
    def last_add_confirmed(self) -> int:
        if self._ledger.confirmed is not None and not self._ledger.is_closed:
            return self._ledger.confirmed
        return len(self._ledger.payloads) - 1

    @property
    def metadata(self) -> LedgerMetadata:
        return self._ledger.metadata

    def read(self, first_entry: int, last_entry: int) -> Iterator[Entry]:
        if last_entry > self.last_add_confirmed:
            raise NoSuchEntryError(self.ledger_id, last_entry, self.last_add_confirmed)
        return self.read_unconfirmed(first_entry, last_entry)

    def read_unconfirmed(self, first_entry: int, last_entry: int) -> Iterator[Entry]:
        assert 0 <= first_entry <= last_entry
        if last_entry >= len(self._ledger.payloads):
            raise NoSuchEntryError(self.ledger_id, last_entry, self.last_add_confirmed)
        length = sum(map(len, self._ledger.payloads[:first_entry]))
        for entry_id in range(first_entry, last_entry + 1):
            self._client.entries_read.append((self.ledger_id, entry_id))
            payload = memoryview(self._ledger.payloads[entry_id])
            length += len(payload)
            yield Entry(self.ledger_id, entry_id, length, payload)


class FakeAsyncReader(AsyncReadHandle):
    """An open fake ledger, as the event loop sees it."""

    def __init__(self, reader: FakeReader) -> None:
        self.ledger_id = reader.ledger_id
        self._reader = reader

    @property
    def last_add_confirmed(self) -> int:
        return self._reader.last_add_confirmed

    async def read_unconfirmed(
        self, first_entry: int, last_entry: int
    ) -> AsyncGenerator[Entry, None]:
        for entry in self._reader.read_unconfirmed(first_entry, last_entry):
            yield entry


class FakeCluster(LedgerContext):
    """Metadata in memory, and as many bookies as the test says."""

    def __init__(self, client: FakeClient) -> None:
        settings, random = ClientSettings(), Random(7)
        super().__init__(
            client.store, ROOT, settings=settings, random=random, make_client=self._no_bookie
        )
        self._client = client

    async def choose_ensemble(self, wanted: QuorumConfig) -> FirstEnsemble:
        if wanted.ensemble_size > self._client.bookie_count:
            raise NotEnoughBookiesError(wanted.ensemble_size, ("b0",) * self._client.bookie_count)
        return FirstEnsemble(tuple(f"b{n}" for n in range(wanted.ensemble_size)))

    def _no_bookie(
        self, bookie_id: str, endpoint: Endpoint, settings: ConnectionSettings
    ) -> BookieClient:
        raise AssertionError(f"a fake cluster has no bookie {bookie_id}")


class FakeLedgerClient(LedgerClient):
    """What the log layer and the planner ask of ledgers, on the event loop."""

    def __init__(self, client: FakeClient) -> None:
        super().__init__(FakeCluster(client))
        self._client = client

    async def open_ledger(
        self, ledger_id: int, *, password: bytes = b"", recovery: bool = False
    ) -> FakeAsyncReader:
        assert not recovery
        return FakeAsyncReader(self._client.open_ledger(ledger_id, password=password))

    async def check_password(self, ledger_id: int, password: bytes) -> None:
        self._client.open_ledger(ledger_id, password=password)

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        return self._client.ledger_metadata(ledger_id)

    async def fence_ledger(self, ledger_id: int) -> None:
        if ledger_id not in self._client.ledgers:
            raise NoSuchLedgerError(ledger_id)
        if not self._client.ledgers[ledger_id].is_closed:
            self._client.ledgers[ledger_id].is_fenced = True

    async def dispose_of_ledger(self, ledger_id: int) -> None:
        if self._client.ledgers.pop(ledger_id, None) is None:
            raise NoSuchLedgerError(ledger_id)


class FakeClient(BookKeeper):
    """The client boundary of the data source; whatever is not defined here reaches no cluster."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0) -> None:
        super().__init__("zk+hierarchical://fake/ledgers")
        self.store = MemoryStore(MemoryTree(clock_ms))
        self.bookies_missed: frozenset[str] = frozenset()
        """What every writer says of its ledger."""
        self.ledgers: dict[int, FakeLedger] = {}
        self.in_flight_bytes = 0
        self.in_flight_bytes_peak = 0
        self.entries_read: list[tuple[int, int]] = []
        self.before_append: Callable[[int, int], None] = lambda ledger_id, entry_id: None
        self.before_acknowledge: Callable[[int, int], None] = lambda ledger_id, entry_id: None
        """Called when somebody waits for an append; may raise why it never will be acknowledged."""
        self.before_close: Callable[[int], None] = lambda ledger_id: None
        self._runner = asyncio.Runner()
        self._runs = threading.Lock()
        self._next_ledger_id = 0
        self.bookie_count = 5
        self.unattended: list[Coroutine[Any, Any, None]] = []
        self.run(self.store.create(ROOT, b"", make_parents=True))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        # From several threads, as the real client's loop is used.
        with self._runs:
            return self._runner.run(coroutine)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """What runs unattended waits for :meth:`FakeSpark.run_unattended`."""
        self.unattended.append(coroutine)

    def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: str = "CRC32C",
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        extra_operations: ExtraOperations | None = None,
    ) -> FakeWriter:
        assert ledger_id is None
        assert extra_operations is not None
        settings = LogSettings(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest_type=DigestType[digest_type],
        )
        return self.run(self.created(settings, password, custom_metadata or {}, extra_operations))

    async def created(
        self,
        settings: LogSettings,
        password: bytes,
        custom_metadata: Mapping[str, bytes],
        extra_operations: ExtraOperations,
    ) -> FakeWriter:
        """As :meth:`create_ledger`, on the event loop."""
        ledger_id, self._next_ledger_id = self._next_ledger_id, self._next_ledger_id + 1
        await self.store.multi(list(extra_operations(ledger_id)))
        bookies = tuple(f"b{n}" for n in range(settings.ensemble_size))
        self.ledgers[ledger_id] = FakeLedger(
            metadata=LedgerMetadata(
                ensemble_size=settings.ensemble_size,
                write_quorum=settings.write_quorum,
                ack_quorum=settings.ack_quorum,
                fragments=(Fragment(0, bookies),),
                digest_type=settings.digest_type,
                password=password,
                custom_metadata=dict(custom_metadata),
            )
        )
        return FakeWriter(self, ledger_id)

    def open_ledger(
        self, ledger_id: int, *, password: bytes = b"", recovery: bool = False
    ) -> FakeReader:
        assert not recovery
        if self.ledger_metadata(ledger_id).password != password:
            raise UnauthorizedError(ledger_id)
        return FakeReader(self, ledger_id)

    def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        if ledger_id not in self.ledgers:
            raise NoSuchLedgerError(ledger_id)
        return self.ledgers[ledger_id].metadata

    @property
    def ledger_client(self) -> FakeLedgerClient:
        return FakeLedgerClient(self)

    def close(self) -> None:
        for coroutine in self.unattended:
            coroutine.close()
        self.run(self.store.close())
        self._runner.close()
