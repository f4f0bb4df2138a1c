"""Overwrites: everything at once, or nothing and an error, never somebody else's append."""

from __future__ import annotations

import pytest

from spark_bookkeeper.log.commits.commit import CommitOutcome
from spark_bookkeeper.log.errors import LogConflictError
from spark_bookkeeper.log.format.epoch import Job, TaskMessage
from tests.doubles.stores import ScriptedStore
from tests.spark_bookkeeper.log.world import LogWorld

STREAM = Job.of_stream("query-1", 0)


async def ready(
    world: LogWorld, job: Job = STREAM, *, is_overwrite: bool = False
) -> list[TaskMessage]:
    nodes = await world.logs.catalog.open("orders")
    epoch = await world.logs.jobs.plan(nodes.log_id, "orders", job=job, is_overwrite=is_overwrite)
    return [await world.write(epoch, job, index) for index in range(3)]


@pytest.mark.parametrize("is_overwrite", [True, False])
@pytest.mark.parametrize("job", [STREAM, Job.of_batch("b-1")], ids=["stream", "batch"])
async def test_commit_applied_after_its_token_was_read_is_no_conflict_with_itself(
    world: LogWorld, log_id: int, is_overwrite: bool, job: Job
) -> None:
    await world.append(log_id, Job.of_batch("b-0"))
    messages = await ready(world, job, is_overwrite=is_overwrite)
    store = ScriptedStore(world.tree)
    spent: list[str] = []

    def is_first_multi(operation: str, path: str) -> bool:
        spent.extend([path] * (operation == "multi"))
        return operation == "multi" and len(spent) == 1

    async def arrive_before_the_head_is_read(operation: str, path: str) -> None:
        if operation == "get" and path.endswith("/head"):
            store.arrive()

    store.is_late, store.before = is_first_multi, arrive_before_the_head_is_read
    logs = world.client(store)

    summary = await logs.committer.commit(messages, log="orders")

    assert summary.outcome is CommitOutcome.COMMITTED
    rows = sum(item.rows for item in await world.visible(log_id))
    assert rows == (30 if is_overwrite else 50)


async def test_overwrite_replaces_everything_and_numbers_rows_on(
    world: LogWorld, log_id: int
) -> None:
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


async def test_overwrite_planned_before_an_append_conflicts_and_leaves_the_append(
    world: LogWorld, log_id: int
) -> None:
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


async def test_append_planned_before_an_overwrite_still_commits(
    world: LogWorld, log_id: int
) -> None:
    messages = await ready(world)
    await world.append(log_id, Job.of_batch("b-1"), is_overwrite=True)

    await world.logs.committer.commit(messages, log="orders")

    assert sum(item.rows for item in await world.visible(log_id)) == 50
