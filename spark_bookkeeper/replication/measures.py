"""What one process of auto-recovery counts, and what a scrape of it shows; Apache's names where it has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bookkeeper_metadata.foundation.measures import Durations
from bookkeeper_metadata.foundation.pace import LoopPace

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


@dataclass(slots=True, eq=False)  # the registry keeps it by its identity
class ReplicationMeasures:
    """Since its start; its event loop counts, any thread may look."""

    is_auditor: bool = False
    audits: Durations = field(default_factory=Durations)
    """Looks for the ledgers of lost bookies."""
    checks: Durations = field(default_factory=Durations)
    """Walks that ask all bookies what they hold."""
    marked_ledgers: int = 0
    """By these two."""
    underreplicated_ledgers: int = 0
    """Marked ones at the last look."""
    mended: Durations = field(default_factory=Durations)
    """Ledgers that are whole since."""
    failed_tries: int = 0
    pace: LoopPace = field(default_factory=partial(LoopPace, 0))
    """Of the copies: it knows how many bytes those are."""
    replaced_members: int = 0
    recovered_ledgers: int = 0
    """Taken from their writers."""

    def collect(self) -> Iterator[Metric]:
        """All families, for ``prometheus_client``'s registry."""
        # Here: whoever only copies ledgers, as a command does, needs no such library.
        from bookkeeper_metadata.foundation.families import (
            apache_counter,
            counter,
            durations,
            gauge,
        )

        yield gauge("auditor_elected", "1 if this process is the auditor", int(self.is_auditor))
        yield durations("auditor_AUDIT_BOOKIES_TIME", "Audits of lost bookies", [({}, self.audits)])
        yield durations("auditor_CHECK_ALL_LEDGERS_TIME", "Checks of copies", [({}, self.checks)])
        yield counter("auditor_marked_ledgers", "Ledgers marked", self.marked_ledgers)
        yield gauge(
            "auditor_NUM_UNDER_REPLICATED_LEDGERS",
            "Ledgers marked at the last look",
            self.underreplicated_ledgers,
        )
        yield durations(
            "replication_worker_REREPLICATE_OP_latency", "Ledgers mended", [({}, self.mended)]
        )
        yield apache_counter(
            "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",
            "Ledgers mended",
            self.mended.count,
        )
        yield counter("replication_worker_failed_tries", "To be tried again", self.failed_tries)
        yield apache_counter(
            "replication_worker_NUM_BYTES_WRITTEN", "Bytes of copies sent", self.pace.begun_bytes
        )
        yield counter(
            "replication_worker_replaced_members", "Shares taken over", self.replaced_members
        )
        yield counter(
            "replication_worker_recovered_ledgers",
            "Taken from their writers",
            self.recovered_ledgers,
        )
