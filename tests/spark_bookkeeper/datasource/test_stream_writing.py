"""A streaming write, driven as Spark drives it: batches, replays, aborts, other runs."""

from __future__ import annotations

import logging
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType

from spark_bookkeeper.datasource.errors import SourceError
from spark_bookkeeper.datasource.options.parse import parse_write_options
from spark_bookkeeper.datasource.write import stream
from spark_bookkeeper.datasource.write.plan import WritePlan
from spark_bookkeeper.log.errors import CommitRefusedError, EpochFencedError, TxnRegressedError
from spark_bookkeeper.log.format.epoch import TaskMessage
from tests.spark_bookkeeper.datasource.formats import EVERY_FORMAT
from tests.spark_bookkeeper.datasource.rows import columns, ids
from tests.spark_bookkeeper.datasource.world import HERE, FakeSpark

SCHEMA = columns(id=LongType())
QUERY = "5f0c"


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(numbers, pa.int64())})


def visible(world: FakeSpark) -> list[int]:
    return ids(world.read())


def attempts(
    world: FakeSpark, number: int, *partitions: list[int], is_overwrite: bool = False
) -> tuple[WritePlan, list[TaskMessage]]:
    """A micro-batch whose tasks are done: its plan, and what they sent."""
    plan = world.plan(SCHEMA, is_overwrite=is_overwrite)
    return plan, [
        world.stream_attempt(plan, at, [batch(*numbers)] if numbers else [], QUERY, number)
        for at, numbers in enumerate(partitions)
    ]


def micro_batch(
    world: FakeSpark, number: int, *partitions: list[int], is_overwrite: bool = False
) -> None:
    """One micro-batch in which nothing goes wrong."""
    _, messages = attempts(world, number, *partitions, is_overwrite=is_overwrite)
    world.stream_commit(messages, number)


@EVERY_FORMAT
def test_each_micro_batch_becomes_visible_once_and_is_remembered(world: FakeSpark) -> None:
    micro_batch(world, 0, [1, 2], [3])
    micro_batch(world, 1, [4], [])
    micro_batch(world, 2, [], [])

    assert visible(world) == [1, 2, 3, 4]
    assert world.tokens() == []
    assert world.client.run(world.nodes().txns())[QUERY].version == 2


