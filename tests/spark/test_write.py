"""DataFrames through three bookies and back, on real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.cli.processes.local import SNIPPET
from tests.spark.conftest import Logs, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_what_the_local_cluster_prints_can_be_pasted(
    cluster: LocalCluster, logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(SNIPPET.splitlines()) <= 5

    exec(SNIPPET.format(uri=cluster.metadata_service_uri), {})

    assert "| id|" in capsys.readouterr().out
    assert logs.read("numbers").count() == 1000


def test_rows_equal_what_parquet_returns(logs: Logs, spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(20_000).select(
        "id",
        (sf.col("id") % 7).cast("string").alias("s"),
        sf.when(sf.col("id") % 5 != 0, sf.col("id") / 3).alias("maybe"),
        sf.array(sf.col("id"), sf.lit(None)).alias("a"),
        sf.timestamp_seconds(sf.col("id") * 1000).alias("t"),
    )

    logs.write(frame)
    frame.write.parquet(str(tmp_path / "twin"))

    twin = spark.read.parquet(str(tmp_path / "twin"))
    assert rows(logs.read()) == rows(twin)


def test_three_hundred_columns(logs: Logs, spark: SparkSession) -> None:
    frame = spark.range(500).select(*[(sf.col("id") * n).alias(f"c{n}") for n in range(300)])

    logs.write(frame)

    back = logs.read()
    assert len(back.columns) == 300
    assert rows(back) == rows(frame)


def test_appends_add_and_overwrites_replace(logs: Logs) -> None:
    logs.write(range(10))
    logs.write(range(10, 15))
    assert logs.read().count() == 15

    logs.write(range(3), mode="overwrite")

    assert logs.ids() == [0, 1, 2]


def test_an_empty_frame_makes_an_empty_log(logs: Logs) -> None:
    logs.write(range(0))

    assert logs.read().count() == 0
    assert logs.read().dtypes == logs.spark.range(0).dtypes


def test_the_log_may_be_the_path(spark: SparkSession, cluster: LocalCluster) -> None:
    uri = cluster.metadata_service_uri
    writer = spark.range(5).write.format("bookkeeper").mode("append")
    writer.option("metadataServiceUri", uri).save("by-path")

    reader = spark.read.format("bookkeeper").option("metadataServiceUri", uri)
    assert reader.load("by-path").count() == 5


def test_raw_payloads_are_entries_as_they_are(logs: Logs, spark: SparkSession) -> None:
    values = [bytearray(b"one"), bytearray(b""), bytearray(b"three")]
    frame = spark.createDataFrame([(v,) for v in values], "value binary").coalesce(1)

    logs.write(frame, payloadFormat="raw")

    assert rows(logs.read()) == rows(frame)


def test_a_raw_ledger_is_read_by_its_id(logs: Logs, bk: BookKeeper) -> None:
    with bk.create_ledger() as writer:
        writer.append_many([b"a", b"b"])
    with bk.create_ledger() as second:
        second.append(b"c")

    one = logs.read_ledgers(writer.ledger_id)
    both = logs.read_ledgers(f"{writer.ledger_id},{second.ledger_id}")

    assert one.dtypes == [("_ledger", "bigint"), ("_entry", "bigint"), ("value", "binary")]
    found = [(row._entry, bytes(row.value)) for row in one.orderBy("_entry").collect()]
    assert found == [(0, b"a"), (1, b"b")]
    assert both.count() == 3


def test_partitions_split_and_pack_without_losing_a_row(logs: Logs, spark: SparkSession) -> None:
    frame = spark.range(50_000).select("id", sf.rand(1).alias("r")).repartition(3)
    logs.write(frame, entryBytes="20k")

    limits: list[dict[str, Any]] = [
        {"minPartitions": 7}, {"maxBytesPerPartition": "50k"}, {"maxRowsPerPartition": 9000},
    ]  # fmt: skip
    for options in limits:
        back = logs.read(**options)
        assert back.rdd.getNumPartitions() >= 4, options
        assert back.agg(sf.count("id"), sf.sum("id")).collect()[0] == (50_000, 1249975000)


def test_a_transaction_is_written_once(logs: Logs) -> None:
    for version in (1, 1, 2):
        logs.write(range(5), txnAppId="job", txnVersion=version)

    assert logs.read().count() == 10


def test_a_failed_job_leaves_nothing_visible_and_nothing_behind(logs: Logs, bk: BookKeeper) -> None:
    logs.write(range(10))
    before = set(bk.list_ledgers())
    # The same rows, but the last one's partition fails.
    failing = "CASE WHEN id < 9999 THEN id ELSE raise_error('halfway') END AS id"

    with pytest.raises(Exception, match="halfway"):
        logs.write(logs.spark.range(0, 10_000, 1, 4).selectExpr(failing), entryBytes="2k")

    assert logs.read().count() == 10
    assert set(bk.list_ledgers()) == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ensambleSize": "3"}, "BK_OPTION_UNKNOWN.*ensamblesize.*ensembleSize"),
        ({"ensembleSize": "three"}, "ensembleSize"),
        ({"ensembleSize": "9", "writeQuorum": "9"}, "BK_NOT_ENOUGH_BOOKIES"),
        ({"ensembleSize": "1", "writeQuorum": "2"}, "[qQ]uorum"),
        ({"payloadFormat": "orc"}, "arrow, avro, raw"),
        ({"createLog": "false"}, "BK_NO_SUCH_LOG"),
    ],
)
def test_options_that_cannot_be_used_are_named(
    logs: Logs, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(Exception, match=rf"(?s){says}"):
        logs.write(range(5), **options)


def test_columns_that_do_not_fit_are_listed_and_nothing_is_written(
    logs: Logs, bk: BookKeeper
) -> None:
    logs.write(range(5))
    before = set(bk.list_ledgers())
    misfit = logs.spark.range(5).selectExpr("cast(id AS string) AS id", "1 AS x")

    with pytest.raises(Exception, match=r"(?s)BK_SCHEMA_MISMATCH.*id"):
        logs.write(misfit)

    assert set(bk.list_ledgers()) == before
    assert logs.read().count() == 5


def test_a_log_or_ledger_that_is_not_there_is_named(logs: Logs) -> None:
    with pytest.raises(Exception, match=r"(?s)BK_NO_SUCH_LOG.*nowhere"):
        logs.read("nowhere").count()
    with pytest.raises(Exception, match=r"(?s)BK_NO_SUCH_LEDGER.*987654"):
        logs.read_ledgers(987654).count()


def test_the_wrong_password_is_refused(logs: Logs) -> None:
    logs.write(range(5), password="right")

    assert logs.read(password="right").count() == 5
    with pytest.raises(Exception, match="BK_UNAUTHORIZED"):
        logs.read(password="wrong").count()


def test_no_cluster_and_a_dead_cluster_are_told_apart(spark: SparkSession) -> None:
    reader = spark.read.format("bookkeeper").option("log", "x")
    with pytest.raises(AnalysisException, match=r"(?s)metadataServiceUri.*BOOKKEEPER_METADATA_URI"):
        reader.load()

    dead = reader.option("metadataServiceUri", "zk+hierarchical://127.0.0.1:1/ledgers")
    with pytest.raises(AnalysisException, match=r"(?s)BK_METADATA_UNAVAILABLE.*127\.0\.0\.1:1"):
        dead.option("bookkeeper.client.metadataTimeoutMs", "1000").load()


def test_a_path_without_a_cluster_is_told_from_one_without_logs(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    options = {"metadataServiceUri": f"{cluster.metadata_service_uri}-misspelt", "log": "x"}
    writer = spark.range(1).write.format("bookkeeper").mode("append").options(**options)
    source = spark.readStream.format("rate").load().select("value").writeStream
    sink = source.format("bookkeeper").options(**options, checkpointLocation=str(tmp_path))

    for act in (
        spark.read.format("bookkeeper").options(**options).load,
        spark.readStream.format("bookkeeper").options(**options).load,
        writer.save,
        lambda: sink.trigger(availableNow=True).start().awaitTermination(),
    ):
        with pytest.raises(Exception, match=r"(?s)BK_NOT_INITIALIZED.*root=/ledgers-misspelt"):
            act()


def test_sparks_default_save_mode_is_refused_by_spark(logs: Logs) -> None:
    """The README quotes this error."""
    writer = logs.spark.range(1).write.format("bookkeeper").options(**logs.options())

    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.save()


def test_a_row_larger_than_an_entry_is_a_clear_error(logs: Logs, bk: BookKeeper) -> None:
    before = set(bk.list_ledgers())
    huge = logs.spark.range(1).selectExpr("repeat(cast(rand() AS string), 400000) AS huge")

    with pytest.raises(PythonException, match="BK_ROW_TOO_LARGE"):
        logs.write(huge, compression="none")

    assert set(bk.list_ledgers()) == before
    assert logs.log not in bk.list_logs()
