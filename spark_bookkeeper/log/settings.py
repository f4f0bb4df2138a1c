"""When what a log no longer needs is deleted, and how fast."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper_metadata.foundation.defects import raise_all


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """When what nobody needs any more is deleted."""

    deleted_ledger_retention_ms: int = 3_600_000
    """Garbage is kept this long, so that readers that planned before an overwrite finish. 1 h."""
    job_timeout_ms: int = 7 * 86_400_000
    """A planned write older than this is dead; no job may take longer. 7 days."""
    concurrency_max: int = 16
    """Ledgers fenced and deleted at a time: more is faster, and loads the bookies more."""

    def __post_init__(self) -> None:
        found = []
        if self.deleted_ledger_retention_ms < 0:
            found.append("deleted_ledger_retention_ms must not be negative")
        if self.job_timeout_ms < 1:
            found.append("job_timeout_ms must be positive")
        if self.concurrency_max < 1:
            found.append("concurrency_max must be positive")
        raise_all(found, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWriterSettings:
    """When a writer begins a new ledger, and how much it holds; the first limit reached counts.

    A ledger is one range of the log: small ones let truncation drop rows sooner and a take-over
    look at less, large ones keep the list of ranges short.
    """

    roll_entries: int = 1_000_000
    """Entries of a ledger. 0: no limit."""
    roll_bytes: int = 1024 * 1024 * 1024
    """Payload bytes of a ledger, reached by the entry that goes over it. 0: no limit.
    1 GiB, Kafka's ``log.segment.bytes``."""
    roll_interval_ms: int = 4 * 3_600_000
    """Age of a ledger with entries; until it rolls, its rows belong to the tail, which Spark's
    appends have to wait for. 0: no limit. 4 h, Pulsar's ``managedLedgerMaxLedgerRolloverTime``."""
    max_in_flight_bytes: int = 64 * 1024 * 1024
    """Payload bytes held for bookies that have not answered; an append waits beyond it."""

    def __post_init__(self) -> None:
        found = []
        for name in ("roll_entries", "roll_bytes", "roll_interval_ms"):
            if getattr(self, name) < 0:
                found.append(f"{name} must not be negative")
        if self.max_in_flight_bytes < 1:
            found.append("max_in_flight_bytes must be positive")
        raise_all(found, self)
