"""DataFrames through three bookies and back, on real Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.cli.local import SNIPPET
from tests.spark.conftest import Logs, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVERY_TYPE = st.StructType(
    [
        st.StructField("nothing", st.NullType()),
        st.StructField("flag", st.BooleanType()),
        st.StructField("tiny", st.ByteType()),
        st.StructField("small", st.ShortType()),
        st.StructField("number", st.IntegerType()),
        st.StructField("big", st.LongType()),
        st.StructField("single", st.FloatType()),
        st.StructField("double", st.DoubleType()),
        st.StructField("price", st.DecimalType(38, 9)),
        st.StructField("day", st.DateType()),
        st.StructField("at", st.TimestampType()),
        st.StructField("local", st.TimestampNTZType()),
        st.StructField("text", st.StringType()),
        st.StructField("bytes", st.BinaryType()),
        st.StructField("list", st.ArrayType(st.IntegerType())),
        st.StructField("lists", st.ArrayType(st.ArrayType(st.StringType()))),
        st.StructField("map", st.MapType(st.StringType(), st.LongType())),
        st.StructField(
            "nested",
            st.StructType(
                [
                    st.StructField("a", st.LongType()),
                    st.StructField(
                        "b", st.ArrayType(st.StructType([st.StructField("c", st.DateType())]))
                    ),
                ]
            ),
        ),
    ]
)
FULL = (
    None,
    True,
    -128,
    32767,
    -(2**31),
    2**63 - 1,
    1.5,
    -2.5e300,
    Decimal("12345678901234567890.123456789"),
    dt.date(1582, 10, 15),
    dt.datetime(2024, 2, 29, 12, 30, 1, 123456, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001  a zoneless type
    "Grüße \U0001f642 \0",
    b"\x00\xff",
    [1, None, 3],
    [["a"], [], None],
    {"k": 1, "": None},
    (7, [(dt.date(2020, 1, 1),), None]),
)
EMPTY = (None,) * len(FULL)


def test_what_the_local_cluster_prints_can_be_pasted(
    cluster: LocalCluster, logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(SNIPPET.splitlines()) <= 5

    exec(SNIPPET.format(uri=cluster.metadata_service_uri), {})

    assert "| id|" in capsys.readouterr().out
    assert logs.read("numbers").count() == 1000


def test_every_type_comes_back_row_for_row(logs: Logs, spark: SparkSession) -> None:
    frame = spark.createDataFrame([FULL, EMPTY, FULL], EVERY_TYPE)

    logs.write(frame, "every-type")

    back = logs.read("every-type")
    assert back.schema.simpleString() == frame.schema.simpleString()
    assert rows(back) == rows(frame)


def test_rows_equal_what_parquet_returns(
    logs: Logs, spark: SparkSession, parquet: Callable[[DataFrame], DataFrame]
) -> None:
    frame = spark.range(20_000).select(
        "id",
        (sf.col("id") % 7).cast("string").alias("s"),
        sf.when(sf.col("id") % 5 != 0, sf.col("id") / 3).alias("maybe"),
        sf.array(sf.col("id"), sf.lit(None)).alias("a"),
        sf.timestamp_seconds(sf.col("id") * 1000).alias("t"),
    )

    logs.write(frame, "like-parquet")

    assert rows(logs.read("like-parquet")) == rows(parquet(frame))


def test_three_hundred_columns(logs: Logs, spark: SparkSession) -> None:
    frame = spark.range(500).select(*[(sf.col("id") * n).alias(f"c{n}") for n in range(300)])

    logs.write(frame, "wide")

    back = logs.read("wide")
    assert len(back.columns) == 300
    assert rows(back) == rows(frame)


def test_appends_add_and_overwrites_replace(logs: Logs, spark: SparkSession) -> None:
    logs.write(spark.range(10), "table")
    logs.write(spark.range(10, 15), "table")
    assert logs.read("table").count() == 15

    logs.write(spark.range(3), "table", mode="overwrite")

    assert rows(logs.read("table")) == rows(spark.range(3))


def test_an_empty_frame_makes_an_empty_log(logs: Logs, spark: SparkSession) -> None:
    logs.write(spark.range(0), "empty")

    assert logs.read("empty").count() == 0
    assert logs.read("empty").dtypes == spark.range(0).dtypes


def test_the_log_may_be_the_path(
    spark: SparkSession, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = cluster.metadata_service_uri
    writer = spark.range(5).write.format("bookkeeper").mode("append")
    writer.option("metadataServiceUri", uri).save("by-path")

    reader = spark.read.format("bookkeeper").option("metadataServiceUri", uri)
    assert reader.load("by-path").count() == 5


def test_a_temporary_view_reads_a_log(
    logs: Logs, spark: SparkSession, cluster: LocalCluster
) -> None:
    logs.write(spark.range(4), "viewed")

    spark.sql(
        "CREATE TEMPORARY VIEW viewed_log USING bookkeeper "
        f"OPTIONS (log 'viewed', metadataServiceUri '{cluster.metadata_service_uri}')"
    )

    assert spark.sql("SELECT sum(id) FROM viewed_log").collect()[0][0] == 6


def test_raw_payloads_are_entries_as_they_are(
    logs: Logs, spark: SparkSession, bk: BookKeeper
) -> None:
    values = [bytearray(b"one"), bytearray(b""), bytearray(b"three")]
    frame = spark.createDataFrame([(v,) for v in values], "value binary").coalesce(1)

    logs.write(frame, "raw", payloadFormat="raw")

    assert rows(logs.read("raw")) == rows(frame)


def test_a_raw_ledger_is_read_by_its_id(logs: Logs, bk: BookKeeper) -> None:
    with bk.create_ledger() as writer:
        writer.append_many([b"a", b"b"])
    with bk.create_ledger() as second:
        second.append(b"c")

    one = logs.read(ledger=writer.ledger_id)
    both = logs.read(ledger=f"{writer.ledger_id},{second.ledger_id}")

    assert one.dtypes == [("_ledger", "bigint"), ("_entry", "bigint"), ("value", "binary")]
    assert [(r._entry, bytes(r.value)) for r in one.orderBy("_entry").collect()] == [
        (0, b"a"),
        (1, b"b"),
    ]
    assert both.count() == 3


def test_partitions_split_and_pack_without_losing_a_row(logs: Logs, spark: SparkSession) -> None:
    frame = spark.range(50_000).select("id", sf.rand(1).alias("r")).repartition(3)
    logs.write(frame, "split", entryBytes="20k")

    for options in (
        {"minPartitions": 7},
        {"maxBytesPerPartition": "50k"},
        {"maxRowsPerPartition": 9000},
    ):
        back = logs.read("split", **options)
        assert back.rdd.getNumPartitions() >= 4, options
        assert back.agg(sf.count("id"), sf.sum("id")).collect()[0] == (50_000, 1249975000)


def test_columns_are_chosen_before_they_are_decoded(logs: Logs, spark: SparkSession) -> None:
    logs.write(spark.range(5).selectExpr("id", "id + 1 AS b", "id + 2 AS c"), "columns")

    assert logs.read("columns", columns="c,id").columns == ["c", "id"]


def test_a_transaction_is_written_once(logs: Logs, spark: SparkSession) -> None:
    for _ in range(2):
        logs.write(spark.range(5), "transacted", txnAppId="job", txnVersion=1)
    logs.write(spark.range(5), "transacted", txnAppId="job", txnVersion=2)

    assert logs.read("transacted").count() == 10


def failing(frame: DataFrame, message: str) -> DataFrame:
    """The same rows, but the last one's partition fails."""
    return frame.selectExpr(f"CASE WHEN id < 9999 THEN id ELSE raise_error('{message}') END AS id")


