"""What tests let a driver of another process do: each function gets its session first."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.spark.held_source import FORMAT, HeldSource

ROWS = 8_000
PARTITIONS = 4


def write_held(spark: SparkSession, uri: str, log: str, hold: dict[str, str]) -> None:
    """Append ``ROWS`` ids in ``PARTITIONS`` partitions; attempts at some are held in ``folder``."""
    spark.dataSource.register(HeldSource)
    writer = spark.range(0, ROWS, 1, PARTITIONS).write.format(FORMAT).mode("append")
    writer = writer.option("metadataServiceUri", uri).option("log", log).option("entryBytes", "2k")
    writer.options(**hold).save()


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
