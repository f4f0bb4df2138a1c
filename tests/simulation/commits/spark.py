"""Spark as the connector meets it: drivers that plan, tasks that are run again and twice, commits.

One :class:`Write` is what Spark does with one planned write, from the plan to commit or abort; a
:class:`Query` runs one write per batch from a checkpoint, through crashes, restarts, a second driver
and checkpoints that were rolled back. What Spark promises is kept: a batch planned again has the
same rows (but maybe other partitions), taskAttemptIds grow, a batch follows only one that is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.log.commits.commit import CommitOutcome, CommitSummary
from spark_bookkeeper.log.errors import LogHasWriterError
from spark_bookkeeper.log.format.epoch import Epoch, Job, LedgerWritten, PlannedSchema, TaskMessage
from spark_bookkeeper.log.nodes.reads import HeadAt
from tests.simulation.commits.history import (
    Actor,
    BatchDone,
    CommitCalled,
    CommitEnded,
    JobBegun,
    Planned,
    Swept,
)
from tests.simulation.commits.swarm import Swarm
from tests.simulation.commits.world import LOG, Process, ProcessDied, World

ATTEMPTS_MAX = 4
"""Attempts of a task one after the other before its stage fails (spark.task.maxFailures)."""
FENCE_PREDECESSORS_S = 5.0
BATCH_TRIES_MAX = 500


class TaskFailed(Exception):
    """A stage failed: Spark aborts the write."""


@dataclass(frozen=True, slots=True)
class Order:
    """One write as its driver knows it, the same at each replay."""

    key: str
    """Names the job in the history; two queries under one application id differ in it."""
    job: Job
    rows: tuple[str, ...]
    is_overwrite: bool = False
    column: str = ""
    """What it adds to the log's schema, if anything."""


def covers(newer: bytes, older: bytes) -> bool:
    """Whether a schema has all columns of another; schemas here are names with commas between."""
    return set(older.split(b",")) <= set(newer.split(b","))


