"""A world for writers and readers of logs: real ledger metadata, entries in memory, crashes.

One :class:`Bookies` holds what is stored, many :class:`Client` objects share it, each with a session
of its own. Ledgers obey the protocol's rules and nothing else of it: a fenced ledger takes no entry,
a recovery closes behind the last entry stored, a writer closes behind the last one acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from random import Random

from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import ExtraOperations, LedgerStore
from bookkeeper_metadata.model import Fragment, LedgerMetadata, LedgerState, Stop, Versioned
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.serde import parse_metadata
from bookkeeper_metadata.store.memory import Fault, FaultHook, MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import Operation
from spark_bookkeeper.ledger.client import LOG_MARK
from spark_bookkeeper.ledger.entry import Entry
from spark_bookkeeper.ledger.errors import LedgerClosedError, LedgerFencedError, LedgerRecoveryError
from spark_bookkeeper.ledger.pending_adds import AppendCallback
from spark_bookkeeper.ledger.protocol.transitions import closed_by_writer, marked_in_recovery
from spark_bookkeeper.log.format.model import LogHead, LogSettings
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.format.raw import settings_and_schema
from spark_bookkeeper.log.handle import Log
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.settings import LogWriterSettings
from spark_bookkeeper.log.writing.writer import LogWriter
from tests.patience import Deadline
from tests.spark_bookkeeper.log.chain_checkers import (
    acknowledged_in_place,
    c1_all_nonempty_listed,
    c2_listed_in_order,
    c3_one_open,
    nothing_twice,
    writers_in_order,
)
from tests.spark_bookkeeper.log.world import MUTATIONS

ROOT = "/ledgers"

NAME = "events"
FOREVER = 10**9
MAYBE_TURNS = 5


class Hasty(Random):
    """Draws as ever but backs off for no time."""

    def randint(self, a: int, b: int) -> int:
        return a


class Bookies:
    """What is stored and fenced."""

    def __init__(self) -> None:
        self.entries: dict[int, list[bytes]] = {}
        self.confirmed: dict[int, int] = {}
        """Acknowledged entries of a ledger."""
        self.fenced: set[int] = set()
        self.is_answering = asyncio.Event()
        self.is_answering.set()
        self.is_undecidable = False
        """Recoveries find too few bookies."""

    def store(self, ledger_id: int, payload: bytes) -> bool:
        """Whether the ledger took it."""
        if ledger_id in self.fenced:
            return False
        self.entries.setdefault(ledger_id, []).append(payload)
        return True


class Appender:
    """A ledger's writer: entries take turns to arrive, and turns to be acknowledged."""

    payload_size_max = 1_000

    def __init__(self, client: Client, ledger_id: int, versioned: Versioned) -> None:
        self.ledger_id = ledger_id
        self.on_release: Callable[[int], None] | None = None
        self._client = client
        self._versioned = versioned
        self._inbox: list[bytes] = []
        self._untold: list[AppendCallback] = []
        self._serving: asyncio.Task[None] | None = None
        self._error: BookKeeperError | None = None
        self._is_closed = False

    def push(self, payloads: Sequence[bytes], complete: AppendCallback) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise LedgerClosedError(self.ledger_id)
        self._inbox.extend(payloads)
        self._untold.append(complete)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())

    async def close(self) -> None:
        self._is_closed = True
        if self._serving is not None:
            await asyncio.wait({self._serving})
        await self._client.alive()
        bookies, ledger_id = self._client.world.bookies, self.ledger_id
        last_entry = bookies.confirmed.get(ledger_id, 0) - 1
        length = sum(map(len, bookies.entries.get(ledger_id, [])[: last_entry + 1]))

        def closed(metadata: LedgerMetadata) -> LedgerMetadata | Stop[BookKeeperError]:
            return closed_by_writer(ledger_id, metadata, last_entry, length, self._error)

        await self._client.update(ledger_id, closed)

    def abandon(self, error: BookKeeperError) -> None:
        self._fail(error)

    async def _serve(self) -> None:
        while self._inbox:
            payload = self._inbox.pop(0)
            await self._client.turns()
            await self._client.alive()
            await self._client.world.bookies.is_answering.wait()
            if self._error is not None:
                return
            if not self._client.world.bookies.store(self.ledger_id, payload):
                self._fail(LedgerFencedError(self.ledger_id))
                return
            # Stored, and it may never be known: a crash here leaves an entry nobody was told of.
            await self._client.turns()
            await self._client.alive()
            if self._error is None:
                self._acknowledge(payload)

    def _acknowledge(self, payload: bytes) -> None:
        confirmed = self._client.world.bookies.confirmed
        count = confirmed[self.ledger_id] = confirmed.get(self.ledger_id, 0) + 1
        self._untold = [complete for complete in self._untold if not complete(count - 1, None)]
        if self.on_release is not None:
            self.on_release(len(payload))

    def _fail(self, error: BookKeeperError) -> None:
        self._error = error
        self._inbox.clear()
        untold, self._untold = self._untold, []
        for complete in untold:
            complete(-1, error)


