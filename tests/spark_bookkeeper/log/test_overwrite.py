"""Overwrites: everything at once, or nothing and an error, never somebody else's append."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.operations import Node, Operation
from spark_bookkeeper.log.commits.commit import CommitOutcome
from spark_bookkeeper.log.errors import LogConflictError
from spark_bookkeeper.log.format.epoch import Job, TaskMessage
from tests.spark_bookkeeper.log.world import World

STREAM = Job.of_stream("query-1", 0)


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


async def ready(
    world: World, job: Job = STREAM, *, is_overwrite: bool = False
) -> list[TaskMessage]:
    nodes = await world.logs.catalog.open("orders")
    epoch = await world.logs.jobs.plan(nodes.log_id, "orders", job=job, is_overwrite=is_overwrite)
    return [await world.write(epoch, job, index) for index in range(3)]


class LateStore(MemoryStore):
    """Its first multi gets no reply, and is applied at the first read of the head after that."""

    late: list[Operation] | None = None
    is_spent = False

    async def multi(self, operations: Sequence[Operation]) -> None:
        if self.is_spent:
            await super().multi(operations)
            return
        self.is_spent = True
        self.late = list(operations)
        raise MetadataUnavailableError(self.service, "reply lost, request under way")

    async def get(self, path: str) -> Node | None:
        if self.late is not None and path.endswith("/head"):
            self.tree.multi(self.late)
            self.late = None
        return await super().get(path)


@pytest.mark.parametrize("is_overwrite", [True, False])
@pytest.mark.parametrize("job", [STREAM, Job.of_batch("b-1")], ids=["stream", "batch"])
def test_commit_applied_after_its_token_was_read_is_no_conflict_with_itself(
    is_overwrite: bool, job: Job
) -> None:
    async def main() -> None:
        world = World()
        log_id = await world.create_log()
        await world.append(log_id, Job.of_batch("b-0"))
        messages = await ready(world, job, is_overwrite=is_overwrite)
        logs = world.client(LateStore(world.tree))

        summary = await logs.committer.commit(messages, log="orders")

        assert summary.outcome is CommitOutcome.COMMITTED
        rows = sum(item.rows for item in await world.visible(log_id))
        assert rows == (30 if is_overwrite else 50)

    run(main)


def test_overwrite_replaces_everything_and_numbers_rows_on() -> None:
    async def main() -> None:
        world = World()
        log_id = await world.create_log()
        await world.append(log_id, STREAM)
        old = world.ledgers()

        await world.append(log_id, Job.of_batch("b-1"), is_overwrite=True, partitions=1)

        head = (await world.nodes(log_id).head()).head
        assert (head.base_row, head.next_row, head.overwritten_row) == (20, 30, 20)
        assert old < world.ledgers()
        world.now_ms += 3_600_000
        await world.logs.collector.collect(log_id)
        assert {item.ledger_id for item in head.ranges} == world.ledgers()
        assert await world.nodes(log_id).garbage_epochs() == []

    run(main)


def test_overwrite_planned_before_an_append_conflicts_and_leaves_the_append() -> None:
    async def main() -> None:
        world = World()
        log_id = await world.create_log()
        job = Job.of_batch("b-1")
        epoch = await world.logs.jobs.plan(log_id, "orders", job=job, is_overwrite=True)
        messages = [await world.write(epoch, job)]
        await world.append(log_id, STREAM)

        with pytest.raises(LogConflictError):
            await world.logs.committer.commit(messages, log="orders")
        await world.logs.sweeper.abort(messages, log="orders")

        ranges = await world.visible(log_id)
        assert sum(item.rows for item in ranges) == 20
        assert world.ledgers() == {item.ledger_id for item in ranges}

    run(main)


def test_append_planned_before_an_overwrite_still_commits() -> None:
    async def main() -> None:
        world = World()
        log_id = await world.create_log()
        messages = await ready(world)
        await world.append(log_id, Job.of_batch("b-1"), is_overwrite=True)

        await world.logs.committer.commit(messages, log="orders")

        assert sum(item.rows for item in await world.visible(log_id)) == 50

    run(main)
