"""Metrics of a session's streaming queries for Prometheus: what they read and committed, and how far behind they are.

    from prometheus_client import REGISTRY, start_http_server
    from spark_bookkeeper.datasource.query_metrics import QueryMetrics

    metrics = QueryMetrics(metadata_service_uri=uri)
    spark.streams.addListener(metrics)
    REGISTRY.register(metrics)
    start_http_server(9101, "127.0.0.1")

All from Spark's progress events; only the names of logs are asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.metrics_core import Metric
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

from bookkeeper_metadata.foundation.families import apache_counters, durations, gauges
from bookkeeper_metadata.foundation.measures import Durations
from spark_bookkeeper.datasource.listener import BatchReport, LagListener


@dataclass(slots=True)
class _Query:
    """What its micro-batches came to, since the listener was added."""

    name: str
    batches: Durations = field(default_factory=Durations)
    rows_written: int = 0
    rows_read: dict[int, int] = field(default_factory=dict)
    """By log's id."""
    lag_rows: dict[int, int] = field(default_factory=dict)
    batch_id: int = -1


class QueryMetrics(LagListener):
    """A listener that is a collector of ``prometheus_client``'s registry as well; says nothing of its own.

    A query that has ended is shown no more.
    """

    def __init__(self, *, metadata_service_uri: str | None = None) -> None:
        super().__init__(lambda _: None, metadata_service_uri=metadata_service_uri)
        self._mutex = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._log_names: dict[int, str] = {}
        """As far as they are known; a log is shown by its id else."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch is done."""
        super().onQueryProgress(event)
        self.note(self.reports[-1])

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """It has no lag any more, and nobody to blame for it."""
        with self._mutex:
            self._queries.pop(str(event.id), None)

    def note(self, report: BatchReport) -> None:
        """Count one micro-batch."""
        with self._mutex:
            query = self._queries.setdefault(
                report.query_id, _Query(report.name or report.query_id)
            )
            query.batch_id = report.batch_id
            query.rows_written += report.rows_written or 0
            if report.took_ms is not None:
                query.batches.add(report.took_ms / 1000)
            for source in report.sources:
                log = source.log_id
                if source.log is not None:
                    self._log_names[log] = source.log
                query.rows_read[log] = query.rows_read.get(log, 0) + source.rows
                if source.lag_rows is not None:
                    query.lag_rows[log] = source.lag_rows

    def collect(self) -> Iterator[Metric]:
        """All families."""
        with self._mutex:
            queries = [*self._queries.values()]
            lags = self._by_log((each.name, each.lag_rows) for each in queries)
            read = self._by_log((each.name, each.rows_read) for each in queries)
        by_query = [({"query": query.name}, query) for query in queries]
        yield gauges("bookkeeper_query_lag_rows", "Rows of the log not read yet", lags)
        yield apache_counters("bookkeeper_query_rows_read_total", "Rows read", read)
        yield apache_counters(
            "bookkeeper_query_rows_written_total",
            "Rows committed, of sinks that count",
            [(labels, query.rows_written) for labels, query in by_query],
        )
        yield gauges(
            "bookkeeper_query_batch_id",
            "The last micro-batch that is done",
            [(labels, query.batch_id) for labels, query in by_query],
        )
        yield durations(
            "bookkeeper_query_batch_time",
            "Micro-batches, from their plan to their commit",
            [(labels, query.batches) for labels, query in by_query],
        )

    def _by_log(
        self, counts: Iterable[tuple[str, dict[int, int]]]
    ) -> list[tuple[dict[str, str], int]]:
        return [
            ({"query": query, "log": self._log_names.get(log_id, str(log_id))}, count)
            for query, by_log in counts
            for log_id, count in by_log.items()
        ]