class Entries:
    """A ledger read: closed to its end, open to what is acknowledged."""

    def __init__(self, client: Client, ledger_id: int, metadata: LedgerMetadata) -> None:
        self._client = client
        self._ledger_id = ledger_id
        self._metadata = metadata

    @property
    def last_add_confirmed(self) -> int:
        if self._metadata.is_closed:
            return self._metadata.last_entry
        return self._client.world.bookies.confirmed.get(self._ledger_id, 0) - 1

    async def batches(self, first_entry: int, last_entry: int) -> AsyncGenerator[list[Entry], None]:
        stored = self._client.world.bookies.entries.get(self._ledger_id, [])
        for first in range(first_entry, last_entry + 1, 2):
            await asyncio.sleep(0)
            await self._client.metadata(self._ledger_id)
            yield [
                Entry(self._ledger_id, each, 0, memoryview(stored[each]))
                for each in range(first, min(first + 1, last_entry) + 1)
            ]

    async def tail(
        self, first_entry: int, *, timeout_s: float | None
    ) -> AsyncGenerator[list[Entry], None]:
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        while True:
            self._metadata = await self._client.metadata(self._ledger_id)
            last_entry = self.last_add_confirmed
            async for entries in self.batches(first_entry, last_entry):
                yield entries
            first_entry = max(first_entry, last_entry + 1)
            is_late = deadline_s is not None and loop.time() >= deadline_s
            if self._metadata.is_closed or is_late:
                return
            await asyncio.sleep(0)


class Client:
    """One process: a session, the log layer over it, writers and readers."""

    def __init__(self, world: TailWorld, store: MemoryStore) -> None:
        self.world = world
        self.store = store
        self.random = Hasty(world.random.getrandbits(32))
        self.is_dead = False
        self._metadata = LedgerStore(store, ROOT, random=self.random)
        self.layer = LogLayer(
            store,
            ROOT,
            fence=self.fence,
            delete_ledger=self._delete,
            clock_ms=lambda: world.now_ms,
            random=self.random,
            pause=self._pause,
        )

    def log(self, log_id: int, name: str = NAME) -> Log:
        return Log(self.layer, self, name, log_id)

    async def writer(self, log_id: int, **settings: int) -> LogWriter:
        chosen = LogWriterSettings(**{"roll_interval_ms": 0, **settings})
        return await self.log(log_id).writer(settings=chosen)

    async def collect(self, log_id: int) -> None:
        await self.layer.collector.collect(log_id)

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return (await self._metadata.read(ledger_id)).metadata

    async def turns(self) -> None:
        for _ in range(self.random.randrange(MAYBE_TURNS)):
            await asyncio.sleep(0)

    async def alive(self) -> None:
        """The process was killed: whatever runs in it stops here for ever."""
        if self.is_dead or (isinstance(self.store, DyingStore) and self.store.died.is_set()):
            await asyncio.Event().wait()

    async def update(
        self,
        ledger_id: int,
        transform: Callable[[LedgerMetadata], LedgerMetadata | Stop[BookKeeperError]],
    ) -> LedgerMetadata:
        outcome = await self._metadata.update(ledger_id, transform)
        if isinstance(outcome, Stop):
            raise outcome.reason
        return outcome.metadata

    async def fence(self, ledger_id: int) -> None:
        """Recover a ledger: fenced first, closed behind whatever was stored by then."""
        bookies = self.world.bookies
        if (await self.metadata(ledger_id)).is_closed:
            return

        if (await self.update(ledger_id, marked_in_recovery)).is_closed:
            return
        if bookies.is_undecidable:
            raise LedgerRecoveryError(ledger_id, "too few bookies answered")
        bookies.fenced.add(ledger_id)
        await self.turns()
        stored = bookies.entries.get(ledger_id, [])
        last_entry, length = len(stored) - 1, sum(map(len, stored))

        def closed(metadata: LedgerMetadata) -> LedgerMetadata | Stop[BookKeeperError]:
            return metadata if metadata.is_closed else metadata.closed(last_entry, length)

        await self.update(ledger_id, closed)

    # -- the ledgers, as the log's writers and readers see them -----------------------------------

    async def create(
        self,
        settings: LogSettings,
        *,
        password: bytes,
        custom_metadata: Mapping[str, bytes],
        extra_operations: ExtraOperations,
    ) -> Appender:
        metadata = LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            fragments=(Fragment(0, ("b0:1",)),),
            password=password,
            custom_metadata=dict(custom_metadata),
        )
        ledger_id, versioned = await self._metadata.create(
            metadata, extra_operations=extra_operations
        )
        return Appender(self, ledger_id, versioned)

    async def open(self, ledger_id: int, password: bytes) -> Entries:
        return Entries(self, ledger_id, await self.metadata(ledger_id))

    async def _delete(self, ledger_id: int) -> None:
        await self._metadata.delete(ledger_id)
        self.world.bookies.entries.pop(ledger_id, None)

    async def _pause(self, _retry: int) -> None:
        await self.turns()