@EVERY_FORMAT
def test_a_replay_with_other_partitions_adds_nothing_and_says_so_once(
    world: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    micro_batch(world, 0, [1, 2], [3])
    caplog.set_level(logging.INFO)

    micro_batch(world, 0, [1], [2], [3])

    assert visible(world) == [1, 2, 3]
    replays = [line for line in caplog.messages if line.startswith("replay skipped")]
    assert len(replays) == 1
    assert f"query={QUERY} batch=0" in replays[0]
    assert world.tokens() == []
    assert len(world.client.ledgers) == 2


@EVERY_FORMAT
def test_a_failed_first_micro_batch_keeps_the_log_for_the_next_run(world: FakeSpark) -> None:
    """The writer that aborts has no plan, and no message where no task was through."""
    plan, messages = attempts(world, 0, [1])

    world.stream_abort([*messages, None])

    assert world.nodes().log_id == plan.epoch.log_id
    micro_batch(world, 0, [1], [2])
    assert visible(world) == [1, 2]


@EVERY_FORMAT
def test_a_commit_says_in_one_line_what_it_did(
    world: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    micro_batch(world, 7, [1, 2], [3])

    (line,) = [line for line in caplog.messages if line.startswith("committed.")]
    for fact in ("log=orders", f"query={QUERY}", "batch=7", "ledgers=2", "rows=3", "elapsed_ms="):
        assert fact in line
    for ledger in world.client.ledgers.values():
        custom = ledger.metadata.custom_metadata
        assert (custom["sparkQueryId"], custom["sparkBatchId"]) == (QUERY.encode(), b"7")


def test_a_commit_names_the_bookies_that_lack_entries_of_it(
    world: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    """They were away, and nothing but a reader's misfortune said so."""
    caplog.set_level(logging.INFO)
    world.client.bookies_missed = frozenset({"b2:1", "b1:1"})

    micro_batch(world, 0, [1], [2])
    world.client.bookies_missed = frozenset()
    micro_batch(world, 1, [3])

    short, whole = (line for line in caplog.messages if line.startswith("committed."))
    assert short.endswith(" under_replicated_at=b1:1,b2:1")
    assert "under_replicated" not in whole


@EVERY_FORMAT
def test_a_batch_that_finds_no_earlier_one_of_its_query_says_so(
    world: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    micro_batch(world, 0, [1])
    micro_batch(world, 1, [2])
    assert not [line for line in caplog.messages if "no earlier batch" in line]
    world.client.run(world.session.catalog.delete("orders"))

    micro_batch(world, 2, [3])
    micro_batch(world, 3, [4])

    (line,) = [line for line in caplog.messages if "no earlier batch" in line]
    assert f"log=orders query={QUERY} batch=2" in line
    assert visible(world) == [3, 4]


@EVERY_FORMAT
def test_without_any_handler_the_line_goes_to_standard_error(
    world: FakeSpark, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    micro_batch(world, 0, [1])

    message = capsys.readouterr().err
    assert message.startswith("INFO spark_bookkeeper.commits: committed. log=orders ")
    assert message.count("\n") == 1


@EVERY_FORMAT
def test_an_older_batch_is_refused_and_nothing_of_it_is_left(world: FakeSpark) -> None:
    micro_batch(world, 3, [1])
    _, messages = attempts(world, 2, [9])

    with pytest.raises(TxnRegressedError, match=r"older checkpoint was restored.*version=2"):
        world.stream_commit(messages, 2)
    world.stream_abort(messages)

    assert visible(world) == [1]
    assert world.tokens() == []


@EVERY_FORMAT
def test_a_message_of_another_batch_and_one_that_is_missing_are_refused(world: FakeSpark) -> None:
    _, messages = attempts(world, 4, [1])

    with pytest.raises(CommitRefusedError, match="a message is of batch 4, the commit of batch 5"):
        world.stream_commit(messages, 5)
    with pytest.raises(CommitRefusedError, match="1 of 2 tasks sent no commit message"):
        world.stream_commit([*messages, None], 4)

    assert visible(world) == []


def test_a_continuous_commit_is_refused_before_anything_else_can_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark asks once and only logs the error: an unreachable metadata service's would hide the reason."""
    monkeypatch.setattr(stream, "open_session", lambda _: pytest.fail("a session was opened"))
    options = parse_write_options({"log": "orders"}, HERE, is_stream=True)
    writer = stream.BookKeeperStreamWriter(options, SCHEMA, is_overwrite=False)

    with pytest.raises(SourceError, match="continuous trigger drops the rows"):
        writer.commit([None, None], 4)


@EVERY_FORMAT
def test_an_abort_of_what_is_committed_or_has_no_name_takes_nothing_away(world: FakeSpark) -> None:
    plan, messages = attempts(world, 0, [1])

    world.stream_abort([None, None])
    assert world.tokens() == [plan.epoch.number]
    assert len(world.client.ledgers) == 1

    world.stream_commit(messages, 0)
    world.stream_abort(messages)
    assert visible(world) == [1]


@EVERY_FORMAT
def test_the_next_run_of_a_batch_ends_the_stopped_ones_tasks(world: FakeSpark) -> None:
    """What a stopped query left running ends when its restart claims, and is swept by its commit."""
    stopped, _ = attempts(world, 0, [1])

    _, messages = attempts(world, 0, [1])
    with pytest.raises(EpochFencedError):
        world.stream_attempt(stopped, 1, [batch(2)], QUERY, 0)
    world.stream_commit(messages, 0)

    late = world.stream_attempt(stopped, 1, [batch(2)], QUERY, 0)
    assert late.is_already_committed
    assert visible(world) == [1]
    assert world.tokens() == []
    assert len(world.client.ledgers) == 1


@EVERY_FORMAT
def test_complete_mode_shows_the_last_batch_only(world: FakeSpark) -> None:
    for number, shown in enumerate(([1, 2], [1, 2, 3])):
        micro_batch(world, number, shown, is_overwrite=True)

    assert visible(world) == [1, 2, 3]


@EVERY_FORMAT
def test_a_writer_is_planned_by_the_time_it_travels(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should Spark ever pickle a writer that nobody planned, its tasks still get an epoch."""
    monkeypatch.setattr(stream, "open_session", lambda _: world.session)
    options = parse_write_options({"log": "orders"}, HERE, is_stream=True)
    writer = stream.BookKeeperStreamWriter(options, SCHEMA, is_overwrite=False)

    writer.plan()
    travelled = pickle.loads(pickle.dumps(writer))
    pickle.dumps(writer)

    assert world.tokens() == [travelled._plan.epoch.number]


@EVERY_FORMAT
def test_a_stream_plans_again_for_every_micro_batch(world: FakeSpark) -> None:
    plans = [world.plan(SCHEMA) for _ in range(2)]

    assert plans[0].epoch.number < plans[1].epoch.number
