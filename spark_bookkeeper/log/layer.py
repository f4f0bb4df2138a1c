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
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.log.catalog import Catalog
from spark_bookkeeper.log.cleaning.collect import Collector
from spark_bookkeeper.log.cleaning.consumers import Consumers
from spark_bookkeeper.log.cleaning.deletion import LogDeletion
from spark_bookkeeper.log.cleaning.optimize import Optimizer
from spark_bookkeeper.log.cleaning.retention import change_retention, drop_expired
from spark_bookkeeper.log.cleaning.sweep import Sweeper
from spark_bookkeeper.log.cleaning.truncation import Dropped, truncate_log, would_drop
from spark_bookkeeper.log.commits.commit import Committer
from spark_bookkeeper.log.commits.jobs import Jobs
from spark_bookkeeper.log.format.model import Retention
from spark_bookkeeper.log.format.runs import RUNS_KEY, Runs, parse_runs
from spark_bookkeeper.log.nodes.paths import LogPaths
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.nodes.site import LedgerAction, LogSite
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
        # It has no state that a forked process would share: names and ids drawn there are its own.
        self.random = random or SystemRandom()
        self._root = root
        self._site = LogSite(
            store=store,
            paths=LogPaths(root),
            clock_ms=clock_ms,
            pause=pause or jittered_pause(self.random),
            fence=fence,
            delete_ledger=delete_ledger,
            retention=retention,
        )

    @classmethod
    def over(cls, ledgers: LedgerClient) -> LogLayer:
        """The logs of the cluster that a client of its ledgers is connected to."""
        cluster = ledgers.cluster
        return LogLayer(
            cluster.store,
            cluster.root,
            fence=ledgers.fence_ledger,
            # The client's delete_ledger refuses what belongs to a log, and these all do.
            delete_ledger=ledgers.dispose_of_ledger,
        )

    @cached_property
    def sweeper(self) -> Sweeper:
        """Cleans up after commits and aborts."""
        return Sweeper(self._site)

    @cached_property
    def collector(self) -> Collector:
        """Collects what dead writers left; each token and garbage entry says how long it counts."""
        return Collector(self.sweeper)

    @cached_property
    def optimizer(self) -> Optimizer:
        """Has ranges of small ledgers rewritten into large ones."""
        return Optimizer(self.sweeper)

    @cached_property
    def catalog(self) -> Catalog:
        """The logs by name."""
        return Catalog(self._site, random=self.random, deletion=LogDeletion(self.sweeper))

    @cached_property
    def jobs(self) -> Jobs:
        """Plans and claims."""
        return Jobs(self._site)

    @cached_property
    def committer(self) -> Committer:
        """Makes writes visible."""
        return Committer(self._site)

    def view(self, log_id: int, log: str, *, open_ledgers: OpenLedgers | None = None) -> LogView:
        """One log, to plan reads of; with ``open_ledgers`` its open ledger is part of it."""
        return LogView(self.nodes(log_id, log), self._runs_of, open_ledgers)

    def nodes(self, log_id: int, log: str = "") -> LogNodes:
        """One log's nodes as values."""
        return self._site.nodes(log_id, log)

    def consumers(self, log_id: int, log: str) -> Consumers:
        """One log's cursors."""
        return Consumers(self.nodes(log_id, log), self.clock_ms)

    def tail(self, log_id: int, log: str) -> LogTail:
        """One log's open end: ``await layer.tail(…).close()`` frees it of a writer outside Spark."""
        site = self._site

        async def recover(ledger_id: int) -> LedgerMetadata:
            await site.fence(ledger_id)
            # Read again: whichever client closed it, where it ends stands here.
            return await self._ledger_metadata(ledger_id)

        nodes = self.nodes(log_id, log)
        return LogTail(nodes, recover, clock_ms=site.clock_ms, pause=site.pause)

    async def truncate(self, log_id: int, log: str, before_row: int) -> Dropped:
        """See :func:`spark_bookkeeper.log.cleaning.truncation.truncate_log`."""
        return await truncate_log(self._site, self.nodes(log_id, log), before_row)

    async def would_drop(self, log_id: int, log: str, before_row: int) -> Dropped:
        """See :func:`spark_bookkeeper.log.cleaning.truncation.would_drop`."""
        return await would_drop(self.nodes(log_id, log), before_row)

    async def drop_expired(
        self,
        log_id: int,
        log: str,
        limits: Retention | None = None,
        *,
        before_row: int | None = None,
        is_dry_run: bool = False,
    ) -> Dropped:
        """See :func:`spark_bookkeeper.log.cleaning.retention.drop_expired`."""
        return await drop_expired(
            self._site,
            self.nodes(log_id, log),
            limits,
            before_row=before_row,
            is_dry_run=is_dry_run,
        )

    async def change_retention(
        self, log_id: int, log: str, wanted: Callable[[Retention], Retention]
    ) -> Retention:
        """See :func:`spark_bookkeeper.log.cleaning.retention.change_retention`."""
        return await change_retention(self._site, self.nodes(log_id, log), wanted)

    async def _runs_of(self, ledger_id: int) -> Runs:
        metadata = await self._ledger_metadata(ledger_id)
        return parse_runs(ledger_id, metadata.custom_metadata.get(RUNS_KEY, b""))

    async def _ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        return (await self._ledgers.read(ledger_id)).metadata

    @cached_property
    def _ledgers(self) -> LedgerStore:
        return LedgerStore(self._site.store, self._root, random=self.random)

    def draw_job_id(self) -> str:
        """A name no other write has."""
        return f"{self.random.getrandbits(128):032x}"
