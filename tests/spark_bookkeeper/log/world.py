"""A small world for tests of logs: one shared tree, ledgers as bare nodes, faults on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError, NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import ExtraOperations, LedgerStore
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from bookkeeper_metadata.store.memory import FaultHook, MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import Create
from spark_bookkeeper.log.cleaning import optimize
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.commits.commit import CommitSummary
from spark_bookkeeper.log.commits.jobs import Claim
from spark_bookkeeper.log.format.columns import ColumnRange
from spark_bookkeeper.log.format.epoch import Epoch, Job, LedgerWritten, TaskMessage, TokenState
from spark_bookkeeper.log.format.model import LedgerRange, LogHead, LogSettings
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.reading.view import LogView
from spark_bookkeeper.log.rules import chunks, rewriting
from spark_bookkeeper.log.settings import RetentionSettings

T = TypeVar("T")
ROOT = "/ledgers"
DAY_MS = 86_400_000


async def create_under(claim: Claim, create: Callable[[ExtraOperations], Awaitable[T]]) -> T:
    """Create a ledger under a claim, as a task of Spark's does."""
    with claim.explain_refusals():
        return await create(claim.extra_operations)


def shrink_chunks(
    patch: pytest.MonkeyPatch, *, inline: int, chunk: int, refs: int, fold: int
) -> None:
    """Let few ranges fill a chunk, few chunks an index."""
    patch.setattr(chunks, "INLINE_BYTES_MAX", inline)
    patch.setattr(chunks, "CHUNK_BYTES_MAX", chunk)
    patch.setattr(chunks, "REFS_MAX", refs)
    for module in (chunks, rewriting, optimize):
        patch.setattr(module, "FOLD", fold)


async def create_metadata(ledgers: LedgerStore, claim: Claim) -> int:
    """Create the metadata of a ledger under a claim."""
    metadata = LedgerMetadata(
        ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("b1:1",)),)
    )

    async def create(extra_operations: ExtraOperations) -> int:
        return (await ledgers.create(metadata, extra_operations=extra_operations))[0]

    return await create_under(claim, create)


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


class LogSession:
    """One session, and what drivers, tasks and collectors do over it with the log ``orders``."""

    def __init__(
        self, logs: LogLayer, create_ledger: Callable[[Claim], Awaitable[int]], log_id: int = 0
    ) -> None:
        self.logs = logs
        self.create_ledger = create_ledger
        self.log_id = log_id
        """Of the log ``orders`` that was created last."""

    async def create_log(self, schema: bytes = b"schema") -> int:
        self.log_id = await self.logs.catalog.create("orders", LogSettings(), schema)
        return self.log_id

    # -- what is there -----------------------------------------------------------------------------

    def nodes(self) -> LogNodes:
        return self.logs.nodes(self.log_id, "orders")

    def view(self) -> LogView:
        return self.logs.view(self.log_id, "orders")

    async def head(self) -> LogHead:
        return (await self.nodes().head()).head

    async def token_state(self, epoch: Epoch) -> TokenState:
        found = await self.nodes().token(epoch.number)
        assert found is not None
        return found.token.state

    async def visible(self) -> tuple[LedgerRange, ...]:
        return (await self.view().ranges()).ranges

    async def visible_ledgers(self) -> set[int]:
        return {item.ledger_id for item in await self.visible()}

    async def rows(self) -> int:
        """How many are visible."""
        return sum(item.rows for item in await self.visible())

    # -- what is done ------------------------------------------------------------------------------

    async def plan(self, job: Job | None = None, **how: Any) -> Epoch:
        return await self.logs.jobs.plan(self.log_id, "orders", job=job, **how)

    async def write(
        self, epoch: Epoch, job: Job, partition: int = 0, *, attempt: int = 1
    ) -> TaskMessage:
        """One whole task attempt, of ten rows."""
        claim = await self.logs.jobs.claim(epoch, job, partition=partition, task_attempt_id=attempt)
        if claim is None:
            return message_of(epoch, job, partition, attempt=attempt, is_skipped=True)
        written = LedgerWritten(await self.create_ledger(claim), 2, 10, 1_000, epoch.schema_id)
        return message_of(epoch, job, partition, attempt=attempt, written=written)

    async def plan_and_write(self, job: Job, partitions: int = 2, **how: Any) -> list[TaskMessage]:
        """The messages of one whole write."""
        epoch = await self.plan(job, **how)
        return [await self.write(epoch, job, index) for index in range(partitions)]

    async def commit(
        self, messages: Sequence[TaskMessage | None], *, is_swept: bool = False, **how: Any
    ) -> CommitSummary:
        summary = await self.logs.committer.commit(messages, log="orders", **how)
        if is_swept:
            await self.logs.sweeper.after_commit(summary)
        return summary

    async def abort(self, messages: Sequence[TaskMessage | None]) -> SweepReport:
        return await self.logs.sweeper.abort(messages, log="orders")

    async def append(self, job: Job, partitions: int = 2, **how: Any) -> CommitSummary:
        """Plan, write, commit and sweep, without any trouble."""
        return await self.commit(await self.plan_and_write(job, partitions, **how), is_swept=True)

    async def append_many(self, count: int, columns: int = 0, *, name: str = "many") -> None:
        """One commit of ``count`` ledgers of ten rows that exist in the log's metadata only."""
        job = Job.of_batch(name)
        epoch = await self.plan(job)
        bounds = tuple(ColumnRange(f"l_column_{index}", 1, 10**9) for index in range(columns))
        written = (LedgerWritten(10**9 + each, 3, 10, 1_000, 0, bounds) for each in range(count))
        await self.commit(
            [message_of(epoch, job, at, attempt=at, written=one) for at, one in enumerate(written)]
        )

    async def collect(self, *, is_dry_run: bool = False) -> SweepReport:
        return await self.logs.collector.collect(self.log_id, is_dry_run=is_dry_run)