def test_a_failed_job_leaves_nothing_visible_and_nothing_behind(
    logs: Logs, spark: SparkSession, bk: BookKeeper
) -> None:
    logs.write(spark.range(10), "failing")
    before = set(bk.list_ledgers())

    with pytest.raises(Exception, match="halfway"):
        logs.write(failing(spark.range(0, 10_000, 1, 4), "halfway"), "failing", entryBytes="2k")

    assert logs.read("failing").count() == 10
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
    logs: Logs, spark: SparkSession, options: dict[str, str], says: str
) -> None:
    log = f"never-made-{next(iter(options))}"
    with pytest.raises(Exception, match=rf"(?s){says}"):
        logs.write(spark.range(5), log, **options)


def test_columns_that_do_not_fit_are_listed_and_nothing_is_written(
    logs: Logs, spark: SparkSession, bk: BookKeeper
) -> None:
    logs.write(spark.range(5), "typed")
    before = set(bk.list_ledgers())

    with pytest.raises(Exception, match=r"(?s)BK_SCHEMA_MISMATCH.*id"):
        logs.write(spark.range(5).selectExpr("cast(id AS string) AS id", "1 AS x"), "typed")

    assert set(bk.list_ledgers()) == before
    assert logs.read("typed").count() == 5


def test_a_log_or_ledger_that_is_not_there_is_named(logs: Logs) -> None:
    with pytest.raises(Exception, match=r"(?s)BK_NO_SUCH_LOG.*nowhere"):
        logs.read("nowhere").count()
    with pytest.raises(Exception, match=r"(?s)BK_NO_SUCH_LEDGER.*987654"):
        logs.read(ledger=987654).count()


def test_the_wrong_password_is_refused(logs: Logs, spark: SparkSession) -> None:
    logs.write(spark.range(5), "secret", password="right")

    assert logs.read("secret", password="right").count() == 5
    with pytest.raises(Exception, match="BK_UNAUTHORIZED"):
        logs.read("secret", password="wrong").count()


def test_no_cluster_and_a_dead_cluster_are_told_apart(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_sparks_default_save_mode_is_refused_by_spark(
    spark: SparkSession, cluster: LocalCluster
) -> None:
    """The README quotes this error."""
    writer = spark.range(1).write.format("bookkeeper").option("log", "mode")
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.option("metadataServiceUri", cluster.metadata_service_uri).save()


def test_a_row_larger_than_an_entry_is_a_clear_error(
    logs: Logs, spark: SparkSession, bk: BookKeeper
) -> None:
    before = set(bk.list_ledgers())
    frame = spark.range(1).select(sf.expr("repeat(cast(rand() AS string), 400000)").alias("huge"))

    with pytest.raises(PythonException, match="BK_ROW_TOO_LARGE"):
        logs.write(frame, "huge", compression="none")

    assert set(bk.list_ledgers()) == before
    assert "huge" not in bk.list_logs()
