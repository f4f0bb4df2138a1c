"""Streaming writes on real Spark: batches once, replays, complete mode, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.admin.log_documents import session_with
from spark_bookkeeper.cli import run
from spark_bookkeeper.ledger.errors import LedgerFencedError
from tests.patience import Deadline
from tests.spark.conftest import Logs, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILE_ROWS = 500


class Stream:
    """A query from a folder of files into a log: every file is one micro-batch."""

    def __init__(self, spark: SparkSession, uri: str, directory: Path, log: str) -> None:
        self.source = directory / "source"
        self.checkpoint = directory / "checkpoint"
        self._spark = spark
        self._uri = uri
        self._log = log
        self._files = 0

    def add_file(self) -> None:
        """More input: the next ids."""
        first = self._files * FILE_ROWS
        frame = self._spark.range(first, first + FILE_ROWS, 1, 1)
        frame.write.mode("append").parquet(str(self.source))
        self._files += 1

    def run(
        self, change: Callable[[DataFrame], DataFrame] = lambda frame: frame, **options: Any
    ) -> list[dict[str, Any]]:
        """Run until the input is used up; returns the progress of each micro-batch."""
        reader = self._spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
        mode = options.pop("outputMode", "append")
        writer = change(reader.parquet(str(self.source))).writeStream.format("bookkeeper")
        writer = writer.option("metadataServiceUri", self._uri).option("log", self._log)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).outputMode(mode)
        query = writer.options(**options).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [json.loads(progress.json) for progress in query.recentProgress]

    def forget_the_last_commit(self) -> None:
        """As if the driver had died between our commit and Spark's note of it."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*"))
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


