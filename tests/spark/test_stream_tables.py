"""Streams to and from tables of Spark's catalog, and the triggers that Spark has no way for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException, UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_bookkeeper import LocalCluster
from tests.spark.conftest import Logs

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 20
TABLE = "a_streamed_table"


class Source:
    """A folder of ids, written as a stream to one log."""

    def __init__(self, spark: SparkSession, uri: str, directory: Path) -> None:
        self._frame = spark.readStream.schema("id bigint").parquet(str(directory / "source"))
        self._checkpoint = directory / "checkpoint"
        self._uri = uri

    def to(self, log: str) -> DataStreamWriter:
        writer = self._frame.writeStream.format("bookkeeper").option("log", log)
        writer = writer.option("metadataServiceUri", self._uri)
        return writer.option("checkpointLocation", str(self._checkpoint))


@pytest.fixture
def source(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> Source:
    spark.range(ROWS).write.parquet(str(tmp_path / "source"))
    return Source(spark, cluster.metadata_service_uri, tmp_path)


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    spark.sql(f"CREATE TABLE {TABLE} (id bigint) USING bookkeeper")
    yield TABLE
    spark.sql(f"DROP TABLE {TABLE}")


def finish(query: StreamingQuery) -> None:
    try:
        query.awaitTermination()
    finally:
        query.stop()


def test_to_table_passes_the_streams_options_on(source: Source, table: str, logs: Logs) -> None:
    finish(source.to("to-table").trigger(availableNow=True).toTable(table))

    assert sorted(row.id for row in logs.read("to-table").collect()) == list(range(ROWS))


@pytest.mark.full
def test_a_stream_of_a_table_reads_the_log_in_its_options(
    spark: SparkSession, table: str, logs: Logs, cluster: LocalCluster, tmp_path: Path
) -> None:
    logs.write(spark.range(ROWS), "of-a-table")
    options = {"log": "of-a-table", "metadataServiceUri": cluster.metadata_service_uri}

    frame = spark.readStream.options(**options, startingOffsets="earliest").table(table)
    writer = frame.writeStream.format("bookkeeper").options(**{**options, "log": "of-a-stream"})
    writer = writer.option("checkpointLocation", str(tmp_path))
    finish(writer.trigger(availableNow=True).start())

    assert sorted(row.id for row in logs.read("of-a-stream").collect()) == list(range(ROWS))


@pytest.mark.full
def test_partitioning_a_stream_changes_nothing(source: Source, logs: Logs) -> None:
    """Spark refuses ``partitionBy`` in a batch; from a stream it never tells the sink."""
    finish(source.to("by-id").partitionBy("id").trigger(availableNow=True).start())

    assert sorted(row.id for row in logs.read("by-id").collect()) == list(range(ROWS))


def test_a_real_time_trigger_is_refused_by_spark(source: Source) -> None:
    writer = source.to("real-time").outputMode("update")
    writer.trigger(realTime="5 seconds")  # type: ignore[call-overload]

    with pytest.raises(
        IllegalArgumentException,
        match=r"STREAMING_REAL_TIME_MODE\.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST",
    ):
        finish(writer.start())


def test_reading_with_a_continuous_trigger_is_refused_by_spark(
    spark: SparkSession, logs: Logs, cluster: LocalCluster, tmp_path: Path
) -> None:
    logs.write(spark.range(1), "continuously")
    reader = spark.readStream.format("bookkeeper").option("log", "continuously")
    frame = reader.option("metadataServiceUri", cluster.metadata_service_uri).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))

    with pytest.raises(
        UnsupportedOperationException, match="bookkeeper does not support continuous processing"
    ):
        finish(writer.trigger(continuous="1 second").start())


def test_the_static_side_of_a_join_stays_and_a_read_in_foreach_batch_sees_more(
    spark: SparkSession, logs: Logs, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Spark plans the static side once for all micro-batches of a run."""
    logs.write(spark.range(3), "static-side")
    logs.write(spark.range(1), "stream-side")
    static = logs.read("static-side")
    options = {"log": "stream-side", "metadataServiceUri": cluster.metadata_service_uri}
    reader = spark.readStream.format("bookkeeper").options(**options, startingOffsets="earliest")
    joined = reader.load().crossJoin(static.withColumnRenamed("id", "static_id"))
    seen: list[tuple[int, int]] = []

    def note(batch: DataFrame, _batch_id: int) -> None:
        seen.append((batch.count(), logs.read("static-side").count()))

    writer = joined.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path))
    query = writer.start()
    try:
        query.processAllAvailable()
        logs.write(spark.range(3, 10), "static-side")
        logs.write(spark.range(1), "stream-side")
        query.processAllAvailable()
    finally:
        query.stop()

    assert seen == [(3, 3), (3, 10)]
