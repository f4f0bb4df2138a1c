"""Optimize as users run it: as a Spark job, beside a query that reads, over real ledgers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_bookkeeper import BookKeeper, LocalCluster, optimize
from spark_bookkeeper.admin.log_documents import session_with
from tests.spark.calls import finish
from tests.spark.conftest import Logs, rows
from tests.spark.test_raw_logs import RawLog

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLACES = ("_ledger", "_entry")


def collect(cluster: LocalCluster, log: str) -> None:
    session = session_with(cluster.metadata_service_uri)
    log_id = session.run(session.catalog.open(log)).log_id
    session.run(session.collector.collect(log_id, log=log))


def test_small_batches_become_one_ledger_and_every_row_stays(
    spark: SparkSession,
    logs: Logs,
    log: str,
    cluster: LocalCluster,
    bk: BookKeeper,
    tmp_path: Path,
) -> None:
    elsewhere = set(bk.list_ledgers())
    uri = cluster.metadata_service_uri
    logs.write(range(100), partitions=4)
    logs.write(range(100, 200), f"{log}-source", partitions=1)
    batches = logs.stream(f"{log}-source", startingOffsets="earliest", maxRowsPerTrigger=10)
    writer = batches.writeStream.format("bookkeeper").options(**logs.options())
    checkpoint = str(tmp_path / "checkpoint")
    finish(writer.option("checkpointLocation", checkpoint))
    elsewhere |= set(bk.list_ledgers()) - logs.ledgers()
    before = logs.read(includeMetadata=True).drop(*PLACES)
    seen = rows(before)
    count = len(logs.ledgers())

    report = optimize(spark, log, metadataServiceUri=uri, deletedLedgerRetention="0s", min_ranges=2)

    assert report.failures == []
    assert (report.ranges_before, report.given_up) == (count, 0)
    assert len(logs.ledgers()) == report.ranges_after < count / 4
    assert rows(logs.read(includeMetadata=True).drop(*PLACES)) == seen
    follower = logs.stream(startingOffsets="earliest", maxRowsPerTrigger=37).writeStream
    finish(follower.format("memory").queryName("followed"))
    assert spark.table("followed").count() == len(seen)
    collect(cluster, logs.log)
    assert set(bk.list_ledgers()) - elsewhere == logs.ledgers()
    assert rows(logs.read(includeMetadata=True).drop(*PLACES)) == seen


def test_a_log_of_both_spark_and_python_keeps_values_and_times(
    spark: SparkSession,
    bk: BookKeeper,
    log: str,
    cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = RawLog(spark, bk, log)
    raw.by_spark(3, payloadFormat="raw")
    for count in (2, 5, 1):
        raw.by_python(count)
        raw.by_spark(count)
    before = rows(raw.read(includeMetadata=True).drop(*PLACES))
    values = [(row, value) for row, _, _, value in raw.seen_by_python()]

    with monkeypatch.context() as installed:
        # It is not among what an installation brings.
        installed.setitem(sys.modules, "pandas", None)
        report = optimize(
            spark, log, metadataServiceUri=cluster.metadata_service_uri, deletedLedgerRetention="0s"
        )
    collect(cluster, log)

    assert (report.ranges_before, report.ranges_after, report.rows) == (7, 1, 19)
    assert rows(raw.read(includeMetadata=True).drop(*PLACES)) == before
    assert [(row, value) for row, _, _, value in raw.seen_by_python()] == values
    assert raw.seen_by_python() == raw.seen_by_spark()
    raw.by_python(2)
    assert len(raw.seen_by_python()) == 21
