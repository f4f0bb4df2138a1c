"""Lag and commits from progress JSON as Spark 4.3 writes it; no Spark runs here."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.datasource.listener import (
    NAME_RETRY_S,
    Lag,
    LagListener,
    LogNames,
    batch_report,
    lag,
)

QUERY = "b7ff4b20-dfca-4483-ba33-be016079af71"


def progress(**changes: Any) -> dict[str, Any]:
    """An event of a query from log 77 into a log, as PySpark's listener printed it."""
    return {
        "id": QUERY,
        "runId": "ed76f7f4-9b2f-4897-9a3d-1ba37ba4d46f",
        "name": "copy",
        "timestamp": "2026-11-21T11:06:02.057Z",
        "batchId": 4,
        "batchDuration": 1030,
        "numInputRows": 500,
        "inputRowsPerSecond": 33.3,
        "processedRowsPerSecond": 485.4,
        "observedMetrics": {},
        "durationMs": {"addBatch": 482, "commitOffsets": 62},
        "stateOperators": [],
        "sources": [source()],
        "sink": {
            "description": "org.apache.spark.sql.execution.datasources.v2.python.PythonTable@79b7",
            "numOutputRows": 499,
        },
        **changes,
    }


def source(**changes: Any) -> dict[str, Any]:
    return {
        "description": "org.apache.spark.sql.execution.datasources.v2.python.PythonScan@1",
        "startOffset": {"log": 77, "row": 1000},
        "endOffset": {"log": 77, "row": 1500},
        "latestOffset": {"log": 77, "row": 4000},
        "numInputRows": 500,
        "inputRowsPerSecond": 33.3,
        "processedRowsPerSecond": 485.4,
        "metrics": {},
        **changes,
    }


def event(**changes: Any) -> QueryProgressEvent:
    return QueryProgressEvent(StreamingQueryProgress.fromJson(progress(**changes)))


FILES = {
    "description": "FileStreamSource[file:/tmp/source]",
    "startOffset": {"logOffset": 0},
    "endOffset": {"logOffset": 1},
    "latestOffset": None,
    "numInputRows": 500,
}


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({}, (1000, 4000, 2500)),
        # Spark reports no start for batch 0, and keeps none: the end offset holds it.
        ({"startOffset": None, "endOffset": {"from": 900, "log": 77, "row": 1500}},
         (900, 4000, 2500)),
        # A start that nobody knows is not invented.
        ({"startOffset": {"log": 77, "start": "latest"}, "latestOffset": None},
         (None, None, None)),
        # A log that shrank since is no negative lag.
        ({"latestOffset": {"log": 77, "row": 1400}}, (1000, 1400, 0)),
    ],
)  # fmt: skip
def test_lag_is_what_the_log_holds_beyond_the_batch(
    changes: dict[str, Any], known: tuple[int | None, ...]
) -> None:
    (found,) = lag(progress(sources=[source(**changes)]))

    start_row, latest_row, lag_rows = known
    assert found == Lag(77, start_row, 1500, latest_row, 500, 485.4)
    assert found.lag_rows == lag_rows
    if start_row is None:
        report = batch_report(progress(sources=[source(**changes)]))
        assert "rows ? to 1,500, unknown lag" in report.as_line()


def test_every_log_of_a_query_is_told_and_its_other_sources_are_not() -> None:
    other = source(endOffset={"log": 78, "row": 9}, latestOffset={"log": 78, "row": 9})

    assert [each.log_id for each in lag(progress(sources=[source(), FILES, other]))] == [77, 78]
    assert lag(progress(sources=[FILES])) == []


def test_offsets_may_be_text_and_foreign_text_is_not_ours() -> None:
    as_text = source()
    for key in ("startOffset", "endOffset", "latestOffset"):
        as_text[key] = json.dumps(as_text[key])

    assert lag(progress(sources=[as_text])) == lag(progress())
    assert lag(progress(sources=[source(endOffset="(not json")])) == []
    assert lag(json.dumps(progress())) == lag(progress())


@pytest.mark.parametrize(
    "offset",
    [{"log": "a", "row": "b"}, {"log": 1, "row": None}, {"log": True, "row": 1}, "[" * 100_000],
)
def test_an_offset_of_another_source_is_not_ours_whatever_its_fields_are_called(
    offset: object,
) -> None:
    """It ended the listener, and with it what Spark tells of all queries."""
    report = batch_report(
        {"id": "q", "batchId": 0, "sources": [{"endOffset": offset}], "sink": None}
    )
    assert report.sources == ()
    assert report.rows_written is None


def test_a_sink_that_does_not_count_has_no_rows() -> None:
    uncounted = progress(sink={"description": "ForeachBatchSink", "numOutputRows": -1})

    assert batch_report(uncounted).rows_written is None
    assert batch_report(progress()).rows_written == 499


def test_the_listener_says_one_line_a_batch_and_remembers_it() -> None:
    lines: list[str] = []
    listener = LagListener(lines.append)

    listener.onQueryProgress(event())
    listener.onQueryProgress(event(name=None, sources=[]))

    assert lines == [
        "copy batch 4: log 77 rows 1,000 to 1,500, 2,500 rows behind, 485 rows/s; wrote 499 rows",
        f"{QUERY} batch 4: wrote 499 rows",
    ]
    assert [report.batch_id for report in listener.reports] == [4, 4]


def test_a_listener_that_knows_the_cluster_asks_for_each_name_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def ask(_self: LogNames, log_id: int) -> str:
        asked.append(log_id)
        return "orders"

    monkeypatch.setattr(LogNames, "_ask", ask)
    lines: list[str] = []
    listener = LagListener(lines.append, metadata_service_uri="zk://h:1/ledgers")

    listener.onQueryProgress(event())
    listener.onQueryProgress(event())

    assert lines[0].startswith("copy batch 4: log orders (id 77) rows 1,000 to 1,500, 2,500 rows")
    assert [each.log for report in listener.reports for each in report.sources] == ["orders"] * 2
    assert asked == [77]


def test_a_name_the_cluster_does_not_say_is_asked_for_again_a_minute_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster that is away must not hold up Spark's listeners with every event."""
    now_s = 5.0
    answers: list[str | BookKeeperError | None] = [
        MetadataUnavailableError("zk", "away"), None, "orders",
    ]  # fmt: skip

    def ask(_self: LogNames, log_id: int) -> str | None:
        answer = answers.pop(0)
        if isinstance(answer, BookKeeperError):
            raise answer
        return answer

    monkeypatch.setattr(LogNames, "_ask", ask)
    names = LogNames("zk://h:1/ledgers", clock_s=lambda: now_s)

    assert [names.name(77), names.name(77)] == [None, None]
    assert len(answers) == 2
    now_s += NAME_RETRY_S
    assert names.name(77) is None
    now_s += NAME_RETRY_S
    assert names.name(77) == "orders"