class LogWorld(LogSession):
    """One cluster: a tree, a clock that is set by hand, ledgers that are nodes below ``ROOT``; and
    a session of its own."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.tree = MemoryTree(lambda: self.now_ms)
        self.tree.make_parents(f"{ROOT}/x")
        self.store = MemoryStore(self.tree)
        self.touched: list[int] = []
        """Ledgers that anybody tried to fence or delete."""
        self.fenced: list[int] = []
        self.delete_failure: BookKeeperError | None = None
        self._ledger_id = 0
        super().__init__(self.client(self.store), partial(self._create_ledger, self.store))

    @classmethod
    async def with_log(cls, seed: int = 0, schema: bytes = b"schema") -> LogWorld:
        world = cls(seed)
        await world.create_log(schema)
        return world

    def client(
        self,
        store: MemoryStore | None = None,
        *,
        fault: FaultHook | None = None,
        retention: RetentionSettings | None = None,
        ahead_ms: int = 0,
    ) -> LogLayer:
        """The log layer over a session; over one of its own by default. Its host's clock may be ahead."""

        async def pause(_retry: int) -> None:
            await asyncio.sleep(0)

        return LogLayer(
            store or MemoryStore(self.tree, fault=fault),
            ROOT,
            fence=self.fence,
            delete_ledger=self.delete_ledger,
            clock_ms=lambda: self.now_ms + ahead_ms,
            random=Random(self.random.getrandbits(32)),
            retention=retention,
            pause=pause,
        )

    def session(
        self, store: MemoryStore | None = None, *, fault: FaultHook | None = None
    ) -> LogSession:
        """Another session."""
        store = store or MemoryStore(self.tree, fault=fault)
        return LogSession(self.client(store), partial(self._create_ledger, store), self.log_id)

    async def collect_after(self, passed_ms: int) -> SweepReport:
        """Collect when that much time has passed."""
        self.now_ms += passed_ms
        return await self.collect()

    async def fence(self, ledger_id: int) -> None:
        await self._touch(ledger_id)
        self.fenced.append(ledger_id)

    async def delete_ledger(self, ledger_id: int) -> None:
        await self._touch(ledger_id, self.delete_failure)
        self.tree.delete(f"{ROOT}/L{ledger_id}", None)

    async def _touch(self, ledger_id: int, failure: BookKeeperError | None = None) -> None:
        self.touched.append(ledger_id)
        await asyncio.sleep(0)
        if failure is not None:
            raise failure
        if self.tree.node(f"{ROOT}/L{ledger_id}", 0) is None:
            raise NoSuchLedgerError(ledger_id)

    def ledgers(self) -> set[int]:
        """Every ledger that exists."""
        return {int(name[1:]) for name in self.tree.children(ROOT) or [] if name[0] == "L"}

    def chunks(self) -> list[str]:
        """Names of the chunks that exist."""
        return self.tree.children(self.nodes().tree.chunks) or []

    async def _create_ledger(self, store: MemoryStore, claim: Claim) -> int:
        """What a task does: a ledger under its claim, a new id after every lost reply."""

        async def create(extra_operations: ExtraOperations) -> int:
            while True:
                self._ledger_id += 1
                ledger_id = self._ledger_id
                operations = [Create(f"{ROOT}/L{ledger_id}", b""), *extra_operations(ledger_id)]
                try:
                    await store.multi(operations)
                    return ledger_id
                except MetadataUnavailableError:
                    continue

        return await create_under(claim, create)
