"""Filters on real Spark and real bookies: the rows are right in both confs, and less is fetched."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter

from spark_bookkeeper import LocalCluster
from spark_bookkeeper.datasource.source import BookKeeperSource
from tests.spark.conftest import PUSHDOWN, Logs, conf, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = (
    "id",
    "if(id % 7 = 0, null, cast(id / 3 AS decimal(12, 2))) AS price",
    "if(id % 100 = 1, double('NaN'), id / 4) AS ratio",
    "concat('n', lpad(cast(id AS string), 5, '0')) AS Name",
    "date_add(date'2024-01-01', cast(id AS int)) AS day",
    "timestamp_seconds(1700000000 + id * 60) AS at",
    "cast(timestamp_seconds(1700000000 + id * 60) AS timestamp_ntz) AS local",
    "cast(id AS decimal(38, 10)) + 1234567890123456789012345678.1234567891BD AS exact",
    "struct(id AS inner) AS nested",
)
CONDITIONS = (
    "id = 1234",
    "ID BETWEEN 100 AND 110 AND name > 'n00105'",
    "id IN (3, 1500, 2999, null)",
    "id <> 5 AND id < 8",
    "NOT (id > 10)",
    "id <=> 77",
    "price = 5.01 OR id = 2",
    "price IS NULL AND id < 30",
    "price >= 999.00",
    "ratio = double('NaN') AND id < 300",
    "ratio > 740",
    "name LIKE 'n012%'",
    "name LIKE '%99' AND name NOT LIKE 'n00%'",
    "day = date'2025-06-01'",
    "at >= timestamp'2023-11-16 22:13:00' AND at < timestamp'2023-11-17'",
    "local = timestamp_ntz'2023-11-15 00:00:20'",
    "exact = 1234567890123456789012345678.1234567891BD",
    "exact <= 1234567890123456789012345678.1234567891BD",
    "nested.inner = 12",
    "id > 1e9",
    "cast(id AS string) = '12'",
)


@pytest.fixture(params=["true", "false"])
def pushdown(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    with conf(spark, PUSHDOWN, request.param):
        yield


@pytest.fixture(scope="module")
def written(spark: SparkSession, cluster: LocalCluster) -> str:
    frame = spark.range(0, 3000, 1, 4).selectExpr(*COLUMNS)
    Logs(spark, cluster.metadata_service_uri, "pruned").write(frame, entryBytes="4k")
    return "pruned"


@pytest.mark.usefixtures("pushdown")
def test_filtered_reads_are_sparks_own_answer(logs: Logs, written: str) -> None:
    twin = logs.spark.range(0, 3000, 1, 4).selectExpr(*COLUMNS)

    for condition in CONDITIONS:
        assert rows(logs.read(written).where(condition)) == rows(twin.where(condition)), condition


@pytest.mark.usefixtures("pushdown")
def test_filters_on_metadata_columns_are_sparks_own_answer(logs: Logs, written: str) -> None:
    found = logs.read(written, includeMetadata="true")

    assert found.where("_position >= 2990").count() == 10
    assert found.where("_query_id IS NULL AND _batch_id IS NULL").count() == 3000
    assert found.where("_timestamp < timestamp'2001-01-01'").count() == 0


def test_pruned_entries_are_not_fetched_from_bookies(
    cluster: LocalCluster, written: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"log": written, "metadataserviceuri": cluster.metadata_service_uri}
    source = BookKeeperSource(options)

    def fetched(filters: list[Filter]) -> tuple[int, int]:
        """Rows, and entries fetched, of a read driven as Spark drives it."""
        reader = source.reader(source.schema())
        assert list(reader.pushFilters(filters)) == filters
        caplog.clear()
        with caplog.at_level(logging.INFO, "spark_bookkeeper.reads"):
            batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        facts = [record.getMessage() for record in caplog.records if "ended" in record.message]
        return sum(len(batch) for batch in batches), sum(
            int(fact.split("entries_fetched=")[1].split()[0]) for fact in facts
        )

    all_rows, all_entries = fetched([])
    few_rows, few_entries = fetched([EqualTo(("id",), 1234)])
    no_rows, no_entries = fetched([EqualTo(("Name",), "none")])

    assert all_rows == 3000
    assert 1 <= few_rows < 500
    # The footer, the entry, and a neighbour at most.
    assert 2 <= few_entries <= 3 < 12 < all_entries
    assert (no_rows, no_entries) == (0, 0)


def test_worker_logging_shows_the_entries_each_task_fetched(
    spark: SparkSession, logs: Logs, written: str
) -> None:
    logging_conf = "spark.sql.pyspark.worker.logging.enabled"
    with conf(spark, logging_conf, "true"), conf(spark, PUSHDOWN, "true"):
        assert logs.read(written).where("id = 1234").count() == 1
        told = [row.msg for row in spark.tvf.python_worker_logs().collect()]

    assert any("read planned. log=pruned" in line and "ranges_pruned=3" in line for line in told)
    assert any("entries_fetched=" in line and "rows=" in line for line in told)
