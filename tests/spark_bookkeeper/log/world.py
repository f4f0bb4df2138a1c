"""A small world for tests of logs: one shared tree, ledgers as bare nodes, faults on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from bookkeeper_metadata.errors import MetadataUnavailableError, NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.store.memory import FaultHook, MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import Create
from spark_bookkeeper.log.commits.commit import CommitSummary
from spark_bookkeeper.log.commits.jobs import Claim
from spark_bookkeeper.log.format.epoch import Epoch, Job, LedgerWritten, TaskMessage
from spark_bookkeeper.log.format.model import LedgerRange, LogSettings
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.nodes.paths import LogPaths
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.settings import RetentionSettings

T = TypeVar("T")
ROOT = "/ledgers"
DAY_MS = 86_400_000


async def create_under(claim: Claim, create: Callable[[ExtraOperations], Awaitable[T]]) -> T:
    """Create a ledger under a claim, as a task of Spark's does."""
    with claim.explain_refusals():
        return await create(claim.extra_operations)


async def settle(logs: LogLayer) -> None:
    """Wait for the fencing that claims began."""
    while logs.jobs._background:
        await asyncio.gather(*logs.jobs._background)


def message_of(
    epoch: Epoch,
    job: Job,
    partition: int = 0,
    *,
    attempt: int = 1,
    written: LedgerWritten | None = None,
    is_skipped: bool = False,
) -> TaskMessage:
    """What a task tells its driver: its ledger, no rows, or that the batch was committed before."""
    return TaskMessage(
        epoch=epoch,
        job=job,
        partition=partition,
        task_attempt_id=attempt,
        written=written,
        is_already_committed=is_skipped,
    )


@dataclass(frozen=True)
class SparkPart:
    """Spark's part in writes, over one session: drivers plan and commit, tasks claim and write."""

    logs: LogLayer
    create_ledger: Callable[[Claim], Awaitable[int]]

    async def write(
        self, epoch: Epoch, job: Job, partition: int = 0, *, attempt: int = 1, rows: int = 10
    ) -> TaskMessage:
        """One whole task attempt."""
        claim = await self.logs.jobs.claim(epoch, job, partition=partition, task_attempt_id=attempt)
        written = None
        if claim is not None:
            ledger_id = await self.create_ledger(claim)
            written = LedgerWritten(ledger_id, max(rows // 5, 1), rows, rows * 100)
        return message_of(
            epoch, job, partition, attempt=attempt, written=written, is_skipped=claim is None
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


class LogWorld:
    """One cluster: a tree, a clock that is set by hand, ledgers that are nodes below ``ROOT``."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.tree = MemoryTree(lambda: self.now_ms)
        self.tree.make_parents(f"{ROOT}/x")
        self.store = MemoryStore(self.tree)
        self.paths = LogPaths(ROOT)
        self.touched: list[int] = []
        """Ledgers that anybody tried to fence or delete."""
        self.fenced: list[int] = []
        self.deleted: list[int] = []
        self.delete_failure: BookKeeperError | None = None
        self._ledger_id = 0
        self.spark = self.spark_over(self.store)
        self.logs = self.spark.logs

    def client(
        self,
        store: MemoryStore | None = None,
        *,
        fault: FaultHook | None = None,
        retention: RetentionSettings | None = None,
    ) -> LogLayer:
        """The log layer over a session; over one of its own by default."""

        async def pause(_retry: int) -> None:
            await asyncio.sleep(0)

        return LogLayer(
            store or MemoryStore(self.tree, fault=fault),
            ROOT,
            fence=self.fence,
            delete_ledger=self.delete_ledger,
            clock_ms=lambda: self.now_ms,
            random=Random(self.random.getrandbits(32)),
            retention=retention,
            pause=pause,
        )

    def spark_over(self, store: MemoryStore) -> SparkPart:
        """Drivers and tasks over a session."""
        return SparkPart(self.client(store), lambda claim: self.create_ledger(claim, store))

    def nodes(self, log_id: int, name: str = "orders") -> LogNodes:
        return LogNodes(self.store, self.paths, log_id, name)

    async def create_log(self, name: str = "orders") -> int:
        return await self.logs.catalog.create(name, LogSettings(), b"schema")

    async def fence(self, ledger_id: int) -> None:
        self.touched.append(ledger_id)
        await asyncio.sleep(0)
        if not self.ledger_exists(ledger_id):
            raise NoSuchLedgerError(ledger_id)
        self.fenced.append(ledger_id)

    async def delete_ledger(self, ledger_id: int) -> None:
        self.touched.append(ledger_id)
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
        store: MemoryStore | None = None,
    ) -> TaskMessage:
        """One whole task attempt."""
        spark = self.spark if store is None else self.spark_over(store)
        return await spark.write(epoch, job, partition, attempt=attempt, rows=rows)

    async def append(
        self, log_id: int, job: Job, *, partitions: int = 2, is_overwrite: bool = False
    ) -> CommitSummary:
        """Plan, write, commit and sweep, without any trouble."""
        return await self.spark.append(
            log_id, job, partitions=partitions, is_overwrite=is_overwrite
        )

    async def visible(self, log_id: int) -> tuple[LedgerRange, ...]:
        return (await self.logs.view(log_id, log="orders").ranges()).ranges
