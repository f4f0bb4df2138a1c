"""What the drivers that are killed run: a stream of files into a log."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.held_source import FORMAT, HeldSource

FILES_PER_BATCH = 3
"""Each a partition of its own."""
FILE_ROWS = 200
ARROW_ROWS = 50
SETTINGS = {
    "master": "local[2]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # It lives for seconds: what C2 and G1 would cost never pays.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.driver.memory": "768m",
    # A task that Spark has given up goes on in Python for as long as its test needs.
    "spark.python.task.killTimeout": "120s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    # A file is a partition: opening one counts as much as a partition may hold.
    "spark.sql.files.maxPartitionBytes": "1m",
    "spark.sql.files.openCostInBytes": "1m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_running: dict[str, StreamingQuery] = {}


def run_files(
    spark: SparkSession, source: str, options: dict[str, str], partitions: int | None = None
) -> list[int]:
    """:func:`start_files` and :func:`end`."""
    start_files(spark, "run", source, options, partitions)
    return end(spark, "run")


def start_files(
    spark: SparkSession,
    name: str,
    source: str,
    options: dict[str, str],
    partitions: int | None = None,
) -> None:
    """Start the query ``name``, which ends when its input is used up.

    Rows are in the files' order, a file a partition, unless ``partitions`` shuffles them into so
    many. With ``holdFolder`` among the options tasks may be held.
    """
    sink = "bookkeeper"
    if "holdFolder" in options:
        spark.dataSource.register(HeldSource)
        sink = FORMAT
    frame = files(spark, source)
    if partitions is not None:
        frame = frame.repartition(partitions, "id")
    writer = frame.writeStream.format(sink).options(**options)
    _running[name] = writer.trigger(availableNow=True).start()


def files(spark: SparkSession, source: str) -> DataFrame:
    """The files of a folder as a stream."""
    stream = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", FILES_PER_BATCH)
    return stream.parquet(source)


def end(spark: SparkSession, name: str) -> list[int]:
    """Wait for the end of a query; returns the batches it ran; raises what it failed of."""
    query = _running.pop(name)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    progress: list[Any] = query.recentProgress
    return [each.batchId for each in progress]


def stop(spark: SparkSession, name: str) -> None:
    """``query.stop()``."""
    _running.pop(name).stop()


def overwrite_ids(spark: SparkSession, options: dict[str, str], rows: int) -> None:
    """Replace the log by the ids below ``rows``, in a batch write."""
    spark.range(0, rows, 1, 2).write.format("bookkeeper").mode("overwrite").options(
        **options
    ).save()


def run_into_two_logs(
    spark: SparkSession, source: str, options: dict[str, str], logs: list[str], app_id: str
) -> list[int]:
    """A ``foreachBatch`` that appends every micro-batch to both logs, under a transaction each."""
    checkpoint = options.pop("checkpointLocation")

    def append(frame: DataFrame, batch_id: int) -> None:
        for log in logs:
            writer = frame.write.format("bookkeeper").mode("append").options(**options)
            writer = writer.option("log", log).option("txnAppId", app_id)
            writer.option("txnVersion", str(batch_id)).save()

    writer = files(spark, source).writeStream.foreachBatch(append)
    writer = writer.option("checkpointLocation", checkpoint)
    _running["two"] = writer.trigger(availableNow=True).start()
    return end(spark, "two")