@pytest.fixture
def stream(
    request: pytest.FixtureRequest, spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> Stream:
    log = request.node.name.removeprefix("test_")[:60]
    return Stream(spark, cluster.metadata_service_uri, tmp_path, log)


def tokens(cluster: LocalCluster, log: str) -> list[int]:
    session = session_with(cluster.metadata_service_uri)
    return session.run(session.run(session.catalog.open(log)).epochs())


def test_every_row_once_over_batches_restarts_and_a_replay(
    stream: Stream, logs: Logs, cluster: LocalCluster, bk: BookKeeper
) -> None:
    log = "every_row_once_over_batches_restarts_and_a_replay"
    before = set(bk.list_ledgers())
    for _ in range(2):
        stream.add_file()
    first = stream.run()
    stream.forget_the_last_commit()
    stream.add_file()

    second = stream.run()

    assert [progress["batchId"] for progress in first] == [0, 1]
    assert [progress["batchId"] for progress in second] == [1, 2]
    facts = logs.read(log).agg(sf.count("id"), sf.count_distinct("id"), sf.sum("id")).collect()[0]
    count = 3 * FILE_ROWS
    assert tuple(facts) == (count, count, sum(range(count)))
    assert tokens(cluster, log) == []
    visible = {row[0] for row in logs.read(log, includeMetadata="true").select("_ledger").collect()}
    assert set(bk.list_ledgers()) - before == visible


def test_complete_mode_replaces_the_whole_log(
    stream: Stream, logs: Logs, spark: SparkSession
) -> None:
    for _ in range(2):
        stream.add_file()

    stream.run(
        lambda frame: frame.groupBy((sf.col("id") % 3).alias("day")).count(), outputMode="complete"
    )

    expected = spark.range(2 * FILE_ROWS).groupBy((sf.col("id") % 3).alias("day")).count()
    assert rows(logs.read("complete_mode_replaces_the_whole_log")) == rows(expected)


def test_columns_that_do_not_fit_fail_before_any_task(
    stream: Stream, logs: Logs, spark: SparkSession, cluster: LocalCluster
) -> None:
    log = "columns_that_do_not_fit_fail_before_any_task"
    logs.write(spark.createDataFrame([], "id string"), log)
    stream.add_file()

    with pytest.raises(StreamingQueryException, match=r"BK_SCHEMA_MISMATCH.*id: is bigint"):
        stream.run()

    assert tokens(cluster, log) == []


def test_a_query_started_again_with_more_columns_adds_them(
    logs: Logs, stream: Stream, request: pytest.FixtureRequest
) -> None:
    log = request.node.name.removeprefix("test_")[:60]
    stream.add_file()
    stream.run()

    stream.add_file()
    stream.run(lambda frame: frame.withColumn("twice", sf.col("id") * 2), mergeSchema="true")

    back = logs.read(log)
    assert back.columns == ["id", "twice"]
    assert rows(back.groupBy("twice").count().where("twice IS NULL")) == [
        f"Row(twice=None, count={FILE_ROWS})"
    ]
    assert back.where("twice = id * 2").count() == FILE_ROWS


def test_a_stream_takes_a_log_over_only_when_told_to(
    stream: Stream, logs: Logs, bk: BookKeeper
) -> None:
    log = "a_stream_takes_a_log_over_only_when_told_to"
    writer = bk.create_log(log).writer()
    writer.append(b"outside")
    stream.add_file()

    def as_values(frame: DataFrame) -> DataFrame:
        return frame.where("id < 3").selectExpr("cast(cast(id AS string) AS binary) AS value")

    with pytest.raises(StreamingQueryException, match="BK_LOG_HAS_WRITER"):
        stream.run(as_values)
    stream.run(as_values, takeOver="true")

    values = sorted(bytes(row.value) for row in logs.read(log).collect())
    assert values == [b"0", b"1", b"2", b"outside"]
    with pytest.raises(LedgerFencedError):
        writer.append(b"late")


def test_transactions_are_listed_and_forgotten_by_command(
    stream: Stream, logs: Logs, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    log = "transactions_are_listed_and_forgotten_by_command"
    at = ["--metadata-service-uri", cluster.metadata_service_uri, "--json"]
    stream.add_file()
    stream.run()

    assert run(["logs", "txns", "list", log, *at]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["transactions"]
    assert listed["version"] == 0
    assert run(["logs", "txns", "forget", log, listed["app_id"], "--yes", *at]) == 0
    assert json.loads(capsys.readouterr().out)["forgotten_version"] == 0
    assert run(["logs", "txns", "forget", log, listed["app_id"], "--yes", *at]) == 0
    assert json.loads(capsys.readouterr().out)["forgotten_version"] is None

    stream.forget_the_last_commit()
    stream.run()
    assert logs.read(log).count() == 2 * FILE_ROWS


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"txnAppId": "x", "txnVersion": "1"}, "txnAppId is for a batch write, not a stream write"),
        ({"entrybyte": "1m"}, "did you mean entryBytes"),
        ({"asyncProgressTrackingEnabled": "true"}, "does not support async progress tracking"),
        ({"outputMode": "update"}, "does not support Update mode"),
    ],
)
def test_what_no_stream_can_serve_fails_the_query(
    stream: Stream, option: dict[str, Any], says: str
) -> None:
    stream.add_file()

    with pytest.raises(Exception, match=says):
        stream.run(**option)


def test_a_continuous_query_commits_nothing_and_names_the_reason_in_sparks_log(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path, spark_directory: Path
) -> None:
    """Spark 4.3 swallows the error of a continuous commit, so the query itself goes on idly."""
    rate = spark.readStream.format("rate").option("numPartitions", 1).load()
    writer = rate.writeStream.format("bookkeeper").option("log", "continuous")
    writer = writer.option("metadataServiceUri", cluster.metadata_service_uri)
    query = (
        writer.option("checkpointLocation", str(tmp_path)).trigger(continuous="1 second").start()
    )
    try:
        deadline = Deadline(60)
        while "BK_CONTINUOUS_UNSUPPORTED" not in (spark_directory / "spark.log").read_text():
            assert not deadline.has_passed
            query.awaitTermination(1)
    finally:
        query.stop()

    assert not list((tmp_path / "commits").glob("[0-9]*"))
