"""What a scrape of a process of auto-recovery shows; Apache's names where it has them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from bookkeeper_metadata.foundation.families import apache_counter, counter, durations, gauge
from spark_bookkeeper.log.housekeeping import HousekeepingMeasures
from spark_bookkeeper.replication.measures import ReplicationMeasures


class AutoRecoveryExposition:
    """A collector of ``prometheus_client``'s registry."""

    def __init__(self, measures: ReplicationMeasures, house: HousekeepingMeasures) -> None:
        self._measures = measures
        self._house = house

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._auditor()
        yield from self._worker()
        yield from self._housekeeping()

    def _auditor(self) -> Iterator[Metric]:
        found = self._measures
        yield gauge("auditor_elected", "1 if this process is the auditor", int(found.is_auditor))
        yield durations(
            "auditor_AUDIT_BOOKIES_TIME", "Audits of lost bookies", [({}, found.audits)]
        )
        yield durations("auditor_CHECK_ALL_LEDGERS_TIME", "Checks of copies", [({}, found.checks)])
        yield counter("auditor_marked_ledgers", "Ledgers marked", found.marked_ledgers)
        yield gauge(
            "auditor_NUM_UNDER_REPLICATED_LEDGERS",
            "Ledgers marked at the last look",
            found.underreplicated_ledgers,
        )

    def _worker(self) -> Iterator[Metric]:
        found = self._measures
        yield durations(
            "replication_worker_REREPLICATE_OP_latency", "Ledgers mended", [({}, found.mended)]
        )
        yield apache_counter(
            "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",
            "Ledgers mended",
            found.mended.count,
        )
        yield counter("replication_worker_failed_tries", "To be tried again", found.failed_tries)
        yield apache_counter(
            "replication_worker_NUM_BYTES_WRITTEN", "Bytes of copies sent", found.pace.begun_bytes
        )
        yield counter(
            "replication_worker_replaced_members", "Shares taken over", found.replaced_members
        )
        yield counter(
            "replication_worker_recovered_ledgers",
            "Taken from their writers",
            found.recovered_ledgers,
        )

    def _housekeeping(self) -> Iterator[Metric]:
        found = self._house
        yield durations("logs_gc_time", "Collections of all logs", [({}, found.rounds)])
        yield counter("logs_gc_failures", "Logs that were not collected", found.failures)
        yield counter("logs_gc_deleted_ledgers", "Ledgers that logs gave up", found.deleted_ledgers)
        yield counter("logs_gc_dropped_rows", "Rows that retention let go", found.dropped_rows)
        yield gauge(
            "logs_gc_waiting_bytes",
            "Dropped, and kept for readers a while; of one copy",
            found.waiting_bytes,
        )
