"""A small world for tests of logs: one shared tree, ledgers as bare nodes, faults on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

from bookkeeper_metadata.errors import MetadataUnavailableError, NoSuchLedgerError
from bookkeeper_metadata.foundation.backoff import Pause, jittered_pause
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import Create, Node, Operation, StoreConflict
from spark_bookkeeper.log.catalog import Catalog
from spark_bookkeeper.log.cleaning.collect import Collector
from spark_bookkeeper.log.cleaning.deletion import LogDeletion
from spark_bookkeeper.log.cleaning.sweep import LedgerAction, Sweeper
from spark_bookkeeper.log.commits.commit import CommitSummary, Committer
from spark_bookkeeper.log.commits.jobs import Claim, Jobs
from spark_bookkeeper.log.format.epoch import Epoch, Job, LedgerWritten, TaskMessage
from spark_bookkeeper.log.format.model import LedgerRange, LogSettings
from spark_bookkeeper.log.nodes.paths import LogPaths
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.reading.view import LogView
from spark_bookkeeper.log.settings import RetentionSettings

T = TypeVar("T")
ROOT = "/ledgers"
DAY_MS = 86_400_000
MUTATIONS = ("create", "put", "delete", "multi", "sequence")


class Logs:
    """The parts of the log layer, wired to one session of the store."""

    def __init__(
        self,
        store: MetadataStore,
        ledgers_root: str,
        *,
        clock_ms: Callable[[], int],
        random: Random,
        fence: LedgerAction,
        delete_ledger: LedgerAction,
        settings: RetentionSettings | None = None,
        pause: Pause | None = None,
    ) -> None:
        self._store = store
        self._paths = LogPaths(ledgers_root)
        self.sweeper = Sweeper(
            store,
            self._paths,
            clock_ms=clock_ms,
            fence=fence,
            delete_ledger=delete_ledger,
            settings=settings or RetentionSettings(),
        )
        self.catalog = Catalog(
            store, self._paths, random=random, deletion=LogDeletion(self.sweeper)
        )
        self.jobs = Jobs(store, self._paths, clock_ms=clock_ms, fence=fence)
        self.committer = Committer(
            store, self._paths, clock_ms=clock_ms, pause=pause or jittered_pause(random)
        )
        self.collector = Collector(self.sweeper)

    def view(self, log_id: int, *, log: str) -> LogView:
        """Reads of one log."""
        return LogView(self._store, self._paths, log_id, log=log)

    async def settle(self) -> None:
        """Wait for the fencing that claims began."""
        while self.jobs._background:
            await asyncio.gather(*self.jobs._background)

    async def close(self) -> None:
        """End what runs in the background; the store stays open."""
        await end_tasks(self.jobs._background)


async def create_under(claim: Claim, create: Callable[[ExtraOperations], Awaitable[T]]) -> T:
    """Create a ledger under a claim, as a task of Spark's does."""
    with claim.explain_refusals():
        return await create(claim.extra_operations)


class UnrulyStore(MemoryStore):
    """A session whose operations take seeded numbers of turns, and whose multis may come late."""

    def __init__(self, tree: MemoryTree, random: Random, *, late_rate: float = 0.0) -> None:
        super().__init__(tree)
        self.random = random
        self.late_rate = late_rate
        self.late: set[asyncio.Task[None]] = set()

    async def _turns(self, turns_max: int = 6) -> None:
        for _ in range(self.random.randrange(turns_max)):
            await asyncio.sleep(0)

    async def get(self, path: str) -> Node | None:
        await self._turns()
        return await super().get(path)

    async def children(self, path: str) -> list[str] | None:
        await self._turns()
        return await super().children(path)

    async def create(self, path: str, value: bytes, *, make_parents: bool = False) -> None:
        await self._turns()
        await super().create(path, value, make_parents=make_parents)

    async def put(self, path: str, value: bytes, expected_version: int) -> int:
        await self._turns()
        return await super().put(path, value, expected_version)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await self._turns()
        await super().delete(path, expected_version)

    async def multi(self, operations: Sequence[Operation]) -> None:
        await self._turns()
        if self.random.random() < self.late_rate:
            task = asyncio.get_running_loop().create_task(self._later(list(operations)))
            self.late.add(task)
            task.add_done_callback(self.late.discard)
            raise MetadataUnavailableError(self.service, "reply lost, request under way")
        await super().multi(operations)

    async def _later(self, operations: list[Operation]) -> None:
        await self._turns(60)
        try:
            self.tree.multi(operations)
        except StoreConflict:
            return  # Refused late; nobody listens any more.


