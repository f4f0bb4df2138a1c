"""How many answers of the metadata service the steps of a write wait for, one after the other.

Each takes a second here, whatever it does and however many are on their way at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest

from bookkeeper_metadata.store.memory import MemoryStore
from spark_bookkeeper.log.format.epoch import Job, TaskMessage
from tests.doubles.virtual_time import on_virtual_time
from tests.spark_bookkeeper.log.world import LogSession, LogWorld

T = TypeVar("T")


class SlowStore(MemoryStore):
    """Every answer takes a second."""

    async def _perform(self, operation: str, path: str, apply: Callable[[], T]) -> T:
        await asyncio.sleep(1)
        return await super()._perform(operation, path, apply)


@dataclass
class Waits:
    """Of one write, in answers one after the other."""

    plan: int = 0
    claim: int = 0
    commit: int = 0
    sweep: int = 0


async def waited(step: Awaitable[T]) -> tuple[T, int]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    return await step, round(loop.time() - began)


async def one_write(session: LogSession, job: Job, partitions: int = 2) -> Waits:
    waits, logs = Waits(), session.logs
    epoch, waits.plan = await waited(session.plan(job))
    messages: list[TaskMessage] = []
    for partition in range(partitions):
        claiming = logs.jobs.claim(epoch, job, partition=partition, task_attempt_id=partition)
        _, waits.claim = await waited(claiming)
        messages.append(await session.write(epoch, job, partition, attempt=partition))
    summary, waits.commit = await waited(logs.committer.commit(messages, log="orders"))
    report, waits.sweep = await waited(logs.sweeper.after_commit(summary))
    assert (report.tokens_removed, report.ledgers_left) == ([epoch.number], [])
    assert len(report.jobs_removed) == 1
    return waits


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_small_write_waits_for_few_answers(is_stream: bool) -> None:
    async def write() -> list[Waits]:
        world = await LogWorld.with_log()
        session = world.session(SlowStore(world.tree))
        jobs = (
            Job.of_stream("query", batch) if is_stream else Job.of_batch(f"job-{batch}")
            for batch in range(3)
        )
        found = [await one_write(session, job) for job in jobs]
        # Nothing is left of them but their rows.
        assert await world.rows() == 3 * 2 * 10
        nodes = world.nodes()
        assert await nodes.epochs() == []
        assert await world.store.children(nodes.tree.jobs) == []
        return found

    found = on_virtual_time(write())
    # Plan: sync, head, token. Claim: index node beside the transaction, then the others beside the token.
    # Commit: sync, head, transaction, and what makes it count. Sweep: all at once.
    commit = 4 if is_stream else 3
    assert found == 3 * [Waits(plan=3, claim=2, commit=commit, sweep=1)]
