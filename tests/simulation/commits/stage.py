"""The stage of a directed schedule: writes in named steps, holds between them, nothing by chance."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.log.format.epoch import Job, TaskMessage
from tests.simulation.commits.history import Actor, JobBegun
from tests.simulation.commits.script import Hold
from tests.simulation.commits.spark import Order, Write
from tests.simulation.commits.swarm import Swarm
from tests.simulation.commits.world import Process, World

PATIENCE_S = 3.0
"""Virtual time a hold is waited for; a mutant may never come there."""


@dataclass(frozen=True, slots=True)
class Directed:
    """One schedule, played the same way every time."""

    clause: str
    """What must hold, in the words of the protocol."""
    play: Callable[[Stage], Awaitable[None]]
    inline_bytes: int
    """Ranges a head holds, in bytes; 1: every commit writes chunks."""


class Stage:
    """A world in which only what is asked for happens."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.script = world.script
        self.begun: list[asyncio.Task[Any]] = []
        self._jobs: set[str] = set()

    def write(
        self,
        name: str,
        job: Job,
        rows: Sequence[str],
        *,
        is_overwrite: bool = False,
        column: str = "",
    ) -> Write:
        """A write that is run step by step; two of the same job are two drivers at it."""
        txn = job.txn
        key = job.job_id if txn is None else f"{txn.query_id}/{txn.version}"
        order = Order(key, job, tuple(rows), is_overwrite, column)
        if key not in self._jobs:
            self._jobs.add(key)
            self.world.history.record(JobBegun(key, order.rows, column))
        return Write(self.world, Swarm(), order, name)

    async def planned(self, name: str, job: Job, rows: Sequence[str], **how: Any) -> Write:
        """The same, planned; ``how`` as in :meth:`write`."""
        write = self.write(name, job, rows, **how)
        await write.driver.run(write.plan())
        return write

    async def written(
        self, name: str, job: Job, rows: Sequence[str], **how: Any
    ) -> tuple[Write, list[TaskMessage | None]]:
        """The same, and its one task has finished."""
        write = await self.planned(name, job, rows, **how)
        return write, [await write.attempt(0, rows)]

    async def committed(self, name: str, job: Job, rows: Sequence[str], **how: Any) -> Write:
        """The same, committed and not swept."""
        write, messages = await self.written(name, job, rows, **how)
        worker = write.worker("commit")
        await worker.run(write.commit_only(worker, messages))
        return write

    async def commit_and_sweep(self, write: Write, messages: Sequence[TaskMessage | None]) -> None:
        """A commit and its sweep, by one process."""
        worker = write.worker("commit")
        summary = await worker.run(write.commit_only(worker, messages))
        await worker.run(write.sweep(worker, summary))

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let it happen beside what follows; an error of the product is its own affair."""

        async def tolerant() -> None:
            try:
                await work
            except BookKeeperError as failed:
                self.world.history.note(f"failed: {failed!r}")

        task = asyncio.ensure_future(tolerant())
        self.begun.append(task)
        return task

    def begin_commit(
        self, write: Write, messages: Sequence[TaskMessage | None], worker: Process | None = None
    ) -> asyncio.Task[Any]:
        """A commit beside what follows."""
        worker = worker or write.worker("commit")
        return self.begin(worker.run(write.commit_only(worker, messages)))

    async def commit(self, write: Write, messages: Sequence[TaskMessage | None]) -> None:
        """A commit, whatever comes of it."""
        await self.begin_commit(write, messages)

    def begin_collection(self, name: str) -> asyncio.Task[Any]:
        """A collection by process ``gc NAME``, beside what follows."""
        process = self.world.process(Actor(f"gc {name}", "gc"))
        return self.begin(process.run(process.collect()))

    async def truncate(self, name: str, before_row: int) -> None:
        """A truncation by process ``truncate NAME``."""
        process = self.world.process(Actor(f"truncate {name}", "truncate"))
        await process.run(process.truncate(before_row))

    async def held(
        self, who: str, operation: str, where: str = "", *, after: Hold | None = None
    ) -> Hold:
        """Wait until somebody waits before such an operation, let go ``after`` an earlier one.

        Not for ever: wrong code may never come there.
        """
        hold = self.script.hold(who, operation, where)
        if after is not None:
            after.release()
        try:
            await asyncio.wait_for(hold.reached.wait(), PATIENCE_S)
        except TimeoutError:
            self.world.history.note("nobody came to where it was waited for")
        return hold

    def leap(self, hours: int) -> None:
        """The clock leaps."""
        self.world.jumped_ms += hours * 3_600_000
