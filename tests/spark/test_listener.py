"""The listener on real Spark: the lag of a query from log to log, and the commits it made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper
from spark_bookkeeper.datasource.listener import LagListener, lag
from tests.spark.calls import finish
from tests.spark.conftest import Logs
from tests.spark.waits import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_lag_falls_with_every_batch_and_its_commit_is_the_logs_transaction(
    logs: Logs, bk: BookKeeper, tmp_path: Path
) -> None:
    logs.write(range(100), "lag_source", partitions=1)
    log_id = bk.open_log("lag_source").log_id
    lines: list[str] = []
    listener = LagListener(lines.append, metadata_service_uri=bk.metadata_service_uri)
    logs.spark.streams.addListener(listener)
    try:
        frame = logs.stream("lag_source", startingOffsets="earliest", maxRowsPerTrigger=40)
        writer = frame.writeStream.format("bookkeeper").queryName("copy")
        options = logs.options("lag_copy")
        query = finish(writer.options(**options, checkpointLocation=str(tmp_path)))
        wait_until(lambda: len(lines) == 3, "three lines")
    finally:
        logs.spark.streams.removeListener(listener)

    sources = [source for report in listener.reports for source in report.sources]
    steps = [(each.log_id, each.start_row, each.end_row, each.lag_rows) for each in sources]
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
