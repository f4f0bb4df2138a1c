"""Commits: once, whole, whatever replies get lost and whoever else commits."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper_metadata.errors import MetadataConflictError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.store.memory import Fault
from bookkeeper_metadata.store.operations import BadVersionError
from spark_bookkeeper.log.commits.commit import CommitOutcome
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
from tests.doubles.stores import LaggingStore, LoseNth, ScriptedStore, every_mutation
from tests.spark_bookkeeper.log.world import DAY_MS, LogWorld, message_of

STREAM = Job.of_stream("query-1", 0)


async def ready(world: LogWorld, job: Job = STREAM, partitions: int = 3) -> list[TaskMessage]:
    """Messages of a whole write of ``partitions`` tasks, last partition first."""
    return (await world.plan_and_write(job, partitions))[::-1]


async def test_commit_makes_rows_visible_in_partition_order(world: LogWorld) -> None:
    messages = await ready(world)

    summary = await world.commit(messages)

    ranges = await world.visible()
    wanted = [message.written.ledger_id for message in messages[::-1] if message.written]
    assert [item.ledger_id for item in ranges] == wanted
    assert [item.first_row for item in ranges] == [0, 10, 20]
    assert (summary.outcome, summary.rows) == (CommitOutcome.COMMITTED, 30)
    assert await world.token_state(messages[0].epoch) is TokenState.COMMITTED


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("job", [STREAM, Job.of_batch("b-1")], ids=["stream", "batch"])
async def test_commit_happens_once_whichever_reply_is_lost(fault: Fault, job: Job) -> None:
    async def once(lose: LoseNth) -> None:
        world = await LogWorld.with_log()
        messages = await ready(world, job)

        summary = await world.session(fault=lose).commit(messages, is_swept=True)
        await world.collect()

        assert summary.outcome is CommitOutcome.COMMITTED
        assert await world.rows() == 30
        assert world.ledgers() == summary.ledger_ids

    assert await every_mutation(once, fault) >= 2


@pytest.mark.parametrize("fault", Fault)
async def test_write_survives_a_lost_reply_of_any_mutation_from_plan_to_sweep(fault: Fault) -> None:
    async def once(lose: LoseNth) -> None:
        world = await LogWorld.with_log()
        session = world.session(fault=lose)
        epoch = await session.plan()
        messages = [await session.write(epoch, STREAM, index) for index in range(2)]

        summary = await session.commit(messages, is_swept=True)
        await world.collect_after(8 * DAY_MS)

        assert await world.rows() == 20
        assert world.ledgers() == summary.ledger_ids
        assert await world.nodes().epochs() == []
        assert world.tree.children(world.nodes().tree.jobs) == []

    assert await every_mutation(once, fault) >= 8


async def test_replay_with_other_partitions_adds_nothing(world: LogWorld) -> None:
    await world.append(STREAM, 3)
    before = await world.visible()
    epoch = await world.plan()
    messages = [await world.write(epoch, STREAM, index) for index in range(5)]

    summary = await world.commit(messages, is_swept=True)

    assert summary.outcome is CommitOutcome.REPLAYED
    assert all(message.is_already_committed for message in messages)
    assert await world.visible() == before
    assert await world.nodes().epochs() == []


async def test_replay_that_wrote_ledgers_before_the_first_commit_landed_deletes_them(
    world: LogWorld,
) -> None:
    first = await ready(world)
    second = await ready(world, partitions=5)
    with pytest.raises(CommitRefusedError):
        # The claims of the second plan ended the first one's token.
        await world.commit(first)

    committed = await world.commit(second)
    replay = message_of(await world.plan(), STREAM, attempt=9, is_skipped=True)
    summary = await world.commit([replay])
    await world.logs.sweeper.after_commit(committed)
    await world.logs.sweeper.after_commit(summary)

    assert summary.outcome is CommitOutcome.REPLAYED
    assert world.ledgers() == committed.ledger_ids


async def test_older_batch_is_refused_and_writes_nothing(world: LogWorld) -> None:
    messages = await ready(world, Job.of_stream("query-1", 3))
    await world.append(Job.of_stream("query-1", 4))

    with pytest.raises(TxnRegressedError, match="stored_version=4"):
        await world.commit(messages)

    assert await world.rows() == 20


async def test_skipped_task_that_no_stored_batch_explains_is_refused(world: LogWorld) -> None:
    message = message_of(await world.plan(), STREAM, is_skipped=True)

    with pytest.raises(TxnRegressedError):
        await world.commit([message])

    assert await world.visible() == ()


async def test_transaction_id_of_another_query_is_never_skipped_silently(world: LogWorld) -> None:
    await world.append(Job.of_batch("", Txn("etl", 5, "query-1")))
    same = await ready(world, Job.of_batch("", Txn("etl", 4, "query-1")))
    other = await ready(world, Job.of_batch("", Txn("etl", 5, "query-2")))

    skipped = await world.commit(same)

    assert skipped.outcome is CommitOutcome.REPLAYED
    with pytest.raises(TxnAppReusedError):
        await world.commit(other)
    assert await world.rows() == 20


@pytest.mark.parametrize("case", ["missing", "epochs", "twice", "none"])
async def test_messages_that_disagree_commit_nothing(world: LogWorld, case: str) -> None:
    messages: list[TaskMessage | None] = list(await ready(world))
    other = list(await ready(world, Job.of_stream("query-2", 0)))
    wrong = {
        "missing": [*messages[:2], None],
        "epochs": [messages[0], other[1]],
        "twice": [*messages, messages[0]],
        "none": [],
    }[case]

    with pytest.raises(CommitRefusedError):
        await world.commit(wrong)

    assert await world.visible() == ()


async def test_concurrent_appenders_do_not_fail_each_other(world: LogWorld) -> None:
    writes = [await ready(world, Job.of_batch(f"b-{number}")) for number in range(12)]

    summaries = await asyncio.gather(*(world.session().commit(messages) for messages in writes))

    ranges = await world.visible()
    assert len(ranges) == 36
    assert [item.first_row for item in ranges] == list(range(0, 360, 10))
    assert max(summary.attempts for summary in summaries) > 1


async def test_empty_write_commits_its_transaction(world: LogWorld) -> None:
    await world.commit([message_of(await world.plan(), STREAM)], is_swept=True)

    assert (await world.nodes().txns())["query-1"].version == 0
    assert await world.nodes().epochs() == []


async def test_an_abort_by_a_session_that_lags_behind_the_plans_gives_the_write_up(
    world: LogWorld,
) -> None:
    """It took a token it had not heard of for one that is gone; the write stayed LIVE for days."""
    epoch = await world.plan()
    behind = world.client(LaggingStore(world.tree, "/tokens/"))

    message = message_of(epoch, Job.of_batch("b-1"))
    report = await behind.sweeper.abort([message, None], log="orders")

    assert report.tokens_killed == [epoch.number]


async def test_a_replay_whose_tasks_wrote_all_the_same_leaves_none_of_their_ledgers() -> None:
    """Their sessions had not heard of the transaction; its sweep is another than that of what was committed."""
    world = await LogWorld.with_log()
    await world.append(STREAM)
    committed = set(await world.visible_ledgers())
    behind = world.session(LaggingStore(world.tree, "/txn/"))
    epoch = await world.plan()
    messages = [await behind.write(epoch, STREAM, partition) for partition in range(2)]
    assert set(world.ledgers()) > committed

    summary = await world.commit(messages, is_swept=True)

    assert summary.outcome is CommitOutcome.REPLAYED
    assert set(world.ledgers()) == committed
    assert await world.nodes().epochs() == []


@pytest.mark.parametrize(
    ("job", "error"),
    [(STREAM, CommitRefusedError), (Job.of_batch("b-1"), CommitUnknownError)],
    ids=["stream", "batch"],
)
async def test_commit_after_abort_is_refused_and_abort_after_commit_does_nothing(
    world: LogWorld, job: Job, error: type[BookKeeperError]
) -> None:
    """Of a write whose token is gone, its transaction tells that it was not committed."""
    aborted = await ready(world, job)
    await world.abort(aborted)
    committed = await ready(world, Job.of_batch("b-2"))
    await world.commit(committed)

    await world.abort(committed)
    await world.abort([None, None])
    with pytest.raises(error):
        await world.commit(aborted)

    assert len(await world.visible()) == 3
    assert len(world.ledgers()) == 3


async def test_commit_beside_a_writer_outside_spark_is_refused(world: LogWorld) -> None:
    messages = await ready(world)
    nodes = world.nodes()
    found = await nodes.head()
    head = register_open_ledger(found.head, 77, world.now_ms)
    await world.store.put(nodes.tree.head, encode_head(head), found.version)

    with pytest.raises(LogHasWriterError):
        await world.commit(messages)
    with pytest.raises(LogHasWriterError):
        await world.plan()


async def test_commit_to_a_deleted_log_is_refused(world: LogWorld) -> None:
    messages = await ready(world)
    await world.logs.catalog.delete("orders")

    with pytest.raises(NoSuchLogError):
        await world.commit(messages)


async def test_commit_that_never_hears_back_says_unknown(world: LogWorld) -> None:
    messages = await ready(world)
    begun = False

    def fault(operation: str, _path: str) -> Fault | None:
        nonlocal begun
        begun = begun or operation == "multi"
        return Fault.LOST_REPLY if begun else None

    with pytest.raises(CommitUnknownError):
        await world.session(fault=fault).commit(messages)


async def test_commit_refused_for_ever_says_that_nothing_was_written(world: LogWorld) -> None:
    messages = await ready(world)
    store = ScriptedStore(world.tree)

    async def refuse(operation: str, _path: str) -> None:
        if operation == "multi":
            raise BadVersionError("/head")

    store.before = refuse

    with pytest.raises(MetadataConflictError):
        await world.session(store).commit(messages)