class Write:
    """One driver's try at one order."""

    def __init__(self, world: World, swarm: Swarm, order: Order, name: str) -> None:
        self.world = world
        self.swarm = swarm
        self.order = order
        self.name = name
        self.driver = world.process(Actor(f"driver {name}", "driver", order.key))
        self.stream = self.driver.stream
        self.others: list[Process] = [self.driver]
        """What dies with the driver."""
        self._attempts = 0

    async def run(self) -> CommitOutcome:
        """All of it.

        Raises:
            BookKeeperError, TaskFailed: it failed, as far as the driver knows.
            ProcessDied: the driver crashed.
        """
        if self.stream.one_in(self.swarm.driver_dies):
            delay_us = 1_000 * self.stream.below(400)
            self.world.loop.after(delay_us, self._die)
        return await self.driver.run(self._drive())

    async def finish(self) -> bool:
        """Run all of it; returns whether it succeeded, so that Spark never runs it again."""
        history = self.world.history
        try:
            await self.run()
        except (BookKeeperError, TaskFailed, ProcessDied) as failed:
            history.note(f"{self.name} failed: {failed!r}")
            return False
        history.record(BatchDone(self.order.key))
        return True

    def _die(self) -> None:
        for process in self.others:
            process.kill_in(0)

    async def _drive(self) -> CommitOutcome:
        self.epoch = await self.plan()
        messages = await self._stage()
        return await self.commit(messages)

    async def plan(self) -> Epoch:
        """Draw the epoch; a writer outside Spark is taken over, or waited for."""
        order, jobs = self.order, self.driver.layer.jobs
        job = None if order.job.txn is not None and order.job.txn.is_stream else order.job
        found, schema = await self._judged()
        try:
            epoch = await jobs.plan(
                self.world.log_id,
                LOG,
                job=job,
                is_overwrite=order.is_overwrite,
                schema=schema,
                found=found,
            )
        except LogHasWriterError:
            self.world.history.marks["plan met a writer"] += 1
            if self.stream.one_in(self.swarm.takes_over):
                await self.driver.tail().close()
            raise
        self.epoch = epoch
        actor = replace(self.driver.actor, epoch=epoch.number)
        self.world.history.record(Planned(actor, epoch.number, epoch.overwritten))
        return epoch

    async def _judged(self) -> tuple[HeadAt | None, PlannedSchema | None]:
        """The log's head, and its newest schema with the order's column; none for no column."""
        column = self.order.column
        if not column:
            return None, None
        nodes = self.driver.nodes()
        await nodes.sync()
        found = await nodes.head()
        schema_id = found.head.schema_id
        newest = await nodes.schema(schema_id)
        assert newest is not None, "a log's schemas stay"
        known = newest.decode().split(",")
        evolved = None if column in known else f"{newest.decode()},{column}".encode()
        return found, PlannedSchema(schema_id, evolved)

    # -- tasks -----------------------------------------------------------------------------------

    async def _stage(self) -> list[TaskMessage | None]:
        """Run all tasks; a partition nobody could finish has no message."""
        count = 1 + self.stream.below(3)
        rows = self.order.rows
        parts = [rows[index::count] for index in range(count)]
        found = await asyncio.gather(*(self._partition(i, part) for i, part in enumerate(parts)))
        if None not in found:
            if self.stream.one_in(self.swarm.continuous):
                self.world.history.marks["commit called without a message"] += 1
                return [None, *found[1:]]
            return list(found)
        await self.abort(found)
        raise TaskFailed(self.name)

    async def _partition(self, index: int, rows: Sequence[str]) -> TaskMessage | None:
        message = await self._attempts_at(index, rows)
        if message is not None and self.stream.one_in(self.swarm.stage_retry):
            self.world.history.marks["stage run again"] += 1
            return await self._attempts_at(index, rows)
        return message

    async def _attempts_at(self, index: int, rows: Sequence[str]) -> TaskMessage | None:
        """The first attempt to finish; a copy may run beside it, and goes on when it has lost."""
        copies = [asyncio.ensure_future(self._try(index, rows, 0))]
        if self.stream.one_in(self.swarm.speculation):
            self.world.history.marks["task run twice at once"] += 1
            copies.append(asyncio.ensure_future(self._try(index, rows, self.stream.below(30))))
        done, pending = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        first = next(copy for copy in copies if copy in done).result()
        if first is None and pending:
            return await pending.pop()
        return first

    async def _try(self, index: int, rows: Sequence[str], delay_ms: int) -> TaskMessage | None:
        await asyncio.sleep(delay_ms / 1000)
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self.attempt(index, rows)
            except (BookKeeperError, ProcessDied) as failed:
                self.world.history.note(f"task failed: {failed!r}")
        return None

    async def attempt(self, partition: int, rows: Sequence[str]) -> TaskMessage:
        """One task attempt, in a process of its own that may outlive everybody who waits for it."""
        self._attempts += 1
        number = self._attempts
        name = f"task {self.name} p{partition} a{number}"
        actor = Actor(name, "task", self.order.key, self.epoch.number, partition, number)
        task = self.world.process(actor)
        if task.stream.one_in(self.swarm.task_dies):
            task.kill_in(1_000 * task.stream.below(60))
        return await task.run(self._attempt(task, rows))

    async def _attempt(self, task: Process, rows: Sequence[str]) -> TaskMessage:
        epoch, job, stream = self.epoch, self.order.job, task.stream
        partition, number = task.actor.partition, task.actor.task_attempt_id
        if stream.one_in(self.swarm.task_late):
            await asyncio.sleep(0.01 * stream.below(200))
        message = TaskMessage(epoch=epoch, job=job, partition=partition, task_attempt_id=number)
        if not rows:
            return message
        jobs, ledgers = task.layer.jobs, self.world.ledgers
        claim = await jobs.claim(epoch, job, partition=partition, task_attempt_id=number)
        if claim is None:
            self.world.history.marks["task found its transaction stored"] += 1
            return replace(message, is_already_committed=True)
        with claim.explain_refusals():
            ledger = await ledgers.create(task.store, claim.extra_operations)
        await ledgers.append(ledger, rows)
        if stream.one_in(self.swarm.task_late):
            await asyncio.sleep(0.01 * stream.below(100))
        await ledgers.close(ledger)
        try:
            await asyncio.wait_for(jobs.fence_predecessors(claim), FENCE_PREDECESSORS_S)
        except (BookKeeperError, TimeoutError):
            self.world.history.marks["predecessors not fenced"] += 1
        count = len(rows)
        written = LedgerWritten(ledger.ledger_id, count - 1, count, 100 * count, epoch.schema_id)
        return replace(message, written=written)

    # -- the driver's other processes ------------------------------------------------------------

    async def commit(self, messages: Sequence[TaskMessage | None]) -> CommitOutcome:
        """Commit, sweep; or abort, as Spark does after a failed commit."""
        worker = self.worker("commit")
        if self.stream.one_in(self.swarm.commit_dies):
            worker.kill_in(1_000 * self.stream.below(60))
        try:
            return await worker.run(self._commit(worker, messages))
        except (BookKeeperError, ProcessDied):
            await self.abort(messages)
            raise

    async def _commit(
        self, worker: Process, messages: Sequence[TaskMessage | None]
    ) -> CommitOutcome:
        summary = await self.commit_only(worker, messages)
        if not self.stream.one_in(self.swarm.sweep_forgotten):
            await self.sweep(worker, summary)
        return summary.outcome

    async def sweep(self, worker: Process, summary: CommitSummary) -> None:
        """Clean up after the commit, and note what is left if nothing got lost."""
        observer = self.world.observer
        before = observer.live_siblings(self.epoch.number)
        await worker.layer.sweeper.after_commit(summary)
        if self.swarm.is_sound:
            still = set(observer.live_siblings(self.epoch.number)) & set(before)
            self.world.history.record(Swept(worker.actor, tuple(sorted(still))))

    async def commit_only(
        self, worker: Process, messages: Sequence[TaskMessage | None]
    ) -> CommitSummary:
        """Commit and note what the driver is told."""
        history, actor = self.world.history, worker.actor
        written = [message.written for message in messages if message is not None]
        history.record(
            CommitCalled(
                actor,
                self.epoch.number,
                self.order.key,
                tuple(each.ledger_id for each in written if each is not None),
                None not in messages,
                self.world.observer.is_stored(self.order.job.txn),
            )
        )
        told = (actor, self.epoch.number, self.order.key)
        try:
            summary = await worker.layer.committer.commit(messages, log=LOG, covers=covers)
        except BookKeeperError as error:
            observer = self.world.observer
            truth = observer.token(self.epoch.number), observer.is_stored(self.order.job.txn)
            history.record(CommitEnded(*told, type(error).__name__, error.definite, *truth))
            history.marks[f"commit ended by {type(error).__name__}"] += 1
            raise
        history.record(CommitEnded(*told, summary.outcome.name))
        history.marks[f"commit ended {summary.outcome.name}"] += 1
        return summary

    async def abort(self, messages: Sequence[TaskMessage | None]) -> None:
        """What Spark does when anything failed, also if the commit may have happened."""
        if self.stream.one_in(self.swarm.abort_forgotten):
            return
        self.world.history.marks["aborted"] += 1
        worker = self.worker("abort")
        await worker.run(worker.layer.sweeper.abort(messages, log=LOG))

    def worker(self, kind: str) -> Process:
        """Commit and abort run in a Python process of their own."""
        actor = Actor(f"{kind} {self.name}", kind, self.order.key, self.epoch.number)
        worker = self.world.process(actor)
        self.others.append(worker)
        return worker


