"""LogLayer: the parts of the log layer put together over one cluster.

What the parts need of the layer below - how to fence and how to delete a ledger - is passed in, so
this layer never talks to a bookie itself. Cheap to make; holds no state anything depends on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from random import Random, SystemRandom

from bookkeeper_metadata.foundation.backoff import Pause, jittered_pause
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.store.interface import MetadataStore
from spark_bookkeeper.log.catalog import Catalog
from spark_bookkeeper.log.cleaning.collect import Collector
from spark_bookkeeper.log.cleaning.consumers import Consumers
from spark_bookkeeper.log.cleaning.deletion import LogDeletion
from spark_bookkeeper.log.cleaning.sweep import LedgerAction, Sweeper
from spark_bookkeeper.log.cleaning.truncation import truncate_log
from spark_bookkeeper.log.commits.commit import Committer
from spark_bookkeeper.log.commits.jobs import Jobs
from spark_bookkeeper.log.nodes.paths import LogPaths
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.reading.view import LogView, OpenLedgers
from spark_bookkeeper.log.settings import RetentionSettings
from spark_bookkeeper.log.writing.tail import LogTail


def clock_ms() -> int:
    """Wall clock, ms since the epoch; for what people and retention compare, never for order."""
    return time.time_ns() // 1_000_000


class LogLayer:
    """The logs below one ledgers root."""

    def __init__(
        self,
        store: MetadataStore,
        root: str,
        *,
        fence: LedgerAction,
        delete_ledger: LedgerAction,
        clock_ms: Callable[[], int] = clock_ms,
        random: Random | None = None,
        retention: RetentionSettings | None = None,
        pause: Pause | None = None,
    ) -> None:
        self.clock_ms = clock_ms
        self.random = random or SystemRandom()
        self._store = store
        self._root = root
        self._paths = LogPaths(root)
        self._fence = fence
        self._delete_ledger = delete_ledger
        self._retention = retention
        self._pause = pause or jittered_pause(self.random)

    @cached_property
    def sweeper(self) -> Sweeper:
        """Cleans up after commits and aborts."""
        return Sweeper(
            self._store,
            self._paths,
            clock_ms=self.clock_ms,
            fence=self._fence,
            delete_ledger=self._delete_ledger,
            settings=RetentionSettings(),
        )

    @cached_property
    def collector(self) -> Collector:
        """Collects what dead writers left; each token and garbage entry says how long it counts."""
        return Collector(self.sweeper)

    @cached_property
    def catalog(self) -> Catalog:
        """The logs by name."""
        return Catalog(
            self._store, self._paths, random=self.random, deletion=LogDeletion(self.sweeper)
        )

    @cached_property
    def jobs(self) -> Jobs:
        """Plans and claims."""
        wish = self._retention
        return Jobs(
            self._store,
            self._paths,
            clock_ms=self.clock_ms,
            fence=self._fence,
            timeout_ms=None if wish is None else wish.job_timeout_ms,
        )

    @cached_property
    def committer(self) -> Committer:
        """Makes writes visible."""
        wish = self._retention
        return Committer(
            self._store,
            self._paths,
            clock_ms=self.clock_ms,
            pause=self._pause,
            garbage_retention_ms=None if wish is None else wish.deleted_ledger_retention_ms,
        )

    def view(self, log_id: int, log: str, *, open_ledgers: OpenLedgers | None = None) -> LogView:
        """One log, to plan reads of; with ``open_ledgers`` its open ledger is part of it."""
        return LogView(self._store, self._paths, log_id, log=log, open_ledgers=open_ledgers)

    def nodes(self, log_id: int, log: str = "") -> LogNodes:
        """One log's nodes as values."""
        return LogNodes(self._store, self._paths, log_id, log)

    def consumers(self, log_id: int, log: str) -> Consumers:
        """One log's cursors."""
        return Consumers(self.nodes(log_id, log), self.clock_ms)

    def tail(self, log_id: int, log: str) -> LogTail:
        """One log's open end: ``await layer.tail(…).close()`` frees it of a writer outside Spark."""
        ledgers = LedgerStore(self._store, self._root, random=self.random)

        async def recover(ledger_id: int) -> LedgerMetadata:
            await self._fence(ledger_id)
            return (await ledgers.read(ledger_id)).metadata

        nodes = self.nodes(log_id, log)
        return LogTail(nodes, recover, clock_ms=self.clock_ms, pause=self._pause)

    async def truncate(self, log_id: int, log: str, before_row: int) -> int:
        """See :func:`spark_bookkeeper.log.cleaning.truncation.truncate_log`."""
        nodes = self.nodes(log_id, log)
        return await truncate_log(nodes, before_row, clock_ms=self.clock_ms, pause=self._pause)

    def draw_job_id(self) -> str:
        """A name no other write has."""
        return f"{self.random.getrandbits(128):032x}"
