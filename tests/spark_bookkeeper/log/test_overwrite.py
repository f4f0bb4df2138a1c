"""Overwrites: everything at once, or nothing and an error, never somebody else's append."""

from __future__ import annotations

import pytest

from spark_bookkeeper.log.commits.commit import CommitOutcome
from spark_bookkeeper.log.errors import LogConflictError
from spark_bookkeeper.log.format.epoch import Job
from tests.doubles.stores import ScriptedStore
from tests.spark_bookkeeper.log.world import LogWorld, message_of

STREAM = Job.of_stream("query-1", 0)


@pytest.mark.parametrize("is_overwrite", [True, False])
@pytest.mark.parametrize("job", [STREAM, Job.of_batch("b-1")], ids=["stream", "batch"])
async def test_commit_applied_after_its_token_was_read_is_no_conflict_with_itself(
    world: LogWorld, is_overwrite: bool, job: Job
) -> None:
    await world.append(Job.of_batch("b-0"))
    messages = await world.plan_and_write(job, 3, is_overwrite=is_overwrite)
    store = ScriptedStore(world.tree)
    spent: list[str] = []

    def is_first_multi(operation: str, path: str) -> bool:
        spent.extend([path] * (operation == "multi"))
        return operation == "multi" and len(spent) == 1

    async def arrive_before_the_head_is_read(operation: str, path: str) -> None:
        if operation == "get" and path.endswith("/head"):
            store.arrive()

    store.is_late, store.before = is_first_multi, arrive_before_the_head_is_read

    summary = await world.session(store).commit(messages)

    assert summary.outcome is CommitOutcome.COMMITTED
    assert await world.rows() == (30 if is_overwrite else 50)


async def test_overwrite_replaces_everything_and_numbers_rows_on(world: LogWorld) -> None:
    await world.append(STREAM)
    old = world.ledgers()

    await world.append(Job.of_batch("b-1"), 1, is_overwrite=True)

    head = await world.head()
    assert (head.base_row, head.next_row, head.overwritten_row) == (20, 30, 20)
    assert old < world.ledgers()
    await world.collect_after(3_600_000)
    assert {item.ledger_id for item in head.ranges} == world.ledgers()
    assert await world.nodes().garbage_epochs() == []


async def test_overwrite_planned_before_an_append_conflicts_and_leaves_the_append(
    world: LogWorld,
) -> None:
    messages = await world.plan_and_write(Job.of_batch("b-1"), 1, is_overwrite=True)
    await world.append(STREAM)

    with pytest.raises(LogConflictError):
        await world.commit(messages)
    await world.abort(messages)

    assert await world.rows() == 20
    assert world.ledgers() == await world.visible_ledgers()


async def test_overwrite_planned_before_a_truncation_drops_what_is_left(world: LogWorld) -> None:
    await world.append(STREAM)
    await world.append(Job.of_stream("query-1", 1))
    messages = await world.plan_and_write(Job.of_batch("b-1"), 1, is_overwrite=True)
    await world.logs.truncate(world.log_id, "orders", 20)

    await world.commit(messages)

    head = await world.head()
    assert (head.base_row, head.next_row, head.overwritten_row) == (40, 50, 40)


async def test_two_overwrites_of_one_table_conflict_though_one_of_them_has_no_rows(
    world: LogWorld,
) -> None:
    await world.append(STREAM)
    messages = await world.plan_and_write(Job.of_batch("b-1"), 1, is_overwrite=True)
    emptying = Job.of_batch("b-2")
    await world.commit([message_of(await world.plan(emptying, is_overwrite=True), emptying)])

    with pytest.raises(LogConflictError):
        await world.commit(messages)

    assert await world.rows() == 0


async def test_append_planned_before_an_overwrite_still_commits(world: LogWorld) -> None:
    messages = await world.plan_and_write(STREAM, 3)
    await world.append(Job.of_batch("b-1"), is_overwrite=True)

    await world.commit(messages)

    assert await world.rows() == 50
