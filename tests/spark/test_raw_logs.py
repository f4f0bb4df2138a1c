"""One log of plain values, written by Spark and by Python in turn, and read by both alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.log.errors import LogPayloadError
from tests.patience import seconds
from tests.spark.conftest import Logs

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def values(first: int, count: int) -> list[bytes]:
    return [f"value {number}".encode() for number in range(first, first + count)]


def frame(spark: SparkSession, first: int, count: int, kind: str = "binary") -> DataFrame:
    rows = spark.range(first, first + count, 1, 1)
    return rows.selectExpr(f"cast(concat('value ', id) AS {kind}) AS value")


def from_python(bk: BookKeeper, log: str, first: int, count: int) -> None:
    with bk.open_log(log).writer() as writer:
        for value in values(first, count):
            writer.append(value)


def seen_by_python(bk: BookKeeper, log: str, start: int = 0) -> list[tuple[int, int, int, bytes]]:
    return [
        (position.row, position.ledger_id, position.entry_id, bytes(entry.payload))
        for position, entry in bk.open_log(log).reader(start)
    ]


def seen_by_spark(found: DataFrame) -> list[tuple[int, int, int, bytes]]:
    shown = found.orderBy("_position").collect()
    return [(row._position, row._ledger, row._entry, bytes(row.value)) for row in shown]


def test_writers_in_turn_number_their_rows_through(
    logs: Logs, spark: SparkSession, bk: BookKeeper
) -> None:
    log = "in-turn"
    logs.write(frame(spark, 0, 5), log, payloadFormat="raw")
    from_python(bk, log, 5, 7)
    logs.write(frame(spark, 12, 3), log)
    from_python(bk, log, 15, 1)
    logs.write(frame(spark, 16, 4), log)

    by_python = seen_by_python(bk, log)
    by_spark = seen_by_spark(logs.read(log, includeMetadata=True))

    assert [payload for *_, payload in by_python] == values(0, 20)
    assert [row for row, *_ in by_python] == list(range(20))
    assert by_spark == by_python
    log_id = bk.open_log(log).log_id
    middle = logs.read(
        log,
        includeMetadata=True,
        startingOffsets=f'{{"log": {log_id}, "row": 4}}',
        endingOffsets=f'{{"log": {log_id}, "row": 13}}',
    )
    assert seen_by_spark(middle) == by_python[4:13]
    assert seen_by_python(bk, log, 13) == by_python[13:]


def test_a_log_begun_by_python_is_gone_on_with_by_spark(
    logs: Logs, spark: SparkSession, bk: BookKeeper
) -> None:
    log = "begun-by-python"
    bk.create_log(log)
    from_python(bk, log, 0, 3)

    logs.write(frame(spark, 3, 2), log)

    assert logs.read(log).dtypes == [("value", "binary")]
    assert seen_by_spark(logs.read(log, includeMetadata=True)) == seen_by_python(bk, log)
    assert [payload for *_, payload in seen_by_python(bk, log)] == values(0, 5)


def test_texts_spark_writes_are_their_utf8_to_python(
    logs: Logs, spark: SparkSession, bk: BookKeeper
) -> None:
    log = "texts"
    logs.write(frame(spark, 0, 2, "string"), log, payloadFormat="raw")

    from_python(bk, log, 2, 1)

    assert [row.value for row in logs.read(log).collect()] == ["value 0", "value 1", "value 2"]
    assert [payload for *_, payload in seen_by_python(bk, log)] == values(0, 3)


@pytest.mark.full
def test_a_tail_sees_what_spark_commits_while_it_waits(
    logs: Logs, spark: SparkSession, bk: BookKeeper
) -> None:
    log = "tailed"
    logs.write(frame(spark, 0, 2), log, payloadFormat="raw")
    with bk.open_log(log).tail("earliest", timeout=seconds(60)) as tail:
        following = iter(tail)
        first = [next(following) for _ in range(2)]

        logs.write(frame(spark, 2, 2), log)
        from_python(bk, log, 4, 1)
        rest = [next(following) for _ in range(3)]

    assert [bytes(entry.payload) for _, entry in first + rest] == values(0, 5)
    assert [position.row for position, _ in first + rest] == list(range(5))


@pytest.mark.full
def test_a_stream_of_spark_follows_both_writers(
    logs: Logs, spark: SparkSession, bk: BookKeeper, cluster: LocalCluster, tmp_path: Path
) -> None:
    log = "streamed-from-both"
    logs.write(frame(spark, 0, 2), log, payloadFormat="raw")
    from_python(bk, log, 2, 3)

    reader = spark.readStream.format("bookkeeper").option("log", log)

    def caught_up() -> list[bytes]:
        query = (
            reader.option("metadataServiceUri", cluster.metadata_service_uri)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination()
        written = spark.read.parquet(str(tmp_path / "rows")).collect()
        return sorted(bytes(row.value) for row in written)

    assert caught_up() == values(0, 5)
    logs.write(frame(spark, 5, 2), log)
    from_python(bk, log, 7, 1)
    assert caught_up() == values(0, 8)


@pytest.mark.parametrize("payload_format", ["arrow", "avro"])
def test_logs_of_many_rows_an_entry_say_how_to_read_them(
    logs: Logs, spark: SparkSession, bk: BookKeeper, payload_format: str
) -> None:
    log = f"not-raw-{payload_format}"
    logs.write(spark.range(3), log, payloadFormat=payload_format)
    opened = bk.open_log(log)

    for use in (
        lambda: list(opened.reader()),
        lambda: list(opened.tail("earliest")),
        opened.writer,
    ):
        with pytest.raises(LogPayloadError, match=r'spark\.read\.format\("bookkeeper"\)'):
            use()
