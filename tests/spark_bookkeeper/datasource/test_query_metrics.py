"""Metrics of streaming queries from the events that Spark sends; no Spark runs here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from spark_bookkeeper.datasource.listener import LogNames
from spark_bookkeeper.datasource.query_metrics import QueryMetrics
from tests.spark_bookkeeper.datasource.test_listener import QUERY, event, source


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> QueryMetrics:
    monkeypatch.setattr(LogNames, "_ask", lambda _self, log_id: f"log-{log_id}")
    return QueryMetrics(metadata_service_uri="zk://h:1/ledgers")


def scrape(metrics: QueryMetrics) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry


def test_batches_are_added_up_and_lag_is_that_of_the_last(metrics: QueryMetrics) -> None:
    metrics.onQueryProgress(event())
    behind = source(endOffset={"log": 77, "row": 4000}, latestOffset={"log": 77, "row": 4100})
    metrics.onQueryProgress(event(batchId=5, sources=[behind]))

    shown = scrape(metrics).get_sample_value
    of_log = {"query": "copy", "log": "log-77"}
    assert shown("bookkeeper_query_lag_rows", of_log) == 100
    assert shown("bookkeeper_query_rows_read_total", of_log) == 1000
    assert shown("bookkeeper_query_rows_written_total", {"query": "copy"}) == 998
    assert shown("bookkeeper_query_batch_id", {"query": "copy"}) == 5
    assert shown("bookkeeper_query_batch_time_count", {"query": "copy"}) == 2
    assert shown("bookkeeper_query_batch_time_sum", {"query": "copy"}) == pytest.approx(2060)


def test_a_query_without_a_name_is_shown_by_its_id_until_it_ends(metrics: QueryMetrics) -> None:
    metrics.onQueryProgress(event(name=None))
    assert scrape(metrics).get_sample_value("bookkeeper_query_batch_id", {"query": QUERY}) == 4

    ended: Any = SimpleNamespace(id=QUERY)
    metrics.onQueryTerminated(ended)

    assert scrape(metrics).get_sample_value("bookkeeper_query_batch_id", {"query": QUERY}) is None


def test_a_sink_that_does_not_count_adds_no_rows(metrics: QueryMetrics) -> None:
    metrics.onQueryProgress(event(sink={"description": "x", "numOutputRows": -1}))

    found = scrape(metrics).get_sample_value(
        "bookkeeper_query_rows_written_total", {"query": "copy"}
    )
    assert found == 0
