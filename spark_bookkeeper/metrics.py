"""Metrics of clients for Prometheus.

    from prometheus_client import REGISTRY, start_http_server
    from spark_bookkeeper.metrics import ClientMetrics

    REGISTRY.register(ClientMetrics(bk))
    start_http_server(9100, "127.0.0.1")

Names are Apache's where its client has the same. Of streaming queries see
:class:`spark_bookkeeper.datasource.query_metrics.QueryMetrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.metrics_core import Metric

from bookkeeper_metadata.foundation.families import apache_counters, durations
from bookkeeper_metadata.foundation.measures import Durations
from spark_bookkeeper import aio
from spark_bookkeeper.bookkeeper import BookKeeper
from spark_bookkeeper.ledger.measures import ClientMeasures

Client = BookKeeper | aio.BookKeeper


class ClientMetrics:
    """What clients did, as a collector of ``prometheus_client``'s registry; one for all that a registry shows."""

    def __init__(self, clients: Client | Mapping[str, Client]) -> None:
        """One client, or several by name: the label ``client`` tells them apart."""
        if isinstance(clients, Mapping):
            self._measures = [({"client": name}, each.measures) for name, each in clients.items()]
        else:
            self._measures = [({}, clients.measures)]

    def collect(self) -> Iterator[Metric]:
        """All families."""
        for name, what, of_time in _TIMES:
            taken = [(labels, of_time(found)) for labels, found in self._measures]
            yield durations(f"bookkeeper_client_{name}_latency", what, taken)
        for name, what, of_count in _COUNTS:
            counts = [(labels, of_count(found)) for labels, found in self._measures]
            yield apache_counters(f"bookkeeper_client_{name}", what, counts)


_TIMES: tuple[tuple[str, str, Callable[[ClientMeasures], Durations]], ...] = (
    ("ADD_ENTRY", "Appends, one at a time of each writer", lambda found: found.adds),
    ("READ_ENTRY", "Reads of runs of entries", lambda found: found.reads),
    ("LEDGER_CREATE", "Ledgers created", lambda found: found.creations),
    ("LEDGER_OPEN", "Ledgers opened", lambda found: found.openings),
    ("LEDGER_RECOVER", "Ledgers recovered and closed", lambda found: found.recoveries),
)
_COUNTS: tuple[tuple[str, str, Callable[[ClientMeasures], int]], ...] = (
    ("added_entries", "Entries acknowledged", lambda found: found.added_entries),
    ("READ_BYTES", "Bytes of records read", lambda found: found.read_bytes),
    ("NUM_ENSEMBLE_CHANGE", "Ensemble changes", lambda found: found.ensemble_changes),
    ("ended_writers", "Writers that ended with an error", lambda found: found.ended_writers),
)
