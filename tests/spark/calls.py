"""What tests let a driver of another process do: each function gets its session first."""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.patience import seconds
from tests.spark.held_source import FORMAT, HeldSource

ROWS = 8_000
PARTITIONS = 4


def write_held(
    spark: SparkSession, uri: str, log: str, hold: dict[str, str], folder: str | None
) -> None:
    """Append ``ROWS`` ids in ``PARTITIONS`` partitions; ``hold`` says which attempts are held.

    With a ``folder`` they are one micro-batch of a stream that keeps its files there. Its rows come
    out of a shuffle, so an executor that dies takes input of other tasks along.
    """
    spark.dataSource.register(HeldSource)
    ids = spark.range(0, ROWS, 1, PARTITIONS)
    options = {"metadataServiceUri": uri, "log": log, "entryBytes": "2k", **hold}
    if folder is None:
        ids.write.format(FORMAT).mode("append").options(**options).save()
        return
    ids.write.mode("ignore").parquet(f"{folder}/source")
    source = spark.readStream.schema("id bigint").parquet(f"{folder}/source")
    run_stream(source.repartition(PARTITIONS), FORMAT, {**options, "checkpointLocation": folder})


def run_stream(stream: DataFrame, sink: str, options: dict[str, str]) -> None:
    """Write what is there now and wait for its end."""
    query = stream.writeStream.format(sink).options(**options).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def read_ids(spark: SparkSession, uri: str, log: str) -> list[int]:
    """The column ``id`` of a log."""
    reader = spark.read.format("bookkeeper").option("metadataServiceUri", uri).option("log", log)
    return [row.id for row in reader.load().select("id").collect()]


def append_ids(spark: SparkSession, log: str, rows: int, **options: str) -> None:
    """Append the ids below ``rows`` to a log of the cluster in ``options``, else Spark's own."""
    writer = spark.range(rows).write.format("bookkeeper").mode("append").options(**options)
    writer.option("log", log).save()


def client_kind(spark: SparkSession) -> str:
    """The module of the session's class: classic or Connect."""
    return type(spark).__module__


def stream_ids(spark: SparkSession, uri: str, log: str, rows: int, folder: str) -> None:
    """Append the ids below ``rows``, in two micro-batches of one stream, with a restart between."""
    reader = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
    for half in range(2):
        ids = spark.range(rows * half // 2, rows * (half + 1) // 2, 1, 1)
        ids.write.mode("append").parquet(f"{folder}/source")
        options = {"metadataServiceUri": uri, "log": log, "checkpointLocation": folder}
        run_stream(reader.parquet(f"{folder}/source"), "bookkeeper", options)


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
        reader = spark.readStream.format("bookkeeper").option("log", source)
        options = {"log": log, "checkpointLocation": folder}
        run_stream(reader.option("startingOffsets", "earliest").load(), "bookkeeper", options)
        if not is_told.wait(seconds(60)):
            raise TimeoutError("the listener was told nothing")
    finally:
        spark.streams.removeListener(listener)
    return lines


def append_for_each_batch(
    spark: SparkSession, uri: str, log: str, rows: int, folder: str, fails: bool
) -> None:
    """Append the ids below ``rows`` from ``foreachBatch``, named by the batch.

    With ``fails`` the function fails behind its append, so that Spark runs the batch again.
    """
    spark.range(rows).write.mode("ignore").parquet(f"{folder}/source")

    def append(batch: DataFrame, batch_id: int) -> None:
        writer = batch.write.format("bookkeeper").mode("append").option("log", log)
        writer = writer.option("metadataServiceUri", uri)
        writer.option("txnAppId", "for-each").option("txnVersion", batch_id).save()
        if fails:
            raise RuntimeError("fails on purpose, after the append")

    stream = spark.readStream.schema("id bigint").parquet(f"{folder}/source").writeStream
    stream = stream.foreachBatch(append).option("checkpointLocation", f"{folder}/checkpoint")
    query = stream.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def run_pipeline(
    spark: SparkSession, uri: str, log: str, source: str, rows: int, folder: str
) -> int:
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
        pipelines.create_sink("a_log", "bookkeeper", {"log": log, "metadataServiceUri": uri})

        @pipelines.append_flow(target="a_log")
        def ids() -> DataFrame:
            return spark.readStream.schema("id bigint").parquet(files)

        @pipelines.materialized_view
        def rows_of_a_log() -> DataFrame:
            reader = spark.read.format("bookkeeper").option("metadataServiceUri", uri)
            return reader.option("log", source).load()

    storage = Path(folder) / "storage"
    storage.mkdir(exist_ok=True)
    for _ in start_run(spark, graph, None, False, None, False, storage.as_uri()):
        pass
    return spark.table("rows_of_a_log").count()