class World:
    """One cluster: a tree, a clock that is set by hand, ledgers that are nodes below ``ROOT``."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.tree = MemoryTree(lambda: self.now_ms)
        self.tree.make_parents(f"{ROOT}/x")
        self.store = MemoryStore(self.tree)
        self.paths = LogPaths(ROOT)
        self.fenced: list[int] = []
        self.deleted: list[int] = []
        self.delete_failure: BookKeeperError | None = None
        self._ledger_id = 0
        self.logs = self.client(self.store)

    def client(self, store: MemoryStore) -> Logs:
        """The log layer over a session."""

        async def pause(_retry: int) -> None:
            await asyncio.sleep(0)

        return Logs(
            store,
            ROOT,
            clock_ms=lambda: self.now_ms,
            random=Random(self.random.getrandbits(32)),
            fence=self.fence,
            delete_ledger=self.delete_ledger,
            settings=RetentionSettings(),
            pause=pause,
        )

    def nodes(self, log_id: int, name: str = "orders") -> LogNodes:
        return LogNodes(self.store, self.paths, log_id, name)

    async def create_log(self, name: str = "orders") -> int:
        return await self.logs.catalog.create(name, LogSettings(), b"schema")

    async def fence(self, ledger_id: int) -> None:
        await asyncio.sleep(0)
        if not self.ledger_exists(ledger_id):
            raise NoSuchLedgerError(ledger_id)
        self.fenced.append(ledger_id)

    async def delete_ledger(self, ledger_id: int) -> None:
        await asyncio.sleep(0)
        if self.delete_failure is not None:
            raise self.delete_failure
        if not self.ledger_exists(ledger_id):
            raise NoSuchLedgerError(ledger_id)
        self.tree.delete(f"{ROOT}/L{ledger_id}", None)
        self.deleted.append(ledger_id)

    def ledger_exists(self, ledger_id: int) -> bool:
        return self.tree.node(f"{ROOT}/L{ledger_id}", 0) is not None

    def ledgers(self) -> set[int]:
        """Every ledger that exists."""
        return {int(name[1:]) for name in self.tree.children(ROOT) or [] if name[0] == "L"}

    async def create_ledger(self, claim: Claim, store: MemoryStore | None = None) -> int:
        """What a task does: a ledger under its claim, a new id after every lost reply."""
        session = store or self.store

        async def create(extra_operations: ExtraOperations) -> int:
            while True:
                self._ledger_id += 1
                ledger_id = self._ledger_id
                operations = [Create(f"{ROOT}/L{ledger_id}", b""), *extra_operations(ledger_id)]
                try:
                    await session.multi(operations)
                    return ledger_id
                except MetadataUnavailableError:
                    continue

        return await create_under(claim, create)

    async def write(
        self,
        epoch: Epoch,
        job: Job,
        partition: int = 0,
        *,
        attempt: int = 1,
        rows: int = 10,
        logs: Logs | None = None,
        store: MemoryStore | None = None,
    ) -> TaskMessage:
        """One whole task attempt."""
        used = logs or self.logs
        claim = await used.jobs.claim(epoch, job, partition=partition, task_attempt_id=attempt)
        if claim is None:
            return TaskMessage(
                epoch=epoch,
                job=job,
                partition=partition,
                task_attempt_id=attempt,
                is_already_committed=True,
            )
        ledger_id = await self.create_ledger(claim, store)
        written = LedgerWritten(ledger_id, max(rows // 5, 1), rows, rows * 100)
        return TaskMessage(
            epoch=epoch, job=job, partition=partition, task_attempt_id=attempt, written=written
        )

    async def append(
        self, log_id: int, job: Job, *, partitions: int = 2, is_overwrite: bool = False
    ) -> CommitSummary:
        """Plan, write, commit and sweep, without any trouble."""
        epoch = await self.logs.jobs.plan(log_id, "orders", job=job, is_overwrite=is_overwrite)
        messages = [await self.write(epoch, job, index) for index in range(partitions)]
        summary = await self.logs.committer.commit(messages, log="orders")
        await self.logs.sweeper.after_commit(summary)
        return summary

    async def visible(self, log_id: int) -> tuple[LedgerRange, ...]:
        return (await self.logs.view(log_id, log="orders").ranges()).ranges


class LoseNth:
    """Loses request or reply of the n-th mutation (from 0) of a session, nothing else."""

    def __init__(self, nth: int, fault: Fault) -> None:
        self.nth = nth
        self.fault = fault
        self.seen: list[str] = []

    def __call__(self, operation: str, path: str) -> Fault | None:
        if operation not in MUTATIONS:
            return None
        self.seen.append(f"{operation} {path}")
        return self.fault if len(self.seen) - 1 == self.nth else None

    @property
    def has_struck(self) -> bool:
        return len(self.seen) > self.nth


def losing_at_random(random: Random, rate: float) -> Callable[[str, str], Fault | None]:
    """Faults on any operation at ``rate``, half before and half after it was applied."""

    def fault(_operation: str, _path: str) -> Fault | None:
        if random.random() >= rate:
            return None
        return random.choice((Fault.LOST_REQUEST, Fault.LOST_REPLY))

    return fault
