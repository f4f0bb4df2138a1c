"""What the drivers that are killed run: a stream of files, or of a log, into a log."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.patience import seconds
from tests.spark import drivers
from tests.spark.calls import finish, ids_in, wait_for_end
from tests.spark.held_source import FORMAT, HeldSource

FILES_PER_BATCH = 3
"""Each a partition of its own."""
FILE_ROWS = 600
BATCH_ROWS = FILES_PER_BATCH * FILE_ROWS
ARROW_ROWS = 200
"""Of the batches that tasks get: several of each file."""
ZOMBIE_LIFE_S = 600.0
"""Longer than a test holds anything back; Spark's default is 2 s."""
SETTINGS = {
    **drivers.SETTINGS,
    # A task that Spark has given up goes on in Python for as long as its test needs.
    "spark.python.task.killTimeout": f"{seconds(ZOMBIE_LIFE_S):.0f}s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    # A file is a partition: opening one counts as much as a partition may hold.
    "spark.sql.files.maxPartitionBytes": "1m",
    "spark.sql.files.openCostInBytes": "1m",
    "spark.sql.shuffle.partitions": "2",
}

_running: dict[str, StreamingQuery] = {}


def run(
    spark: SparkSession,
    source: dict[str, str],
    options: dict[str, str],
    partitions: int | None = None,
) -> list[int]:
    """:func:`start` and :func:`end`."""
    start(spark, "run", source, options, partitions)
    return end(spark, "run")


def start(
    spark: SparkSession,
    name: str,
    source: dict[str, str],
    options: dict[str, str],
    partitions: int | None = None,
) -> None:
    """Start the query ``name``, which ends when its input is used up.

    Rows are in the source's order, partition by partition, unless ``partitions`` shuffles them into so
    many. With ``holdFolder`` among the options tasks may be held.
    """
    sink = "bookkeeper"
    if "holdFolder" in options:
        spark.dataSource.register(HeldSource)
        sink = FORMAT
    frame = stream(spark, source, options["metadataServiceUri"])
    if partitions is not None:
        frame = frame.repartition(partitions, "id")
    writer = frame.writeStream.format(sink).options(**options)
    _running[name] = writer.trigger(availableNow=True).start()


def stream(spark: SparkSession, source: dict[str, str], uri: str) -> DataFrame:
    """The ids in a folder of ``files``, or in a ``log`` of the cluster, as a stream."""
    if "files" in source:
        return ids_in(spark, source["files"], maxFilesPerTrigger=FILES_PER_BATCH)
    reader = spark.readStream.format("bookkeeper").options(metadataServiceUri=uri, **source)
    reader = reader.option("startingOffsets", "earliest").option("minPartitions", FILES_PER_BATCH)
    raw = reader.option("maxRowsPerTrigger", BATCH_ROWS).load()
    return raw.selectExpr("cast(cast(value AS string) AS bigint) AS id")


def end(spark: SparkSession, name: str) -> list[int]:
    """Wait for the end of a query; returns the batches it ran; raises what it failed of."""
    return batches_of(wait_for_end(_running.pop(name)))


def batches_of(query: StreamingQuery) -> list[int]:
    """Those it ran."""
    progress: list[Any] = query.recentProgress
    return [each.batchId for each in progress]


def stop(spark: SparkSession, name: str) -> None:
    """``query.stop()``."""
    _running.pop(name).stop()


def overwrite_ids(spark: SparkSession, options: dict[str, str], rows: int) -> None:
    """Replace the log by the ids below ``rows``, in a batch write."""
    writer = spark.range(0, rows, 1, 2).write.format("bookkeeper").mode("overwrite")
    writer.options(**options).save()


def run_into_two_logs(
    spark: SparkSession,
    source: dict[str, str],
    options: dict[str, str],
    logs: list[str],
    app_id: str,
) -> list[int]:
    """A ``foreachBatch`` that appends every micro-batch to both logs, under a transaction each."""
    checkpoint = options.pop("checkpointLocation")

    def append(frame: DataFrame, batch_id: int) -> None:
        for log in logs:
            writer = frame.write.format("bookkeeper").mode("append")
            named = {**options, "log": log, "txnAppId": app_id, "txnVersion": str(batch_id)}
            writer.options(**named).save()

    frame = stream(spark, source, options["metadataServiceUri"])
    writer = frame.writeStream.foreachBatch(append)
    return batches_of(finish(writer.option("checkpointLocation", checkpoint)))


def run_complete(
    spark: SparkSession, source: dict[str, str], options: dict[str, str], groups: int
) -> list[int]:
    """A query in complete mode: how many ids so far are in each of so many groups, as ``id``."""
    ids = stream(spark, source, options["metadataServiceUri"])
    counts = ids.selectExpr(f"id % {groups} AS group").groupBy("group").count()
    writer = counts.selectExpr("count AS id").writeStream.format("bookkeeper").options(**options)
    return batches_of(finish(writer.outputMode("complete")))
