"""Streams to and from tables of Spark's catalog, and the triggers that Spark has no way for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException, UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.spark.calls import finish, ids_in
from tests.spark.conftest import Logs

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 20
TABLE = "a_streamed_table"


@pytest.fixture
def sink(logs: Logs, tmp_path: Path) -> DataStreamWriter:
    """Writes a folder of ids as a stream to the test's log."""
    logs.spark.range(ROWS).write.parquet(str(tmp_path / "source"))
    writer = ids_in(logs.spark, str(tmp_path)).writeStream.format("bookkeeper")
    return writer.options(**logs.options(), checkpointLocation=str(tmp_path / "checkpoint"))


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    spark.sql(f"CREATE TABLE {TABLE} (id bigint) USING bookkeeper")
    yield TABLE
    spark.sql(f"DROP TABLE {TABLE}")


def test_to_table_passes_the_streams_options_on(
    sink: DataStreamWriter, table: str, logs: Logs
) -> None:
    sink.trigger(availableNow=True).toTable(table).awaitTermination()

    assert logs.ids() == list(range(ROWS))


@pytest.mark.full
def test_a_stream_of_a_table_reads_the_log_in_its_options(
    table: str, logs: Logs, tmp_path: Path
) -> None:
    copy = f"{logs.log}-copy"
    logs.write(range(ROWS))

    reader = logs.spark.readStream.options(**logs.options(), startingOffsets="earliest")
    writer = reader.table(table).writeStream.format("bookkeeper")
    finish(writer.options(**logs.options(copy), checkpointLocation=str(tmp_path)))

    assert logs.ids(copy) == list(range(ROWS))


@pytest.mark.full
def test_partitioning_a_stream_changes_nothing(sink: DataStreamWriter, logs: Logs) -> None:
    """Spark refuses ``partitionBy`` in a batch; from a stream it never tells the sink."""
    finish(sink.partitionBy("id"))

    assert logs.ids() == list(range(ROWS))


def test_a_real_time_trigger_is_refused_by_spark(sink: DataStreamWriter) -> None:
    sink.outputMode("update").trigger(realTime="5 seconds")  # type: ignore[call-overload]

    with pytest.raises(
        IllegalArgumentException,
        match=r"STREAMING_REAL_TIME_MODE\.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST",
    ):
        sink.start().awaitTermination()


def test_reading_with_a_continuous_trigger_is_refused_by_spark(logs: Logs, tmp_path: Path) -> None:
    logs.write(range(1))
    writer = logs.stream().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(continuous="1 second")

    with pytest.raises(
        UnsupportedOperationException, match="bookkeeper does not support continuous processing"
    ):
        writer.start().awaitTermination()


def test_the_static_side_of_a_join_stays_and_a_read_in_foreach_batch_sees_more(
    logs: Logs, tmp_path: Path
) -> None:
    """Spark plans the static side once for all micro-batches of a run."""
    streamed = f"{logs.log}-streamed"
    logs.write(range(3))
    logs.write(range(1), streamed)
    static = logs.read().withColumnRenamed("id", "static_id")
    joined = logs.stream(streamed, startingOffsets="earliest").crossJoin(static)
    seen: list[tuple[int, int]] = []

    def note(batch: DataFrame, _batch_id: int) -> None:
        seen.append((batch.count(), logs.read().count()))

    writer = joined.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path))
    query = writer.start()
    try:
        query.processAllAvailable()
        logs.write(range(3, 10))
        logs.write(range(1), streamed)
        query.processAllAvailable()
    finally:
        query.stop()

    assert seen == [(3, 3), (3, 10)]
