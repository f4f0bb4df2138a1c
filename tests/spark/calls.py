"""What tests let a driver of another process do: each function gets its session first."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

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
    ids.write.parquet(f"{folder}/source")
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


def append_ids(spark: SparkSession, uri: str, log: str, rows: int, options: dict[str, str]) -> None:
    """Append the ids below ``rows``."""
    writer = spark.range(rows).write.format("bookkeeper").mode("append").options(**options)
    writer.option("metadataServiceUri", uri).option("log", log).save()


def client_kind(spark: SparkSession) -> str:
    """The module of the session's class: classic or Connect."""
    return type(spark).__module__