class Query:
    """One application that writes batch after batch from a checkpoint."""

    def __init__(self, world: World, swarm: Swarm, name: str, orders: Sequence[Order]) -> None:
        self.world = world
        self.swarm = swarm
        self.name = name
        self.orders = orders
        self.done = 0
        """Batches the checkpoint knows as done."""
        self.stream = world.choices.stream(f"query {name}")
        self._runs = 0
        for order in orders:
            world.history.record(JobBegun(order.key, order.rows, order.column))

    async def run(self) -> None:
        """Run until every batch is done."""
        twins: list[asyncio.Task[None]] = []
        tries = 0
        while self.done < len(self.orders):
            tries += 1
            if tries > BATCH_TRIES_MAX:
                raise TimeoutError(f"{self.name} makes no progress at batch {self.done}")
            if self.stream.one_in(self.swarm.two_drivers):
                self.world.history.marks["two drivers"] += 1
                twins.append(asyncio.ensure_future(self._incarnation(self.done)))
            first = self.done
            if first and self.stream.one_in(self.swarm.rolled_back):
                self.world.history.marks["checkpoint rolled back"] += 1
                first -= 1 + self.stream.below(min(first, 2))
            await self._incarnation(first)
            await asyncio.sleep(0.01 * (1 + self.stream.below(20)))
        await asyncio.gather(*twins)

    async def _incarnation(self, first: int) -> None:
        """One start of the query, from its batch ``first``, until it fails or is through."""
        for batch in range(first, len(self.orders)):
            self._runs += 1
            name = f"{self.name}.{batch}#{self._runs}"
            if not await Write(self.world, self.swarm, self.orders[batch], name).finish():
                return
            self.done = max(self.done, batch + 1)
            await asyncio.sleep(0.001 * (1 + self.stream.below(40)))


async def write_once(world: World, swarm: Swarm, order: Order, name: str) -> None:
    """A batch write that nobody repeats."""
    world.history.record(JobBegun(order.key, order.rows, order.column))
    await Write(world, swarm, order, name).finish()
