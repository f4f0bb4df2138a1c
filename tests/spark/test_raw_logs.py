"""One log of plain values, written by Spark and by Python in turn, and read by both alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_bookkeeper import BookKeeper
from spark_bookkeeper.log.errors import LogPayloadError
from tests.patience import seconds
from tests.spark.calls import finish
from tests.spark.conftest import Logs

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def values(first: int, count: int) -> list[bytes]:
    return [f"value {number}".encode() for number in range(first, first + count)]


class RawLog(Logs):
    """A log of the values of :func:`values`, which Spark and Python append to in turn."""

    def __init__(self, spark: SparkSession, bk: BookKeeper, log: str) -> None:
        super().__init__(spark, bk.metadata_service_uri, log)
        self.bk = bk
        self._values = 0

    def by_spark(self, count: int, kind: str = "binary", **options: Any) -> None:
        first = self._next(count)
        frame = self.spark.range(first, first + count, 1, 1)
        texts = frame.selectExpr(f"cast(concat('value ', id) AS {kind}) AS value")
        self.write(texts, **options)

    def by_python(self, count: int) -> None:
        first = self._next(count)
        with self.bk.open_log(self.log).writer() as writer:
            writer.append_many(values(first, count))

    def seen_by_python(self, start: int = 0) -> list[tuple[int, int, int, bytes]]:
        return [
            (position.row, position.ledger_id, position.entry_id, bytes(entry.payload))
            for position, entry in self.bk.open_log(self.log).reader(start)
        ]

    def seen_by_spark(self, **options: str) -> list[tuple[int, int, int, bytes]]:
        found = self.read(includeMetadata=True, **options).orderBy("_position").collect()
        return [(row._position, row._ledger, row._entry, bytes(row.value)) for row in found]

    def _next(self, count: int) -> int:
        self._values += count
        return self._values - count


@pytest.fixture
def raw(spark: SparkSession, bk: BookKeeper, log: str) -> RawLog:
    return RawLog(spark, bk, log)


def test_writers_in_turn_number_their_rows_through(raw: RawLog) -> None:
    raw.by_spark(5, payloadFormat="raw")
    raw.by_python(7)
    raw.by_spark(3)
    raw.by_python(1)
    raw.by_spark(4)

    by_python = raw.seen_by_python()

    assert [payload for *_, payload in by_python] == values(0, 20)
    assert [row for row, *_ in by_python] == list(range(20))
    assert raw.seen_by_spark() == by_python
    log_id = raw.bk.open_log(raw.log).log_id
    middle = raw.seen_by_spark(
        startingOffsets=f'{{"log": {log_id}, "row": 4}}',
        endingOffsets=f'{{"log": {log_id}, "row": 13}}',
    )
    assert middle == by_python[4:13]
    assert raw.seen_by_python(13) == by_python[13:]


def test_a_log_begun_by_python_is_gone_on_with_by_spark(raw: RawLog) -> None:
    raw.bk.create_log(raw.log)
    raw.by_python(3)

    raw.by_spark(2)

    assert raw.read().dtypes == [("value", "binary")]
    assert raw.seen_by_spark() == raw.seen_by_python()
    assert [payload for *_, payload in raw.seen_by_python()] == values(0, 5)


def test_texts_spark_writes_are_their_utf8_to_python(raw: RawLog) -> None:
    raw.by_spark(2, "string", payloadFormat="raw")

    raw.by_python(1)

    assert [row.value for row in raw.read().collect()] == ["value 0", "value 1", "value 2"]
    assert [payload for *_, payload in raw.seen_by_python()] == values(0, 3)


@pytest.mark.full
def test_a_tail_sees_what_spark_commits_while_it_waits(raw: RawLog) -> None:
    raw.by_spark(2, payloadFormat="raw")
    with raw.bk.open_log(raw.log).tail("earliest", timeout=seconds(60)) as tail:
        following = iter(tail)
        first = [next(following) for _ in range(2)]

        raw.by_spark(2)
        raw.by_python(1)
        rest = [next(following) for _ in range(3)]

    assert [bytes(entry.payload) for _, entry in first + rest] == values(0, 5)
    assert [position.row for position, _ in first + rest] == list(range(5))


@pytest.mark.full
def test_a_stream_of_spark_follows_both_writers(raw: RawLog, tmp_path: Path) -> None:
    stored = str(tmp_path / "rows")

    def caught_up() -> list[bytes]:
        writer = raw.stream(startingOffsets="earliest").writeStream.format("parquet")
        finish(writer.options(checkpointLocation=str(tmp_path / "checkpoint"), path=stored))
        return sorted(bytes(row.value) for row in raw.spark.read.parquet(stored).collect())

    raw.by_spark(2, payloadFormat="raw")
    raw.by_python(3)
    assert caught_up() == values(0, 5)
    raw.by_spark(2)
    raw.by_python(1)
    assert caught_up() == values(0, 8)


@pytest.mark.parametrize("payload_format", ["arrow", "avro"])
def test_logs_of_many_rows_an_entry_say_how_to_read_them(raw: RawLog, payload_format: str) -> None:
    raw.write(range(3), payloadFormat=payload_format)
    opened = raw.bk.open_log(raw.log)

    for use in (
        lambda: list(opened.reader()),
        lambda: list(opened.tail("earliest")),
        opened.writer,
    ):
        with pytest.raises(LogPayloadError, match=r'spark\.read\.format\("bookkeeper"\)'):
            use()
