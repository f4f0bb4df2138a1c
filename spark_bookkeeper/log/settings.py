"""When what a log no longer needs is deleted, and how fast."""

from __future__ import annotations

from dataclasses import dataclass

from spark_bookkeeper.log.defects import raise_all


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
