"""Streaming reads on real Spark: where they begin, how much a batch reads, what a restart repeats."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.admin.log_documents import session_with
from spark_bookkeeper.log.settings import LogWriterSettings
from tests.patience import Deadline, seconds
from tests.spark.conftest import Logs

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DEADLINE_S = 60


class Streams:
    """Streaming reads of one cluster's logs into lists of batches."""

    def __init__(self, spark: SparkSession, uri: str, directory: Path) -> None:
        self._spark = spark
        self._uri = uri
        self._checkpoint = str(directory / "checkpoint")
        self.batches: dict[int, list[Row]] = {}
        """Rows by batch; a batch that comes again must be the same."""
        self._running: list[StreamingQuery] = []

    def read(self, log: str, **options: object) -> DataFrame:
        reader = self._spark.readStream.format("bookkeeper").option("log", log)
        reader = reader.option("metadataServiceUri", self._uri)
        for key, value in options.items():
            reader = reader.option(key, str(value))
        return reader.load()

    def start(
        self,
        frame: DataFrame,
        *,
        collect: Callable[[DataFrame, int], None] | None = None,
        **trigger: Any,
    ) -> StreamingQuery:
        def keep(batch: DataFrame, batch_id: int) -> None:
            found = batch.collect()
            assert sorted(map(repr, self.batches.setdefault(batch_id, found))) == sorted(
                map(repr, found)
            )

        writer = frame.writeStream.foreachBatch(collect or keep)
        writer = writer.option("checkpointLocation", self._checkpoint)
        if trigger:
            writer = writer.trigger(**trigger)
        query = writer.start()
        self._running.append(query)
        return query

    def finish(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        """Run what is there to its end."""
        query = self.start(frame, **(trigger or {"availableNow": True}))
        assert query.awaitTermination(int(seconds(DEADLINE_S)))
        return query

    def rows(self) -> list[Row]:
        return [row for batch in self.batches.values() for row in batch]

    def wait_for(self, is_reached: Callable[[], bool]) -> None:
        deadline, tick = Deadline(DEADLINE_S), threading.Event()
        while not is_reached():
            for query in self._running:
                if (error := query.exception()) is not None:
                    raise error
            assert not deadline.has_passed, self.batches
            tick.wait(0.05)

    def forget(self) -> None:
        """Begin again, with another checkpoint and no rows."""
        self._checkpoint += "-again"
        self.batches.clear()

    def stop(self) -> None:
        for query in self._running:
            query.stop()
        self._running.clear()


@pytest.fixture
def streams(spark: SparkSession, cluster: LocalCluster, tmp_path: Path):  # type: ignore[no-untyped-def]
    made = Streams(spark, cluster.metadata_service_uri, tmp_path)
    yield made
    made.stop()


def progress(query: StreamingQuery) -> dict[str, Any]:
    """The source's part of what the query last told."""
    last = query.lastProgress
    return {} if last is None else dict(json.loads(last.json)["sources"][0])


def ids(rows: list[Row]) -> list[int]:
    return sorted(row.id for row in rows)


def test_a_stream_reads_what_is_there_and_what_comes(
    logs: Logs, streams: Streams, spark: SparkSession
) -> None:
    logs.write(spark.range(0, 10), "follow")
    query = streams.start(streams.read("follow", startingOffsets="earliest"))
    streams.wait_for(lambda: len(streams.rows()) == 10)

    logs.write(spark.range(10, 30, 1, 3), "follow")
    streams.wait_for(lambda: len(streams.rows()) == 30)

    assert ids(streams.rows()) == list(range(30))
    streams.wait_for(lambda: progress(query).get("endOffset", {}).get("row") == 30)
    assert progress(query)["startOffset"]["row"] == 10
    assert progress(query)["latestOffset"]["row"] == 30


def test_row_limits_are_exact_inside_entries_and_a_run_of_what_is_there_ends(
    logs: Logs, streams: Streams, spark: SparkSession
) -> None:
    logs.write(spark.range(0, 1000, 1, 2), "stream-limited")

    streams.finish(
        streams.read("stream-limited", startingOffsets="earliest", maxRowsPerTrigger=300)
    )

    assert [len(rows) for rows in streams.batches.values()] == [300, 300, 300, 100]
    assert ids(streams.rows()) == list(range(1000))


@pytest.mark.full
def test_byte_limits_make_more_batches(logs: Logs, streams: Streams, spark: SparkSession) -> None:
    logs.write(spark.range(0, 20_000, 1, 1), "bytes", entryBytes="8k", compression="none")

    streams.finish(streams.read("bytes", startingOffsets="earliest", maxBytesPerTrigger="50k"))

    assert 3 <= len(streams.batches) <= 5
    assert ids(streams.rows()) == list(range(20_000))


def test_a_restart_goes_on_where_the_checkpoint_says(
    logs: Logs, streams: Streams, spark: SparkSession
) -> None:
    logs.write(spark.range(0, 10), "restarted")
    frame = streams.read("restarted", startingOffsets="earliest")
    streams.finish(frame)
    logs.write(spark.range(10, 20), "restarted")

    streams.finish(frame)
    streams.finish(frame)

    assert [ids(rows) for rows in streams.batches.values()] == [
        list(range(10)), list(range(10, 20)),
    ]  # fmt: skip


def test_a_latest_start_stays_where_it_was_although_the_first_batch_failed(
    logs: Logs, streams: Streams, spark: SparkSession
) -> None:
    logs.write(spark.range(0, 10), "pinned")
    frame = streams.read("pinned")
    query = streams.start(frame, collect=_fail)
    with pytest.raises(Exception, match="on purpose"):
        query.awaitTermination(int(seconds(DEADLINE_S)))
    logs.write(spark.range(10, 15), "pinned")

    streams.finish(frame)

    assert ids(streams.rows()) == list(range(10, 15))


@pytest.mark.full
def test_once_reads_everything_whatever_the_limits(
    logs: Logs, streams: Streams, spark: SparkSession
) -> None:
    logs.write(spark.range(0, 100, 1, 4), "once")

    streams.finish(streams.read("once", startingOffsets="earliest", maxRowsPerTrigger=7), once=True)

    assert [len(rows) for rows in streams.batches.values()] == [100]


@pytest.mark.full
def test_few_rows_wait_for_more_or_for_the_delay(
    logs: Logs, streams: Streams, spark: SparkSession
) -> None:
    logs.write(spark.range(0, 5), "patient")
    options = {"startingOffsets": "earliest", "minRowsPerTrigger": 8, "maxTriggerDelay": "1h"}
    query = streams.start(streams.read("patient", **options))
    streams.wait_for(lambda: bool(streams.batches))
    logs.write(spark.range(5, 10), "patient")
    streams.wait_for(lambda: len(streams.rows()) == 10)
    logs.write(spark.range(10, 12), "patient")
    query.stop()

    streams.start(streams.read("patient", **{**options, "maxTriggerDelay": "1s"}))
    streams.wait_for(lambda: len(streams.rows()) == 12)

    assert [len(rows) for rows in streams.batches.values()] == [0, 10, 2]


def test_the_open_ledger_of_a_writer_is_followed_over_rolls_and_take_overs(
    streams: Streams, bk: BookKeeper
) -> None:
    bk.create_log("open-tail")
    written = []
    frame = streams.read("open-tail", startingOffsets="earliest", includeMetadata="true")
    with bk.open_log("open-tail").writer(settings=LogWriterSettings(roll_entries=7)) as writer:
        query = streams.start(frame)
        for at in range(20):
            written.append(b"%d" % at)
            writer.append(written[-1])
        streams.wait_for(lambda: len(streams.rows()) == 20)
        query.stop()
        with bk.open_log("open-tail").writer() as successor:
            streams.start(frame)
            for at in range(20, 30):
                written.append(b"%d" % at)
                successor.append(written[-1])
            streams.wait_for(lambda: len(streams.rows()) == 30)

    found = sorted((row._position, bytes(row.value)) for row in streams.rows())
    assert found == list(enumerate(written))


@pytest.mark.full
def test_overwritten_rows_fail_a_stream_that_was_behind_or_are_passed_over(
    logs: Logs, streams: Streams, spark: SparkSession
) -> None:
    logs.write(spark.range(0, 10), "replaced")
    options = {"startingOffsets": "earliest", "maxRowsPerTrigger": 4}
    query = streams.start(streams.read("replaced", **options), once=True, collect=_fail)
    with pytest.raises(Exception, match="on purpose"):
        query.awaitTermination(int(seconds(DEADLINE_S)))
    logs.write(spark.range(100, 103), "replaced", mode="overwrite")

    with pytest.raises(Exception, match=r"BK_LOG_OVERWRITTEN.*wanted_row=0 first_row=10"):
        streams.finish(streams.read("replaced", **options))
    streams.finish(streams.read("replaced", **options, ignoreOverwrites="true"))

    assert ids(streams.rows()) == [100, 101, 102]


@pytest.mark.full
def test_trimmed_rows_fail_a_stream_or_are_passed_over(
    logs: Logs, streams: Streams, spark: SparkSession, bk: BookKeeper
) -> None:
    logs.write(spark.range(0, 10, 1, 1), "trimmed")
    frame = streams.read("trimmed", startingOffsets="earliest")
    streams.finish(frame)
    logs.write(spark.range(10, 20, 1, 1), "trimmed")
    logs.write(spark.range(20, 30, 1, 1), "trimmed")
    bk.open_log("trimmed").truncate(20)

    with pytest.raises(Exception, match=r"BK_DATA_LOSS.*wanted_row=10 first_row=20"):
        streams.finish(frame)
    streams.finish(streams.read("trimmed", failOnDataLoss="false"))

    assert ids(streams.rows()) == [*range(10), *range(20, 30)]


@pytest.mark.full
def test_truncation_and_overwrites_behind_a_running_stream_change_nothing_for_it(
    logs: Logs, streams: Streams, spark: SparkSession, bk: BookKeeper
) -> None:
    logs.write(spark.range(0, 10, 1, 1), "running")
    streams.start(streams.read("running", startingOffsets="earliest"))
    streams.wait_for(lambda: len(streams.rows()) == 10)

    bk.open_log("running").truncate(10)
    logs.write(spark.range(10, 20, 1, 1), "running")
    streams.wait_for(lambda: len(streams.rows()) == 20)
    logs.write(spark.range(20, 25), "running", mode="overwrite")
    streams.wait_for(lambda: len(streams.rows()) == 25)

    assert ids(streams.rows()) == list(range(25))


@pytest.mark.full
def test_a_stream_begins_with_what_was_committed_since_a_time(
    logs: Logs, streams: Streams, spark: SparkSession
) -> None:
    logs.write(spark.range(0, 10, 1, 1), "timed")
    logs.write(spark.range(10, 20, 1, 1), "timed")
    times = [row.t for row in _times(logs.read("timed", includeMetadata="true"))]

    streams.finish(streams.read("timed", startingTimestamp=times[1]))

    assert ids(streams.rows()) == list(range(10, 20))
    streams.forget()
    with pytest.raises(Exception, match="BK_NO_MATCHING_TIMESTAMP"):
        streams.finish(streams.read("timed", startingTimestamp=times[1] + 10**9))


def test_a_consumer_follows_one_batch_behind_and_retention_follows_it(
    logs: Logs, streams: Streams, spark: SparkSession, cluster: LocalCluster, bk: BookKeeper
) -> None:
    for first in range(0, 30, 10):
        logs.write(spark.range(first, first + 10, 1, 1), "retained")
    options = {"startingOffsets": "earliest", "maxRowsPerTrigger": 10, "consumer": "report"}
    streams.finish(streams.read("retained", **options))
    session = session_with(cluster.metadata_service_uri)
    log_id = bk.open_log("retained").log_id
    consumers = session.consumers(log_id, "retained")

    row = session.run(consumers.consumed_row())
    first_row = session.run(session.truncate(log_id, "retained", row))

    assert (row, first_row) == (20, 20)
    assert ids(logs.read("retained").collect()) == list(range(20, 30))


def test_a_stream_of_a_log_that_is_not_there_says_so(streams: Streams) -> None:
    with pytest.raises(Exception, match="BK_NO_SUCH_LOG"):
        streams.read("nowhere")


def test_wrong_options_are_told_before_the_query_runs(
    logs: Logs, streams: Streams, spark: SparkSession
) -> None:
    logs.write(spark.range(3), "wrong-options")

    with pytest.raises(Exception, match=r"BK_OPTION_INVALID.*minRowsPerTrigger must not be above"):
        streams.finish(streams.read("wrong-options", minRowsPerTrigger=5, maxRowsPerTrigger=4))


@pytest.mark.full
def test_two_logs_are_read_by_one_query(logs: Logs, streams: Streams, spark: SparkSession) -> None:
    logs.write(spark.range(0, 10), "one-of-two")
    logs.write(spark.range(100, 110), "two-of-two")
    options = {"startingOffsets": "earliest", "maxRowsPerTrigger": 6}
    both = streams.read("one-of-two", **options).union(streams.read("two-of-two", **options))
    streams.finish(both)
    logs.write(spark.range(110, 112), "two-of-two")

    streams.finish(both)

    assert ids(streams.rows()) == [*range(10), *range(100, 112)]


def test_a_recreated_log_is_not_taken_for_the_old_one(
    logs: Logs, streams: Streams, spark: SparkSession, bk: BookKeeper
) -> None:
    logs.write(spark.range(0, 10), "again")
    frame = streams.read("again", startingOffsets="earliest")
    streams.finish(frame)
    bk.delete_log("again")
    logs.write(spark.range(0, 10), "again")

    with pytest.raises(Exception, match="BK_LOG_RECREATED") as caught:
        streams.finish(frame)

    told = str(caught.value)
    assert "start with a new checkpoint" in told
    assert "direct cause" not in told
    assert told.count("Traceback (most recent call last)") == 1


def _times(frame: DataFrame) -> list[Row]:
    """The times rows were committed at, in ms."""
    return frame.selectExpr("unix_millis(_timestamp) AS t").distinct().sort("t").collect()


def _fail(batch: DataFrame, batch_id: int) -> None:
    raise RuntimeError("on purpose")
