"""When what a log no longer needs is deleted, and how fast."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper_metadata.foundation.settings import Settings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(Settings):
    """When data that is no longer needed is deleted."""

    deleted_ledger_retention_ms: int = setting(3_600_000, minimum=0)
    """Garbage is kept this long, so that readers that planned before an overwrite finish. 1 h."""
    job_timeout_ms: int = 7 * 86_400_000
    """A planned write older than this is dead; no job may take longer. 7 days."""
    concurrency_max: int = 16
    """Ledgers fenced and deleted at a time: more is faster, and loads the bookies more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWriterSettings(Settings):
    """When a writer begins a new ledger, and how much it holds; the first limit reached counts.

    A ledger is one range of the log: small ones let truncation drop rows sooner and a take-over
    look at less, large ones keep the list of ranges short.
    """

    roll_entries: int = setting(1_000_000, minimum=0)
    """Entries of a ledger. 0: no limit."""
    roll_bytes: int = setting(1024 * 1024 * 1024, minimum=0)
    """Payload bytes of a ledger, reached by the entry that goes over it. 0: no limit.
    1 GiB, Kafka's ``log.segment.bytes``."""
    roll_interval_ms: int = setting(4 * 3_600_000, minimum=0)
    """Age of a ledger with entries; until it rolls, its rows belong to the tail, which Spark's
    appends have to wait for. 0: no limit. 4 h, Pulsar's ``managedLedgerMaxLedgerRolloverTime``."""
    max_in_flight_bytes: int = 64 * 1024 * 1024
    """Payload bytes held for bookies that have not answered; an append waits beyond it."""
    recovered_ledger_grace_ms: int = setting(2_000, minimum=0)
    """How long whoever recovers the writer's ledger has to take the log over, before the writer sends what was
    not acknowledged to another one. Twice as long each time it happens soon again, up to a minute. 0: the writer ends
    when it is fenced."""
