"""Reading on real Spark: positions, metadata columns, parts of the schema, damage."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from spark_bookkeeper import BookKeeper
from tests.spark.conftest import Logs, conf, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_metadata_columns_number_every_row_once(logs: Logs) -> None:
    logs.write(range(3000), partitions=3, entryBytes="2k")

    found = logs.read(includeMetadata="true")

    assert found.columns[1:] == [
        "_ledger", "_entry", "_position", "_batch_id", "_query_id", "_timestamp",
    ]  # fmt: skip
    facts = found.agg(
        sf.count_distinct("_position"), sf.min("_position"), sf.max("_position"),
        sf.count_distinct("_ledger"), sf.sum((sf.col("id") == sf.col("_position")).cast("int")),
    ).collect()[0]  # fmt: skip
    assert tuple(facts) == (3000, 0, 2999, 3, 3000)


def test_a_read_between_positions_is_exact(logs: Logs) -> None:
    logs.write(range(2000), partitions=2, entryBytes="2k")

    found = logs.read(startingOffsets='{"row":990}', endingOffsets='{"row":1010}')

    assert sorted(row.id for row in found.collect()) == list(range(990, 1010))


def test_a_read_since_a_time_begins_at_the_next_commit(logs: Logs, spark: SparkSession) -> None:
    logs.write(range(5))
    logs.write(range(5, 8))
    found = logs.read(includeMetadata="true")
    (second,) = found.where("id = 5").selectExpr("unix_millis(_timestamp)").collect()[0]

    assert rows(logs.read(startingTimestamp=second)) == rows(spark.range(5, 8))
    assert rows(logs.read(endingTimestamp=second)) == rows(spark.range(5))
    with pytest.raises(Exception, match=r"\[BK_NO_MATCHING_TIMESTAMP\].*last_commit=20"):
        logs.read(startingTimestamp="2100-01-01").collect()


def test_a_users_schema_reads_only_its_columns(logs: Logs, spark: SparkSession) -> None:
    logs.write(spark.range(5).selectExpr("id", "id * 2 AS twice"))

    reader = spark.read.schema("twice bigint").format("bookkeeper")
    found = reader.options(**logs.options()).load()

    assert rows(found) == rows(spark.range(5).selectExpr("id * 2 AS twice"))


def test_a_ledger_of_a_log_is_read_by_its_id_with_its_columns(
    logs: Logs, spark: SparkSession
) -> None:
    frame = spark.range(10).selectExpr("id", "cast(id AS string) AS s").coalesce(1)
    logs.write(frame)
    (ledger_id,) = logs.ledgers()

    assert rows(logs.read_ledgers(ledger_id)) == rows(frame)


def test_an_open_ledger_is_read_to_its_last_confirmed_entry(logs: Logs, bk: BookKeeper) -> None:
    with bk.create_ledger() as writer:
        for payload in (b"a", b"b", b"c"):
            writer.append(payload)

        found = logs.read_ledgers(writer.ledger_id).collect()

        # The last confirmed entry travels with the next one, or a moment after the last.
        assert [bytes(row.value) for row in found] in ([b"a", b"b"], [b"a", b"b", b"c"])
        writer.append(b"d")


def test_a_limit_stops_a_read_early_and_leaves_the_worker_usable(logs: Logs) -> None:
    logs.write(range(200_000), partitions=2, entryBytes="4k")

    for _ in range(3):
        assert len(logs.read().limit(3).collect()) == 3
    assert logs.read().count() == 200_000


def test_a_session_in_another_zone_stores_the_same_instants(
    logs: Logs, spark: SparkSession
) -> None:
    frame = spark.range(5).select(sf.timestamp_seconds(sf.col("id") * 100_000).alias("t"))
    expected = rows(frame.select(sf.unix_micros("t")))

    with conf(spark, "spark.sql.session.timeZone", "Asia/Kathmandu"):
        logs.write(frame)

    assert rows(logs.read().select(sf.unix_micros("t"))) == expected


def test_large_arrow_types_store_the_same_rows(logs: Logs, spark: SparkSession) -> None:
    frame = spark.range(5).selectExpr(
        "cast(id AS string) AS s", "cast(cast(id AS string) AS binary) AS b"
    )

    with conf(spark, "spark.sql.execution.arrow.useLargeVarTypes", "true"):
        logs.write(frame)

    assert rows(logs.read()) == rows(frame)


def test_an_entry_that_is_not_ours_fails_the_read_and_not_the_worker(
    logs: Logs, bk: BookKeeper
) -> None:
    logs.write(range(5), partitions=1)
    (ledger_id,) = logs.ledgers()
    marks = dict(bk.ledger_metadata(ledger_id).custom_metadata)
    del marks["log"]
    with bk.create_ledger(custom_metadata=marks) as forged:
        forged.append(b"SpBK" + b"\x01\x01" + bytes(26) + b"\xff" * 300)

    with pytest.raises(Exception, match=rf"BK_PAYLOAD_CORRUPT.*ledger_id={forged.ledger_id}"):
        logs.read_ledgers(forged.ledger_id).collect()

    assert logs.read().count() == 5
