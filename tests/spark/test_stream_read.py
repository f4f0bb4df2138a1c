"""Streaming reads on real Spark: where they begin, how much a batch reads, what a restart repeats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.admin.log_documents import session_with
from spark_bookkeeper.log.settings import LogWriterSettings
from tests.spark.conftest import Logs
from tests.spark.waits import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Streams(Logs):
    """Streaming reads of one log into lists of batches."""

    def __init__(self, spark: SparkSession, uri: str, log: str, directory: Path) -> None:
        super().__init__(spark, uri, log)
        self._checkpoint = str(directory / "checkpoint")
        self.batches: dict[int, list[Row]] = {}
        """Rows by batch; a batch that comes again must be the same."""
        self._running: list[StreamingQuery] = []

    def frame(self, **options: Any) -> DataFrame:
        """The log from its first row on."""
        return self.stream(startingOffsets="earliest", **options)

    def start(
        self,
        frame: DataFrame,
        *,
        collect: Callable[[DataFrame, int], None] | None = None,
        **trigger: Any,
    ) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(collect or self._keep)
        writer = writer.option("checkpointLocation", self._checkpoint)
        query = (writer.trigger(**trigger) if trigger else writer).start()
        self._running.append(query)
        return query

    def finish(self, frame: DataFrame, **trigger: Any) -> None:
        """Run what is there to its end."""
        self.start(frame, **(trigger or {"availableNow": True})).awaitTermination()

    def fail(self, frame: DataFrame, **trigger: Any) -> None:
        """Run a first batch, which fails when its rows have been read."""
        with pytest.raises(Exception, match="on purpose"):
            self.start(frame, collect=_fail, **trigger).awaitTermination()

    def rows(self) -> list[Row]:
        return [row for batch in self.batches.values() for row in batch]

    def seen(self) -> list[int]:
        """The ids of all batches."""
        return sorted(row.id for row in self.rows())

    def sizes(self) -> list[int]:
        """Of each batch."""
        return [len(rows) for rows in self.batches.values()]

    def wait_for(self, is_reached: Callable[[], bool]) -> None:
        def failed() -> str:
            return str([error for each in self._running if (error := each.exception())] or "")

        wait_until(is_reached, "rows", failed)

    def wait_for_rows(self, count: int) -> None:
        self.wait_for(lambda: sum(self.sizes()) == count)

    def forget(self) -> None:
        """Begin again, with another checkpoint and no rows."""
        self._checkpoint += "-again"
        self.batches.clear()

    def stop(self) -> None:
        for query in self._running:
            query.stop()

    def _keep(self, batch: DataFrame, batch_id: int) -> None:
        found = batch.collect()
        known = self.batches.setdefault(batch_id, found)
        assert sorted(map(repr, known)) == sorted(map(repr, found))


@pytest.fixture
def streams(
    spark: SparkSession, cluster: LocalCluster, log: str, tmp_path: Path
) -> Iterator[Streams]:
    made = Streams(spark, cluster.metadata_service_uri, log, tmp_path)
    yield made
    made.stop()


def test_a_stream_reads_what_is_there_and_what_comes(streams: Streams) -> None:
    streams.write(range(10))
    query = streams.start(streams.frame())
    streams.wait_for_rows(10)

    streams.write(range(10, 30), partitions=3)
    streams.wait_for_rows(30)

    assert streams.seen() == list(range(30))

    def offsets() -> list[tuple[int, ...]]:
        """Where each batch began, ended, and the log ended."""
        told = [json.loads(each.json)["sources"][0] for each in query.recentProgress]
        keys = ("startOffset", "endOffset", "latestOffset")
        return [tuple((each[key] or {}).get("row", -1) for key in keys) for each in told]

    streams.wait_for(lambda: (10, 30, 30) in offsets())


def test_row_limits_are_exact_inside_entries_and_a_run_of_what_is_there_ends(
    streams: Streams,
) -> None:
    streams.write(range(1000), partitions=2)

    streams.finish(streams.frame(maxRowsPerTrigger=300))

    assert streams.sizes() == [300, 300, 300, 100]
    assert streams.seen() == list(range(1000))


@pytest.mark.full
def test_byte_limits_make_more_batches(streams: Streams) -> None:
    ids = range(20_000)
    streams.write(ids, partitions=1, entryBytes="8k", compression="none")

    streams.finish(streams.frame(maxBytesPerTrigger="50k"))

    assert 3 <= len(streams.batches) <= 5
    assert streams.seen() == list(ids)


def test_a_restart_goes_on_where_the_checkpoint_says(streams: Streams) -> None:
    streams.write(range(10))
    frame = streams.frame()
    streams.finish(frame)
    streams.write(range(10, 20))

    streams.finish(frame)
    streams.finish(frame)

    assert streams.sizes() == [10, 10]
    assert sorted(row.id for row in streams.batches[1]) == list(range(10, 20))
    assert streams.seen() == list(range(20))


def test_a_latest_start_stays_where_it_was_although_the_first_batch_failed(
    streams: Streams,
) -> None:
    streams.write(range(10))
    frame = streams.stream()
    streams.fail(frame)
    streams.write(range(10, 15))

    streams.finish(frame)

    assert streams.seen() == list(range(10, 15))


@pytest.mark.full
def test_once_reads_everything_whatever_the_limits(streams: Streams) -> None:
    streams.write(range(100), partitions=4)

    streams.finish(streams.frame(maxRowsPerTrigger=7), once=True)

    assert streams.sizes() == [100]


@pytest.mark.full
def test_few_rows_wait_for_more_or_for_the_delay(streams: Streams) -> None:
    streams.write(range(5))
    query = streams.start(streams.frame(minRowsPerTrigger=8, maxTriggerDelay="1h"))
    streams.wait_for(lambda: bool(streams.batches))
    streams.write(range(5, 10))
    streams.wait_for_rows(10)
    streams.write(range(10, 12))
    query.stop()

    streams.start(streams.frame(minRowsPerTrigger=8, maxTriggerDelay="1s"))
    streams.wait_for_rows(12)

    assert streams.sizes() == [0, 10, 2]


def test_the_open_ledger_of_a_writer_is_followed_over_rolls_and_take_overs(
    streams: Streams, bk: BookKeeper
) -> None:
    log = bk.create_log(streams.log)
    written = [b"%d" % at for at in range(30)]
    frame = streams.frame(includeMetadata="true")
    with log.writer(settings=LogWriterSettings(roll_entries=7)) as writer:
        query = streams.start(frame)
        for each in written[:20]:
            writer.append(each)
        streams.wait_for_rows(20)
        query.stop()
        with log.writer() as successor:
            streams.start(frame)
            for each in written[20:]:
                successor.append(each)
            streams.wait_for_rows(30)

    found = sorted((row._position, bytes(row.value)) for row in streams.rows())
    assert found == list(enumerate(written))


@pytest.mark.full
def test_overwritten_rows_fail_a_stream_that_was_behind_or_are_passed_over(
    streams: Streams,
) -> None:
    streams.write(range(10))
    streams.fail(streams.frame(maxRowsPerTrigger=4), once=True)
    streams.write(range(100, 103), mode="overwrite")

    with pytest.raises(Exception, match=r"BK_LOG_OVERWRITTEN.*wanted_row=0 first_row=10"):
        streams.finish(streams.frame(maxRowsPerTrigger=4))
    streams.finish(streams.frame(maxRowsPerTrigger=4, ignoreOverwrites="true"))

    assert streams.seen() == [100, 101, 102]


@pytest.mark.full
def test_trimmed_rows_fail_a_stream_or_are_passed_over(streams: Streams, bk: BookKeeper) -> None:
    streams.write(range(10), partitions=1)
    frame = streams.frame()
    streams.finish(frame)
    streams.write(range(10, 20), partitions=1)
    streams.write(range(20, 30), partitions=1)
    bk.open_log(streams.log).truncate(20)

    with pytest.raises(Exception, match=r"BK_DATA_LOSS.*wanted_row=10 first_row=20"):
        streams.finish(frame)
    streams.finish(streams.stream(failOnDataLoss="false"))

    assert streams.seen() == [*range(10), *range(20, 30)]


@pytest.mark.full
def test_truncation_and_overwrites_behind_a_running_stream_change_nothing_for_it(
    streams: Streams, bk: BookKeeper
) -> None:
    streams.write(range(10), partitions=1)
    streams.start(streams.frame())
    streams.wait_for_rows(10)

    bk.open_log(streams.log).truncate(10)
    streams.write(range(10, 20), partitions=1)
    streams.wait_for_rows(20)
    streams.write(range(20, 25), mode="overwrite")
    streams.wait_for_rows(25)

    assert streams.seen() == list(range(25))


@pytest.mark.full
def test_a_stream_begins_with_what_was_committed_since_a_time(streams: Streams) -> None:
    streams.write(range(10), partitions=1)
    streams.write(range(10, 20), partitions=1)
    times = streams.read(includeMetadata="true").selectExpr("max(unix_millis(_timestamp))")
    (second,) = times.collect()[0]

    streams.finish(streams.stream(startingTimestamp=second))

    assert streams.seen() == list(range(10, 20))
    streams.forget()
    with pytest.raises(Exception, match="BK_NO_MATCHING_TIMESTAMP"):
        streams.finish(streams.stream(startingTimestamp=second + 10**9))


def test_a_consumer_follows_one_batch_behind_and_retention_follows_it(
    streams: Streams, cluster: LocalCluster, bk: BookKeeper
) -> None:
    for first in (0, 10, 20):
        streams.write(range(first, first + 10), partitions=1)
    streams.finish(streams.frame(maxRowsPerTrigger=10, consumer="report"))
    session = session_with(cluster.metadata_service_uri)
    log_id = bk.open_log(streams.log).log_id
    consumers = session.consumers(log_id, streams.log)

    row = session.run(consumers.consumed_row())
    first_row = session.run(session.truncate(log_id, streams.log, row)).first_row

    assert (row, first_row) == (20, 20)
    assert streams.ids() == list(range(20, 30))


def test_a_stream_of_a_log_that_is_not_there_says_so(streams: Streams) -> None:
    with pytest.raises(Exception, match="BK_NO_SUCH_LOG"):
        streams.stream("nowhere")


def test_wrong_options_are_told_before_the_query_runs(streams: Streams) -> None:
    streams.write(range(3))
    frame = streams.stream(minRowsPerTrigger=5, maxRowsPerTrigger=4)

    with pytest.raises(Exception, match=r"BK_OPTION_INVALID.*minRowsPerTrigger must not be above"):
        streams.finish(frame)


@pytest.mark.full
def test_two_logs_are_read_by_one_query(streams: Streams) -> None:
    other = f"{streams.log}-other"
    streams.write(range(10))
    streams.write(range(100, 110), other)
    one, two = (
        streams.stream(log, startingOffsets="earliest", maxRowsPerTrigger=6)
        for log in (streams.log, other)
    )
    both = one.union(two)
    streams.finish(both)
    streams.write(range(110, 112), other)

    streams.finish(both)

    assert streams.seen() == [*range(10), *range(100, 112)]


def test_a_recreated_log_is_not_taken_for_the_old_one(streams: Streams, bk: BookKeeper) -> None:
    streams.write(range(10))
    frame = streams.frame()
    streams.finish(frame)
    bk.delete_log(streams.log)
    streams.write(range(10))

    with pytest.raises(Exception, match="BK_LOG_RECREATED") as caught:
        streams.finish(frame)

    told = str(caught.value)
    assert "start with a new checkpoint" in told
    assert "direct cause" not in told
    assert told.count("Traceback (most recent call last)") == 1


def _fail(batch: DataFrame, batch_id: int) -> None:
    raise RuntimeError("on purpose")
