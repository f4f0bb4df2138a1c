"""LogSite: where the logs of one cluster are kept, and what its log layer acts with there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bookkeeper_metadata.foundation.backoff import Pause
from bookkeeper_metadata.store.interface import MetadataStore
from spark_bookkeeper.log.nodes.paths import LogPaths
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.settings import RetentionSettings

LedgerAction = Callable[[int], Awaitable[None]]
"""Fences or deletes one ledger; idempotent, ``NoSuchLedgerError`` counts as done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSite:
    """One session on a cluster with logs. None of it is owned."""

    store: MetadataStore
    paths: LogPaths
    clock_ms: Callable[[], int]
    """Wall clock, ms since the epoch."""
    pause: Pause
    """Between the attempts of one commit or change."""
    fence: LedgerAction
    """Recovers a ledger so that its writer can add nothing more."""
    delete_ledger: LedgerAction
    retention: RetentionSettings | None = None
    """What plans and overwrites ask of collections; ``None``: each goes by its own."""

    @property
    def garbage_retention_ms(self) -> int | None:
        """How long the garbage of this site's changes is kept; ``None``: each collection decides."""
        return None if self.retention is None else self.retention.deleted_ledger_retention_ms

    def nodes(self, log_id: int, log: str = "") -> LogNodes:
        """One log's nodes as values."""
        return LogNodes(self.store, self.paths, log_id, log)
