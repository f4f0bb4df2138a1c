"""What tests let a driver of another process do: each function gets its session first.

The cluster is the one that the environment names.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_bookkeeper import optimize
from tests.patience import seconds
from tests.spark.held_source import FORMAT, HeldSource

ROWS = 8_000
PARTITIONS = 4


def write_held(spark: SparkSession, log: str, hold: dict[str, str], folder: str | None) -> None:
    """Append ``ROWS`` ids in ``PARTITIONS`` partitions; ``hold`` says which attempts are held.

    With a ``folder`` they are one micro-batch of a stream that keeps its files there. Its rows come
    out of a shuffle, so an executor that dies takes input of other tasks along.
    """
    spark.dataSource.register(HeldSource)
    ids = spark.range(0, ROWS, 1, PARTITIONS)
    options = {"log": log, "entryBytes": "2k", **hold}
    if folder is None:
        ids.write.format(FORMAT).mode("append").options(**options).save()
        return
    ids.write.mode("ignore").parquet(f"{folder}/source")
    writer = ids_in(spark, folder).repartition(PARTITIONS).writeStream.format(FORMAT)
    finish(writer.options(**options, checkpointLocation=folder))


def write_with_retries(spark: SparkSession, log: str) -> None:
    """Append the same ids; the first attempt at every partition fails in the middle of its input."""

    def failing_once(ids: Iterable[int]) -> Iterator[tuple[int]]:
        for number, row_id in enumerate(ids):
            if number == ROWS // PARTITIONS // 2 and TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
                raise RuntimeError("first attempt fails on purpose")
            yield (row_id,)

    # Rows of an RDD: mapInArrow would need pandas, which the product does not.
    ids = spark.sparkContext.range(0, ROWS, 1, PARTITIONS).mapPartitions(failing_once)
    writer = spark.createDataFrame(ids, "id bigint").write.format("bookkeeper").mode("append")
    writer.options(log=log, entryBytes="2k").save()


def ids_in(spark: SparkSession, folder: str, **options: int) -> DataFrame:
    """The stream of the files in ``source`` there."""
    return spark.readStream.schema("id bigint").options(**options).parquet(f"{folder}/source")


def finish(writer: DataStreamWriter) -> StreamingQuery:
    """Write what is there now and wait for its end."""
    return wait_for_end(writer.trigger(availableNow=True).start())


def wait_for_end(query: StreamingQuery) -> StreamingQuery:
    """The same query; raises what it failed of."""
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def noted_batches(checkpoint: Path) -> list[int]:
    """Those whose end Spark has noted in a checkpoint."""
    return sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))


def forget_the_last_commit(checkpoint: Path) -> None:
    """As if the driver had died between our commit and Spark's note of it."""
    last = noted_batches(checkpoint)[-1]
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


def optimize_log(spark: SparkSession, *, log: str, **options: str) -> tuple[int, int]:
    """Optimize as a Spark job; ranges before and after."""
    report = optimize(spark, log, min_ranges=2, **options)
    return report.ranges_before, report.ranges_after


def read_ids(spark: SparkSession, log: str) -> list[int]:
    """The column ``id`` of a log, sorted."""
    found = spark.read.format("bookkeeper").option("log", log).load().select("id").collect()
    return sorted(row.id for row in found)


def append_ids(spark: SparkSession, log: str, rows: int, **options: str) -> None:
    """Append the ids below ``rows``."""
    writer = spark.range(rows).write.format("bookkeeper").mode("append")
    writer.options(log=log, **options).save()


def owners_of_metadata(spark: SparkSession, log: str, module: str) -> list[str]:
    """What ``metadata.OWNER`` is beside this driver, and, added to it, to each row of a log."""
    spark.sparkContext.addPyFile(module)

    @udf("string")
    def owner(_: int) -> object:
        return import_module("metadata").OWNER

    rows = spark.read.format("bookkeeper").option("log", log).load().select(owner("id")).collect()
    return [import_module("metadata").OWNER, *[row[0] for row in rows]]


def client_kind(spark: SparkSession) -> str:
    """The module of the session's class: classic or Connect."""
    return type(spark).__module__


def stream_ids(spark: SparkSession, log: str, rows: int, folder: str) -> None:
    """Append the ids below ``rows``, in two micro-batches of one stream, with a restart between."""
    for half in range(2):
        ids = spark.range(rows * half // 2, rows * (half + 1) // 2, 1, 1)
        ids.write.mode("append").parquet(f"{folder}/source")
        writer = ids_in(spark, folder, maxFilesPerTrigger=1).writeStream.format("bookkeeper")
        finish(writer.options(log=log, checkpointLocation=folder))


def copy_log(spark: SparkSession, source: str, log: str, folder: str) -> list[str]:
    """Stream what ``source`` holds and was not copied yet into ``log``.

    Returns what a listener of lag told of it, at least one line.
    """
    from spark_bookkeeper.datasource.listener import LagListener

    lines: list[str] = []
    is_told = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        is_told.set()

    listener = LagListener(say)
    spark.streams.addListener(listener)
    try:
        reader = spark.readStream.format("bookkeeper")
        frame = reader.options(log=source, startingOffsets="earliest").load()
        writer = frame.writeStream.format("bookkeeper")
        finish(writer.options(log=log, checkpointLocation=folder))
        if not is_told.wait(seconds(60)):
            raise TimeoutError("the listener was told nothing")
    finally:
        spark.streams.removeListener(listener)
    return lines


def append_for_each_batch(
    spark: SparkSession, log: str, rows: int, folder: str, fails: bool
) -> None:
    """Append the ids below ``rows`` from ``foreachBatch``, named by the batch.

    With ``fails`` the function fails behind its append, so that Spark runs the batch again.
    """
    spark.range(rows).write.mode("ignore").parquet(f"{folder}/source")

    def append(batch: DataFrame, batch_id: int) -> None:
        writer = batch.write.format("bookkeeper").mode("append")
        writer.options(log=log, txnAppId="for-each", txnVersion=batch_id).save()
        if fails:
            raise RuntimeError("fails on purpose, after the append")

    writer = ids_in(spark, folder).writeStream.foreachBatch(append)
    finish(writer.option("checkpointLocation", f"{folder}/checkpoint"))


def run_pipeline(spark: SparkSession, log: str, source: str, rows: int, folder: str) -> int:
    """Run a pipeline of two flows; returns the number of rows of the table it makes.

    One goes from a folder of files, filled up to ``rows``, to a log; the other makes a table of all
    rows of the log ``source``.
    """
    from pyspark import pipelines
    from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    files = f"{folder}/source"
    spark.range(0).write.mode("append").parquet(files)
    known = spark.read.parquet(files).count()
    spark.range(known, rows).write.mode("append").parquet(files)
    graph = create_dataflow_graph(spark, None, None, None)
    with (
        graph_element_registration_context(SparkConnectGraphElementRegistry(spark, graph)),
        add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None),
    ):
        pipelines.create_sink("a_log", "bookkeeper", {"log": log})

        @pipelines.append_flow(target="a_log")
        def ids() -> DataFrame:
            return ids_in(spark, folder)

        @pipelines.materialized_view
        def rows_of_a_log() -> DataFrame:
            return spark.read.format("bookkeeper").option("log", source).load()

    storage = Path(folder) / "storage"
    storage.mkdir(exist_ok=True)
    for _ in start_run(spark, graph, None, False, None, False, storage.as_uri()):
        pass
    return spark.table("rows_of_a_log").count()
