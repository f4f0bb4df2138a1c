"""The listener on real Spark: the lag of a query from log to log, and the commits it made."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.datasource.listener import Lag, LagListener, lag
from tests.patience import seconds
from tests.spark.conftest import Logs

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAIT_TIMEOUT_S = 60.0


def test_lag_falls_with_every_batch_and_its_commit_is_the_logs_transaction(
    spark: SparkSession, cluster: LocalCluster, logs: Logs, bk: BookKeeper, tmp_path: Path
) -> None:
    logs.write(spark.range(100).coalesce(1), "lag_source")
    log_id = bk.open_log("lag_source").log_id
    uri = cluster.metadata_service_uri
    all_told = threading.Event()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            all_told.set()

    listener = LagListener(say, metadata_service_uri=uri)
    spark.streams.addListener(listener)
    try:
        reader = spark.readStream.format("bookkeeper").option("startingOffsets", "earliest")
        reader = reader.option("metadataServiceUri", uri).option("maxRowsPerTrigger", 40)
        writer = reader.load("lag_source").writeStream.format("bookkeeper").queryName("copy")
        writer = writer.option("metadataServiceUri", uri).option("log", "lag_copy")
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        assert all_told.wait(seconds(WAIT_TIMEOUT_S))
    finally:
        spark.streams.removeListener(listener)

    steps = [
        (each.log_id, each.start_row, each.end_row, each.lag_rows) for each in sources(listener)
    ]
    assert steps == [(log_id, 0, 40, 60), (log_id, 40, 80, 20), (log_id, 80, 100, 0)]
    assert [report.rows_written for report in listener.reports] == [40, 40, 20]
    last = listener.reports[-1]
    assert bk.open_log("lag_copy").transactions() == {last.query_id: last.batch_id}
    progress = query.lastProgress
    assert progress is not None
    assert lag(progress) == [replace(each, log=None) for each in last.sources]
    assert lines[0].startswith(
        f"copy batch 0: log lag_source (id {log_id}) rows 0 to 40, 60 rows behind"
    )


def sources(listener: LagListener) -> list[Lag]:
    return [source for report in listener.reports for source in report.sources]
