"""A world for writers and readers of logs: many processes, one log, crashes.

One :class:`TailWorld` has a clock and what bookies store; every :class:`Client` is a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerState
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.serde import parse_metadata
from bookkeeper_metadata.store.memory import FaultHook, MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import Operation
from spark_bookkeeper.ledger.client import LOG_MARK
from spark_bookkeeper.log.format.model import LogHead, LogSettings
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.format.raw import settings_and_schema
from spark_bookkeeper.log.handle import Log
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.reading.reader import LogReader
from spark_bookkeeper.log.settings import LogWriterSettings
from spark_bookkeeper.log.writing.writer import LogWriter
from tests.doubles.ledgers import InMemoryLedgers, SharedBookies
from tests.doubles.waits import until
from tests.spark_bookkeeper.log import chain_checkers as checkers
from tests.spark_bookkeeper.log.world import DAY_MS, ROOT

NAME = "events"
FOREVER = 10**9


class Hasty(Random):
    """Draws as ever but backs off for no time."""

    def randint(self, a: int, b: int) -> int:
        return a


class Client(InMemoryLedgers):
    """One process: a session, ledgers and the log layer over it, writers and readers."""

    def __init__(self, world: TailWorld, store: MemoryStore) -> None:
        super().__init__(store, ROOT, world.bookies, Hasty(world.random.getrandbits(32)))
        self.world = world
        self.layer = LogLayer(
            store,
            ROOT,
            fence=self.fence,
            delete_ledger=self.delete,
            clock_ms=lambda: world.now_ms,
            random=self.random,
            pause=self._pause,
        )

    def log(self) -> Log:
        return Log(self.layer, self, NAME, self.world.log_id)

    async def writer(self, **settings: int) -> LogWriter:
        chosen = LogWriterSettings(**{"roll_interval_ms": 0, **settings})
        return await self.log().writer(settings=chosen)

    async def collect(self) -> None:
        await self.layer.collector.collect(self.world.log_id)

    async def _pause(self, _retry: int) -> None:
        await self.turns()


class TailWorld:
    """One cluster with one log of plain values."""

    log_id: int

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.tree = WatchedTree(lambda: self.now_ms)
        self.bookies = SharedBookies()
        self.client = Client(self, MemoryStore(self.tree))

    def nodes(self) -> LogNodes:
        return self.client.layer.nodes(self.log_id, NAME)

    def another(self, fault: FaultHook | None = None, store: MemoryStore | None = None) -> Client:
        """A client in a process of its own."""
        client = Client(self, store or MemoryStore(self.tree))
        client.store.fault = fault
        return client

    @classmethod
    async def with_log(cls, seed: int = 0, settings: LogSettings | None = None) -> TailWorld:
        world = cls(seed)
        await initialize(world.client.store, ROOT, random=Random(1))
        chosen = settings_and_schema(settings, b"")
        world.log_id = await world.client.layer.catalog.create(NAME, *chosen)
        return world

    async def head(self) -> LogHead:
        return (await self.nodes().head()).head

    async def ledger_ids(self) -> set[int]:
        ledgers = LedgerStore(self.client.store, ROOT, random=self.random)
        return {ledger_id async for ledger_id in ledgers.list_ids()}

    async def rows(self) -> list[bytes]:
        """What a fresh reader sees, its positions checked."""
        found: list[bytes] = []
        first_row = (await self.head()).base_row
        async for position, entry in self.another().log().reader():
            assert position.row == first_row + len(found)
            assert (position.ledger_id, position.entry_id) == (entry.ledger_id, entry.entry_id)
            found.append(bytes(entry.payload))
        return found


def values(first: int, count: int, name: str = "v") -> list[bytes]:
    """Distinct payloads."""
    return [b"%s-%d" % (name.encode(), number) for number in range(first, first + count)]


class Following:
    """A reader that goes on in the background."""

    def __init__(self, reader: LogReader) -> None:
        self.reader = reader
        self.rows: list[bytes] = []
        self.positions: list[Position] = []
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for position, entry in self.reader:
            self.positions.append(position)
            self.rows.append(bytes(entry.payload))

    async def has(self, count: int) -> None:
        await until(lambda: len(self.rows) >= count or self.task.done())
        if self.task.done():
            self.task.result()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class WatchedTree(MemoryTree):
    """Checks after every multi that a log never has two open ledgers (C3)."""

    def multi(self, operations: Sequence[Operation]) -> None:
        super().multi(operations)
        assert list(checkers.c3_one_open(self.open_ledgers())) == []

    def open_ledgers(self) -> list[str]:
        """Paths of the ledgers of logs whose metadata says OPEN."""
        paths, opened = Paths(ROOT), []
        for path in self.paths():
            node = self.node(path) if paths.ledger_id(path) is not None else None
            if node is None:
                continue
            metadata = parse_metadata(node.value, path)
            # Ledgers of Spark's tasks carry no mark here and are many.
            if metadata.state is LedgerState.OPEN and LOG_MARK in metadata.custom_metadata:
                opened.append(path)
        return opened


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

    async def check(self, world: TailWorld) -> None:
        """Every promise is kept, nothing comes twice, each writer's rows are in its order.

        Then, once retention has passed, nothing is left but what the log needs.
        """
        rows = await world.rows()
        listed = [item.ledger_id for item in (await world.head()).ranges]
        led = [ledger_id for ledger_id in listed if ledger_id not in self.planned]
        stored = {each for each, ledger in world.bookies.ledgers.items() if ledger.payloads}
        promised = {payload: position.row for payload, position in self.acknowledged.items()}
        violations = [
            *checkers.acknowledged_in_place(promised, rows),
            *checkers.nothing_twice(rows),
            *checkers.writers_in_order(rows),
            *checkers.c1_all_nonempty_listed(stored - self.planned, led),
            *checkers.c2_listed_in_order(led),
        ]
        assert violations == []

        world.now_ms += 8 * DAY_MS
        for _ in range(2):
            await world.client.collect()
        nodes = world.nodes()
        assert await world.ledger_ids() == set(listed), "orphans are left"
        assert await nodes.epochs() == []
        assert await nodes.garbage_epochs() == []
        assert await world.rows() == rows