class TailWorld:
    """One cluster with one log of plain values."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.tree = WatchedTree(lambda: self.now_ms)
        self.bookies = Bookies()
        self.client = Client(self, MemoryStore(self.tree))

    def another(self, fault: FaultHook | None = None, store: MemoryStore | None = None) -> Client:
        """A client in a process of its own."""
        client = Client(self, store or MemoryStore(self.tree))
        client.store.fault = fault
        return client

    async def create_log(self, settings: LogSettings | None = None) -> int:
        await initialize(self.client.store, ROOT, random=Random(1))
        return await self.client.layer.catalog.create(NAME, *settings_and_schema(settings, b""))

    async def head(self, log_id: int) -> LogHead:
        return (await self.client.layer.nodes(log_id, NAME).head()).head

    async def ledger_ids(self) -> set[int]:
        return {
            ledger_id
            async for ledger_id in LedgerStore(
                self.client.store, ROOT, random=self.random
            ).list_ids()
        }

    async def rows(self, log_id: int) -> list[bytes]:
        """What a fresh reader sees, its positions checked."""
        client = self.another()
        found: list[bytes] = []
        first_row = (await self.head(log_id)).base_row
        async for position, entry in client.log(log_id).reader():
            assert position.row == first_row + len(found)
            assert (position.ledger_id, position.entry_id) == (entry.ledger_id, entry.entry_id)
            found.append(bytes(entry.payload))
        return found

    async def open_ledgers(self) -> list[int]:
        """Ledgers whose metadata does not say CLOSED."""
        found = []
        for ledger_id in sorted(await self.ledger_ids()):
            try:
                metadata = await self.client.metadata(ledger_id)
            except NoSuchLedgerError:
                continue
            if metadata.state is LedgerState.OPEN:
                found.append(ledger_id)
        return found


def values(first: int, count: int, name: str = "v") -> list[bytes]:
    """Distinct payloads."""
    return [b"%s-%d" % (name.encode(), number) for number in range(first, first + count)]


async def until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    """Let others run until ``condition`` holds."""
    deadline = Deadline(timeout_s)
    while not condition():
        assert not deadline.has_passed, "waited in vain"
        await asyncio.sleep(0)


class WatchedTree(MemoryTree):
    """Checks after every multi that a log never has two open ledgers (C3)."""

    def multi(self, operations: Sequence[Operation]) -> None:
        super().multi(operations)
        paths = Paths(ROOT)
        opened = []
        for path in self.paths():
            node = self.node(path) if paths.ledger_id(path) is not None else None
            if node is None:
                continue
            metadata = parse_metadata(node.value, path)
            # Ledgers of Spark's tasks carry no mark here and are many.
            if metadata.state is LedgerState.OPEN and LOG_MARK in metadata.custom_metadata:
                opened.append(path)
        assert list(c3_one_open(opened)) == []


class History:
    """What writers were promised."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, Position] = {}
        self.planned: set[int] = set()
        """Ledgers of Spark's tasks: in the log only if committed, and in the commits' order."""

    def tell(self, payload: bytes, position: Position) -> None:
        assert payload not in self.acknowledged
        self.acknowledged[payload] = position

    async def append(self, writer: LogWriter, payload: bytes) -> None:
        self.tell(payload, await writer.append(payload))

    async def check(self, world: TailWorld, log_id: int) -> None:
        """Every promise is kept, nothing comes twice, each writer's rows are in its order.

        Then, once retention has passed, nothing is left but what the log needs.
        """
        rows = await world.rows(log_id)
        listed = [item.ledger_id for item in (await world.head(log_id)).ranges]
        led = [ledger_id for ledger_id in listed if ledger_id not in self.planned]
        stored = {each for each, entries in world.bookies.entries.items() if entries}
        promised = {payload: position.row for payload, position in self.acknowledged.items()}
        violations = [
            *acknowledged_in_place(promised, rows),
            *nothing_twice(rows),
            *writers_in_order(rows),
            *c1_all_nonempty_listed(stored - self.planned, led),
            *c2_listed_in_order(led),
        ]
        assert violations == []

        world.now_ms += 8 * 86_400_000
        for _ in range(2):
            await world.client.collect(log_id)
        nodes = world.client.layer.nodes(log_id)
        assert await world.ledger_ids() == set(listed), "orphans are left"
        assert await nodes.epochs() == []
        assert await nodes.garbage_epochs() == []
        assert await world.rows(log_id) == rows


class DyingStore(MemoryStore):
    """A session whose process dies at its n-th mutation (from 0), before or after it is applied."""

    def __init__(self, tree: MemoryTree, nth: int, *, is_applied: bool) -> None:
        super().__init__(tree)
        self.nth = nth
        self.is_applied = is_applied
        self.died = asyncio.Event()
        self.seen: list[str] = []
        self.fault = self._strike

    def _strike(self, operation: str, path: str) -> Fault | None:
        if self.died.is_set():
            return Fault.LOST_REQUEST
        if operation in MUTATIONS:
            self.seen.append(f"{operation} {path}")
            if len(self.seen) - 1 == self.nth:
                # Set at once: nothing more of this process reaches anybody.
                self.died.set()
                return Fault.LOST_REPLY if self.is_applied else Fault.LOST_REQUEST
        return None
