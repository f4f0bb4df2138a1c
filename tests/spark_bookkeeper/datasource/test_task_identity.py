"""Which job a task works for is what Spark's task context says, and nothing is put in its place."""

from __future__ import annotations

from typing import Any
from unittest.mock import create_autospec

import pytest
from pyspark import TaskContext

from spark_bookkeeper.datasource.errors import StreamIdentityError
from spark_bookkeeper.datasource.write.spark_task import (
    BATCH_ID_PROPERTY,
    QUERY_ID_PROPERTY,
    RUN_ID_PROPERTY,
    batch_task,
    stream_task,
)
from spark_bookkeeper.log.errors import TxnAppReusedError
from spark_bookkeeper.log.format.epoch import Job, Txn
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch, ids
from tests.spark_bookkeeper.datasource.world import FakeSpark

FIRST, SECOND = "11111111-query", "22222222-query"
TXN: dict[str, Any] = {"txnappid": "for-each", "txnversion": "0"}


@pytest.fixture
def runs_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this the Python worker of a task with these local properties."""

    def run(**properties: str) -> None:
        context = create_autospec(TaskContext, instance=True)
        named = {
            QUERY_ID_PROPERTY: properties.get("query"),
            BATCH_ID_PROPERTY: properties.get("batch"),
            RUN_ID_PROPERTY: properties.get("run"),
        }
        context.getLocalProperty.side_effect = named.__getitem__
        context.partitionId.return_value = 3
        context.taskAttemptId.return_value = 17
        monkeypatch.setattr(TaskContext, "get", lambda: context)

    return run


def test_a_task_of_a_stream_is_of_its_query_and_batch(runs_in: Any) -> None:
    runs_in(query=FIRST, batch="4", run="r")

    task = stream_task()

    assert task.job == Job.of_stream(FIRST, 4)
    assert (task.partition, task.task_attempt_id, task.run_id) == (3, 17, "r")


@pytest.mark.parametrize(
    "properties", [{}, {"query": FIRST}, {"batch": "4"}, {"query": FIRST, "batch": "x"}]
)
def test_a_stream_without_its_identity_writes_nothing(
    runs_in: Any, properties: dict[str, str]
) -> None:
    runs_in(**properties)

    with pytest.raises(StreamIdentityError):
        stream_task()


@pytest.mark.parametrize(("properties", "query_id"), [({}, ""), ({"query": FIRST}, FIRST)])
def test_a_task_of_foreach_batch_says_whose_it_is(
    world: FakeSpark, runs_in: Any, properties: dict[str, str], query_id: str
) -> None:
    runs_in(**properties)

    task = batch_task(world.plan(SCHEMA, **TXN))

    assert task.job.txn == Txn("for-each", 0, query_id=query_id)
    assert (task.partition, task.task_attempt_id) == (3, 17)


def test_two_queries_under_one_application_id_are_told_apart(
    world: FakeSpark, runs_in: Any
) -> None:
    """The second's rows would be taken for the first's, once more, and skipped."""

    def run_batch(query: str, first: int) -> None:
        runs_in(query=query)
        plan = world.plan(SCHEMA, **TXN)
        txn = batch_task(plan).job.txn
        assert txn is not None
        world.commit(plan, [world.attempt(plan, 0, [batch(first, 1)], query_id=txn.query_id)])

    run_batch(FIRST, 0)
    run_batch(FIRST, 0)
    with pytest.raises(TxnAppReusedError):
        run_batch(SECOND, 1)

    assert ids(world.read()) == [0]
