"""Streaming writes on real Spark: batches once, replays, complete mode, what is refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.cli import run
from spark_bookkeeper.ledger.errors import LedgerFencedError
from spark_bookkeeper.log.format.epoch import TokenState
from tests.spark.calls import finish, forget_the_last_commit, ids_in
from tests.spark.conftest import Logs, rows
from tests.spark.waits import wait_until
from tests.spark.witness import Witness

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILE_ROWS = 500


class Stream(Logs):
    """A query from a folder of files into a log: every file is one micro-batch."""

    def __init__(self, spark: SparkSession, uri: str, log: str, directory: Path) -> None:
        super().__init__(spark, uri, log)
        self._directory = str(directory)
        self._files = 0

    def add_file(self) -> None:
        """More input: the next ids."""
        first = self._files * FILE_ROWS
        frame = self.spark.range(first, first + FILE_ROWS, 1, 1)
        frame.write.mode("append").parquet(f"{self._directory}/source")
        self._files += 1

    def run(
        self, change: Callable[[DataFrame], DataFrame] = lambda frame: frame, **options: Any
    ) -> list[dict[str, Any]]:
        """Run until the input is used up; returns the progress of each micro-batch."""
        mode = options.pop("outputMode", "append")
        frame = change(ids_in(self.spark, self._directory, maxFilesPerTrigger=1))
        writer = frame.writeStream.format("bookkeeper").options(**self.options())
        writer = writer.option("checkpointLocation", self._directory).outputMode(mode)
        return [json.loads(told.json) for told in finish(writer.options(**options)).recentProgress]

    def tokens(self) -> dict[int, TokenState]:
        return Witness(self.uri, self.log).tokens()


@pytest.fixture
def stream(spark: SparkSession, cluster: LocalCluster, log: str, tmp_path: Path) -> Stream:
    return Stream(spark, cluster.metadata_service_uri, log, tmp_path)


def test_every_row_once_over_batches_restarts_and_a_replay(
    stream: Stream, bk: BookKeeper, tmp_path: Path
) -> None:
    before = set(bk.list_ledgers())
    for _ in range(2):
        stream.add_file()
    first = stream.run()
    forget_the_last_commit(tmp_path)
    stream.add_file()

    second = stream.run()

    assert [progress["batchId"] for progress in first] == [0, 1]
    assert [progress["batchId"] for progress in second] == [1, 2]
    assert stream.ids() == list(range(3 * FILE_ROWS))
    assert stream.tokens() == {}
    assert set(bk.list_ledgers()) - before == stream.ledgers()


def test_complete_mode_replaces_the_whole_log(stream: Stream) -> None:
    def counted(frame: DataFrame) -> DataFrame:
        return frame.groupBy((sf.col("id") % 3).alias("day")).count()

    for _ in range(2):
        stream.add_file()

    stream.run(counted, outputMode="complete")

    assert rows(stream.read()) == rows(counted(stream.spark.range(2 * FILE_ROWS)))


def test_columns_that_do_not_fit_fail_before_any_task(stream: Stream, bk: BookKeeper) -> None:
    stream.write(stream.spark.createDataFrame([], "id string"))
    stream.add_file()

    with pytest.raises(StreamingQueryException, match=r"BK_SCHEMA_MISMATCH.*id: is bigint"):
        stream.run()

    assert stream.tokens() == {}


def test_a_query_started_again_with_more_columns_adds_them(stream: Stream) -> None:
    stream.add_file()
    stream.run()

    stream.add_file()
    stream.run(lambda frame: frame.withColumn("twice", sf.col("id") * 2), mergeSchema="true")

    back = stream.read()
    assert back.columns == ["id", "twice"]
    assert rows(back.groupBy("twice").count().where("twice IS NULL")) == [
        f"Row(twice=None, count={FILE_ROWS})"
    ]
    assert back.where("twice = id * 2").count() == FILE_ROWS


def test_a_stream_takes_a_log_over_only_when_told_to(stream: Stream, bk: BookKeeper) -> None:
    writer = bk.create_log(stream.log).writer()
    writer.append(b"outside")
    stream.add_file()

    def as_values(frame: DataFrame) -> DataFrame:
        return frame.where("id < 3").selectExpr("cast(cast(id AS string) AS binary) AS value")

    with pytest.raises(StreamingQueryException, match="BK_LOG_HAS_WRITER"):
        stream.run(as_values)
    with pytest.raises(StreamingQueryException, match="BK_UNAUTHORIZED"):
        stream.run(as_values, takeOver="true", password="another")
    writer.append(b"outside still")
    stream.run(as_values, takeOver="true")

    values = sorted(bytes(row.value) for row in stream.read().collect())
    assert values == [b"0", b"1", b"2", b"outside", b"outside still"]
    with pytest.raises(LedgerFencedError):
        writer.append(b"late")


def test_transactions_are_listed_and_forgotten_by_command(
    stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def txns(*command: str) -> dict[str, Any]:
        at = ["--metadata-service-uri", stream.uri, "--json"]
        assert run(["logs", "txns", command[0], stream.log, *command[1:], *at]) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    stream.add_file()
    stream.run()

    (listed,) = txns("list")["transactions"]
    assert listed["version"] == 0
    for forgotten in (0, None):
        assert txns("forget", listed["app_id"], "--yes")["forgotten_version"] == forgotten

    forget_the_last_commit(tmp_path)
    stream.run()
    assert stream.read().count() == 2 * FILE_ROWS


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


def sparks_log() -> Path:
    """Where the JVM prints to: if an earlier test of this process began it, into the file of that test."""
    gateway: Any = SparkContext._gateway
    return Path(f"/proc/{gateway.proc.pid}/fd/2")


def test_a_continuous_query_commits_nothing_and_names_the_reason_in_sparks_log(
    logs: Logs, tmp_path: Path
) -> None:
    """Spark 4.3 swallows the error of a continuous commit, so the query itself goes on idly."""
    rate = logs.spark.readStream.format("rate").option("numPartitions", 1).load()
    writer = rate.writeStream.format("bookkeeper").options(**logs.options())
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(continuous="1 second")
    query = writer.start()
    try:
        reason = "BK_CONTINUOUS_UNSUPPORTED"
        wait_until(
            lambda: reason in sparks_log().read_text(),
            f"{reason} in {sparks_log()}",
            lambda: str(query.exception() or ""),
        )
    finally:
        # Shown if the test fails: another error of Spark's would be there.
        logging.warning("%s %s", query.status, sparks_log().read_text()[-10_000:])
        query.stop()

    assert not list((tmp_path / "commits").glob("[0-9]*"))


def test_two_queries_under_one_application_id_are_told_apart(
    stream: Stream, tmp_path: Path
) -> None:
    """The second's rows would pass for the first's, once more, and vanish without a word."""
    stream.add_file()

    def run_query(name: str) -> None:
        def append(batch: DataFrame, batch_id: int) -> None:
            stream.write(batch, txnAppId="for-each", txnVersion=batch_id)

        frame = ids_in(stream.spark, str(tmp_path))
        writer = frame.writeStream.foreachBatch(append)
        finish(writer.option("checkpointLocation", f"{tmp_path}/{name}"))

    run_query("first")
    with pytest.raises(StreamingQueryException, match="BK_TXN_APP_REUSED"):
        run_query("second")
    assert stream.ids() == list(range(FILE_ROWS))

    # The same query's batch once more is a replay, and no error.
    forget_the_last_commit(tmp_path / "first")
    run_query("first")
    assert stream.ids() == list(range(FILE_ROWS))
