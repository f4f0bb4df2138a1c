"""Commits: once, whole, whatever replies get lost and whoever else commits."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper_metadata.errors import MetadataConflictError
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.store.operations import BadVersionError
from spark_bookkeeper.log.commits.commit import CommitOutcome, CommitSummary
from spark_bookkeeper.log.errors import (
    CommitRefusedError,
    CommitUnknownError,
    LogHasWriterError,
    NoSuchLogError,
    TxnAppReusedError,
    TxnRegressedError,
)
from spark_bookkeeper.log.format.epoch import Job, TaskMessage, TokenState, Txn
from spark_bookkeeper.log.format.serde import encode_head
from spark_bookkeeper.log.rules.transitions import register_open_ledger
from tests.doubles.stores import LoseNth, ScriptedStore, every_mutation
from tests.spark_bookkeeper.log.world import LogWorld, message_of

STREAM = Job.of_stream("query-1", 0)


async def ready(world: LogWorld, job: Job = STREAM, partitions: int = 3) -> list[TaskMessage]:
    """Messages of a whole write of ``partitions`` tasks, last partition first."""
    nodes = await world.logs.catalog.open("orders")
    epoch = await world.logs.jobs.plan(nodes.log_id, "orders", job=job)
    messages = [await world.write(epoch, job, index) for index in range(partitions)]
    return messages[::-1]


async def test_commit_makes_rows_visible_in_partition_order(world: LogWorld, log_id: int) -> None:
    messages = await ready(world)

    summary = await world.logs.committer.commit(messages, log="orders")

    ranges = await world.visible(log_id)
    wanted = [message.written.ledger_id for message in messages[::-1] if message.written]
    assert [item.ledger_id for item in ranges] == wanted
    assert [item.first_row for item in ranges] == [0, 10, 20]
    assert (summary.outcome, summary.rows) == (CommitOutcome.COMMITTED, 30)
    token = await world.nodes(log_id).token(messages[0].epoch.number)
    assert token is not None
    assert token.token.state is TokenState.COMMITTED


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("job", [STREAM, Job.of_batch("b-1")], ids=["stream", "batch"])
async def test_commit_happens_once_whichever_reply_is_lost(fault: Fault, job: Job) -> None:
    async def once(lose: LoseNth) -> None:
        world = LogWorld()
        log_id = await world.create_log()
        messages = await ready(world, job)
        session = MemoryStore(world.tree, fault=lose)
        logs = world.client(session)

        summary = await logs.committer.commit(messages, log="orders")
        await logs.sweeper.after_commit(summary)
        await world.logs.collector.collect(log_id)

        assert summary.outcome is CommitOutcome.COMMITTED
        assert sum(item.rows for item in await world.visible(log_id)) == 30
        assert world.ledgers() == summary.ledger_ids

    assert await every_mutation(once, fault) > 3


@pytest.mark.parametrize("fault", Fault)
async def test_write_survives_a_lost_reply_of_any_mutation_from_plan_to_sweep(fault: Fault) -> None:
    async def once(lose: LoseNth) -> None:
        world = LogWorld()
        log_id = await world.create_log()
        session = MemoryStore(world.tree, fault=lose)
        logs = world.client(session)
        epoch = await logs.jobs.plan(log_id, "orders")
        messages = [await world.write(epoch, STREAM, index, store=session) for index in range(2)]

        summary = await logs.committer.commit(messages, log="orders")
        await logs.sweeper.after_commit(summary)
        world.now_ms += 8 * 86_400_000
        await world.logs.collector.collect(log_id)

        assert sum(item.rows for item in await world.visible(log_id)) == 20
        assert world.ledgers() == summary.ledger_ids
        assert await world.nodes(log_id).epochs() == []
        assert world.tree.children(world.paths.log(log_id).jobs) == []

    assert await every_mutation(once, fault) > 8


async def test_replay_with_other_partitions_adds_nothing(world: LogWorld, log_id: int) -> None:
    await world.append(log_id, STREAM, partitions=3)
    before = await world.visible(log_id)
    epoch = await world.logs.jobs.plan(log_id, "orders")
    messages = [await world.write(epoch, STREAM, index) for index in range(5)]

    summary = await world.logs.committer.commit(messages, log="orders")
    await world.logs.sweeper.after_commit(summary)

    assert summary.outcome is CommitOutcome.REPLAYED
    assert all(message.is_already_committed for message in messages)
    assert await world.visible(log_id) == before
    assert await world.nodes(log_id).epochs() == []


async def test_replay_that_wrote_ledgers_before_the_first_commit_landed_deletes_them(
    world: LogWorld, log_id: int
) -> None:
    first = await ready(world)
    second = await ready(world, partitions=5)
    with pytest.raises(CommitRefusedError):
        # The claims of the second plan ended the first one's token.
        await world.logs.committer.commit(first, log="orders")

    committed = await world.logs.committer.commit(second, log="orders")
    third = await world.logs.jobs.plan(log_id, "orders")
    replay = [message_of(third, STREAM, attempt=9, is_skipped=True)]
    summary = await world.logs.committer.commit(replay, log="orders")
    await world.logs.sweeper.after_commit(committed)
    await world.logs.sweeper.after_commit(summary)

    assert summary.outcome is CommitOutcome.REPLAYED
    assert world.ledgers() == committed.ledger_ids


async def test_older_batch_is_refused_and_writes_nothing(world: LogWorld, log_id: int) -> None:
    messages = await ready(world, Job.of_stream("query-1", 3))
    await world.append(log_id, Job.of_stream("query-1", 4))

    with pytest.raises(TxnRegressedError) as refused:
        await world.logs.committer.commit(messages, log="orders")

    assert "stored_version=4" in str(refused.value)
    assert sum(item.rows for item in await world.visible(log_id)) == 20


async def test_skipped_task_that_no_stored_batch_explains_is_refused(
    world: LogWorld, log_id: int
) -> None:
    epoch = await world.logs.jobs.plan(log_id, "orders")
    message = message_of(epoch, STREAM, is_skipped=True)

    with pytest.raises(TxnRegressedError):
        await world.logs.committer.commit([message], log="orders")

    assert await world.visible(log_id) == ()


async def test_transaction_id_of_another_query_is_never_skipped_silently(
    world: LogWorld, log_id: int
) -> None:
    await world.append(log_id, Job.of_batch("", Txn("etl", 5, "query-1")))
    same = await ready(world, Job.of_batch("", Txn("etl", 4, "query-1")))
    other = await ready(world, Job.of_batch("", Txn("etl", 5, "query-2")))

    skipped = await world.logs.committer.commit(same, log="orders")

    assert skipped.outcome is CommitOutcome.REPLAYED
    with pytest.raises(TxnAppReusedError):
        await world.logs.committer.commit(other, log="orders")
    assert sum(item.rows for item in await world.visible(log_id)) == 20


@pytest.mark.parametrize("case", ["missing", "epochs", "twice", "none"])
async def test_messages_that_disagree_commit_nothing(
    world: LogWorld, log_id: int, case: str
) -> None:
    messages: list[TaskMessage | None] = list(await ready(world))
    other = list(await ready(world, Job.of_stream("query-2", 0)))
    wrong = {
        "missing": [*messages[:2], None],
        "epochs": [messages[0], other[1]],
        "twice": [*messages, messages[0]],
        "none": [],
    }[case]

    with pytest.raises(CommitRefusedError):
        await world.logs.committer.commit(wrong, log="orders")

    assert await world.visible(log_id) == ()


async def test_concurrent_appenders_do_not_fail_each_other(world: LogWorld, log_id: int) -> None:
    jobs = [Job.of_batch(f"b-{number}") for number in range(12)]
    writes = [await ready(world, job) for job in jobs]

    async def commit(messages: list[TaskMessage]) -> CommitSummary:
        return await world.client().committer.commit(messages, log="orders")

    summaries = await asyncio.gather(*map(commit, writes))

    ranges = await world.visible(log_id)
    assert len(ranges) == 36
    assert [item.first_row for item in ranges] == list(range(0, 360, 10))
    assert max(summary.attempts for summary in summaries) > 1


async def test_empty_write_commits_its_transaction(world: LogWorld, log_id: int) -> None:
    epoch = await world.logs.jobs.plan(log_id, "orders")
    message = message_of(epoch, STREAM)

    summary = await world.logs.committer.commit([message], log="orders")
    await world.logs.sweeper.after_commit(summary)

    stored = await world.nodes(log_id).txns()
    assert stored["query-1"].version == 0
    assert await world.nodes(log_id).epochs() == []


async def test_commit_after_abort_is_refused_and_abort_after_commit_does_nothing(
    world: LogWorld, log_id: int
) -> None:
    aborted = await ready(world, Job.of_batch("b-1"))
    await world.logs.sweeper.abort(aborted, log="orders")
    committed = await ready(world, Job.of_batch("b-2"))
    await world.logs.committer.commit(committed, log="orders")

    await world.logs.sweeper.abort(committed, log="orders")
    await world.logs.sweeper.abort([None, None], log="orders")
    with pytest.raises(CommitUnknownError):
        await world.logs.committer.commit(aborted, log="orders")

    assert len(await world.visible(log_id)) == 3
    assert len(world.ledgers()) == 3


async def test_commit_whose_token_is_gone_is_told_by_its_transaction(
    world: LogWorld, log_id: int
) -> None:
    aborted = await ready(world)
    await world.logs.sweeper.abort(aborted, log="orders")

    with pytest.raises(CommitRefusedError):
        await world.logs.committer.commit(aborted, log="orders")

    assert await world.visible(log_id) == ()


async def test_commit_beside_a_writer_outside_spark_is_refused(
    world: LogWorld, log_id: int
) -> None:
    messages = await ready(world)
    nodes = world.nodes(log_id)
    found = await nodes.head()
    head = register_open_ledger(found.head, 77, world.now_ms)
    await world.store.put(nodes.tree.head, encode_head(head), found.version)

    with pytest.raises(LogHasWriterError):
        await world.logs.committer.commit(messages, log="orders")
    with pytest.raises(LogHasWriterError):
        await world.logs.jobs.plan(log_id, "orders")


async def test_commit_to_a_deleted_log_is_refused(world: LogWorld) -> None:
    await world.create_log()
    messages = await ready(world)
    await world.logs.catalog.delete("orders")

    with pytest.raises(NoSuchLogError):
        await world.logs.committer.commit(messages, log="orders")


async def test_commit_that_never_hears_back_says_unknown(world: LogWorld) -> None:
    await world.create_log()
    messages = await ready(world)
    begun = False

    def fault(operation: str, _path: str) -> Fault | None:
        nonlocal begun
        begun = begun or operation == "multi"
        return Fault.LOST_REPLY if begun else None

    logs = world.client(fault=fault)

    with pytest.raises(CommitUnknownError):
        await logs.committer.commit(messages, log="orders")


async def test_commit_refused_for_ever_says_that_nothing_was_written(world: LogWorld) -> None:
    await world.create_log()
    messages = await ready(world)
    store = ScriptedStore(world.tree)

    async def refuse(operation: str, _path: str) -> None:
        if operation == "multi":
            raise BadVersionError("/head")

    store.before = refuse

    with pytest.raises(MetadataConflictError):
        await world.client(store).committer.commit(messages, log="orders")
