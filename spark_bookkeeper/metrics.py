"""Metrics of clients for Prometheus.

    from prometheus_client import REGISTRY, start_http_server
    from spark_bookkeeper.metrics import ClientMetrics

    REGISTRY.register(ClientMetrics(bk))
    start_http_server(9100, "127.0.0.1")

Names are Apache's where its client has the same. Of streaming queries see
:class:`spark_bookkeeper.datasource.query_metrics.QueryMetrics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric

from bookkeeper_metadata.foundation.families import apache_counters, durations
from spark_bookkeeper import aio
from spark_bookkeeper.bookkeeper import BookKeeper


class ClientMetrics:
    """What one client did, as a collector of ``prometheus_client``'s registry."""

    def __init__(
        self, client: BookKeeper | aio.BookKeeper, labels: Mapping[str, str] | None = None
    ) -> None:
        """``labels`` tell the clients of a process apart."""
        self._measures = client.measures
        self._labels = dict(labels or {})

    def collect(self) -> Iterator[Metric]:
        """All families."""
        found = self._measures
        for name, what, taken in (
            ("ADD_ENTRY", "Appends, one at a time of each writer", found.adds),
            ("READ_ENTRY", "Reads of runs of entries", found.reads),
            ("LEDGER_CREATE", "Ledgers created", found.creations),
            ("LEDGER_OPEN", "Ledgers opened", found.openings),
            ("LEDGER_RECOVER", "Ledgers recovered and closed", found.recoveries),
        ):
            yield durations(f"bookkeeper_client_{name}_latency", what, [(self._labels, taken)])
        for name, what, value in (
            ("added_entries", "Entries acknowledged", found.added_entries),
            ("READ_BYTES", "Bytes of records read", found.read_bytes),
            ("NUM_ENSEMBLE_CHANGE", "Ensemble changes", found.ensemble_changes),
            ("ended_writers", "Writers that ended with an error", found.ended_writers),
        ):
            yield apache_counters(f"bookkeeper_client_{name}", what, [(self._labels, value)])
