"""Cleans up after one write: what its epochs created and nothing visible needs.

Nothing under a LIVE token is ever deleted: a clean-up sets it DEAD first, and a late
commit then fails as a whole. Under a DEAD token everything goes; under a COMMITTED one only ledgers
that neither the log nor its garbage names. A ledger is deleted before the child that remembers it,
the children before the token, so whatever a crash leaves is still found by the next sweep.

A sweep never fails a commit: what it could not clean it reports and leaves to
:mod:`spark_bookkeeper.log.cleaning.collect`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.store.operations import Delete, StoreConflict
from spark_bookkeeper.log.cleaning.references import find_referenced
from spark_bookkeeper.log.commits.commit import CommitOutcome, CommitSummary
from spark_bookkeeper.log.format.epoch import TaskMessage, TokenChild, TokenState
from spark_bookkeeper.log.nodes.deletes import delete_node, delete_nodes
from spark_bookkeeper.log.nodes.paths import job_name
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.nodes.site import LogSite
from spark_bookkeeper.log.settings import RetentionSettings

AT_ONCE_MAX = 100
"""Ledgers of a write that is swept in one request; of more it would be a large one."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SweepReport:
    """What was cleaned, or would be in a dry run."""

    tokens_killed: list[int] = field(default_factory=list)
    tokens_removed: list[int] = field(default_factory=list)
    ledgers_deleted: list[int] = field(default_factory=list)
    ledgers_left: list[int] = field(default_factory=list)
    """Could not be deleted now (bookies away, say); found again by the next collection."""
    chunks_deleted: list[str] = field(default_factory=list)
    garbage_removed: list[int] = field(default_factory=list)
    jobs_removed: list[str] = field(default_factory=list)
    consumers_forgotten: list[str] = field(default_factory=list)
    """They lapsed long ago."""
    rows_dropped: int = 0
    """By the log's retention."""
    waiting_bytes: int = 0
    """Payload bytes of one copy that were dropped and stay for readers a while; see the collector."""
    waiting_until_ms: int | None = None
    """When the first of them may be deleted, ms since the epoch; by this host's clock."""

    def note_waiting(self, size_bytes: int, due_ms: int) -> None:
        """Count what may be deleted from then on only."""
        self.waiting_bytes += size_bytes
        until_ms = due_ms if self.waiting_until_ms is None else self.waiting_until_ms
        self.waiting_until_ms = min(until_ms, due_ms)


class Sweeper:
    """Cleans the logs of one cluster with the ledger actions of its site."""

    settings = RetentionSettings()
    """For what says nothing itself; a site's wishes are about its own writes."""

    def __init__(self, site: LogSite) -> None:
        self.site = site

    async def after_commit(self, summary: CommitSummary) -> SweepReport:
        """Clean the committed job: its own epoch's leftovers and all its other epochs."""
        epoch = summary.epoch
        nodes = self.site.nodes(epoch.log_id, epoch.log)
        report = SweepReport()
        with leaving_rest("sweep", epoch.log, epoch.number):
            await self._after_commit(nodes, summary, report)
        return report

    async def abort(self, messages: Sequence[TaskMessage | None], *, log: str) -> SweepReport:
        """Give up the epoch the messages name, unless it is committed; all ``None``: do nothing.

        Called after a commit failed too, so it never assumes that the commit did not happen.
        """
        report = SweepReport()
        named = next((message for message in messages if message is not None), None)
        if named is None:
            return report
        nodes = self.site.nodes(named.epoch.log_id, log)
        number = named.epoch.number
        with leaving_rest("abort", log, number):
            if await nodes.kill(number, self.site.clock_ms()) is TokenState.DEAD:
                report.tokens_killed.append(number)
                await self.sweep_epoch(nodes, number, report, job=job_name(named.job))
        return report

    async def _after_commit(
        self, nodes: LogNodes, summary: CommitSummary, report: SweepReport
    ) -> None:
        own = summary.epoch.number
        job = job_name(summary.job)
        if await self._sweep_at_once(nodes, summary, report):
            return
        if summary.outcome is CommitOutcome.REPLAYED:
            # Only a LIVE token changes: if this epoch is the one that committed, it stays.
            if await nodes.kill(own, self.site.clock_ms()) is TokenState.DEAD:
                report.tokens_killed.append(own)
            await self.sweep_epoch(nodes, own, report, job=job)
        else:
            await self.sweep_epoch(nodes, own, report, job=job, visible=summary.ledger_ids)
        for other in await nodes.job_epochs(job):
            if other == own:
                continue
            state = await nodes.kill(other, self.site.clock_ms())
            if state is TokenState.DEAD:
                report.tokens_killed.append(other)
            # Another epoch that committed is swept behind its own commit, or by age.
            if state is not TokenState.COMMITTED:
                await self.sweep_epoch(nodes, other, report, job=job)
        await remove_job(nodes, job, report)

    async def _sweep_at_once(
        self, nodes: LogNodes, summary: CommitSummary, report: SweepReport
    ) -> bool:
        """Whether the write left nothing but what its messages name, and its job had no other epoch: that is gone now."""
        if summary.outcome is CommitOutcome.REPLAYED:
            return False
        if not 0 < len(summary.children) <= AT_ONCE_MAX:
            return False
        epoch, job = summary.epoch.number, job_name(summary.job)
        paths = [nodes.tree.token_child(epoch, child) for child in sorted(summary.children)]
        # Whatever else there is below the token or the job has all of it refused.
        paths += [nodes.tree.token(epoch), nodes.tree.job_epoch(job, epoch), nodes.tree.job(job)]
        try:
            await self.site.store.multi([Delete(path, None) for path in paths])
        except StoreConflict:
            return False
        report.tokens_removed.append(epoch)
        report.jobs_removed.append(job)
        return True

    async def sweep_epoch(
        self,
        nodes: LogNodes,
        epoch: int,
        report: SweepReport,
        *,
        job: str | None = None,
        visible: Collection[int] = (),
        is_dry_run: bool = False,
    ) -> None:
        """Delete what an ended epoch need not keep, then its token, then its index node.

        ``visible`` are ledgers known to be in the log, which spares reading it when no others are
        there. A LIVE token is left alone (a dry run treats it as DEAD: it only counts).
        """
        found = await nodes.token(epoch)
        if found is not None:
            state = found.token.state
            if state is TokenState.LIVE and not is_dry_run:
                return
            children = await nodes.token_children(epoch)
            doomed = [child for child in children if child.ledger_id not in visible]
            if state is TokenState.COMMITTED and doomed:
                await nodes.sync()
                named = await find_referenced(nodes, {child.ledger_id for child in doomed})
                doomed = [child for child in doomed if child.ledger_id not in named]
            if is_dry_run:
                report.ledgers_deleted += [child.ledger_id for child in doomed]
                report.tokens_removed.append(epoch)
                return
            # With its token left in place, what could not be deleted is found again.
            if not await self.remove_children(nodes, epoch, children, set(doomed), report):
                return
        elif is_dry_run:
            return
        # Side by side, for a commit waits for them: collections find either without the other.
        paths = [] if found is None else [nodes.tree.token(epoch)]
        paths += [] if job is None else [nodes.tree.job_epoch(job, epoch)]
        gone = await delete_nodes(self.site.store, paths)
        if found is not None and gone[0]:
            report.tokens_removed.append(epoch)

    async def remove_children(
        self,
        nodes: LogNodes,
        epoch: int,
        children: Sequence[TokenChild],
        doomed: Collection[TokenChild],
        report: SweepReport,
    ) -> bool:
        """Delete the ``doomed`` ledgers and the children of a token; returns whether all are gone."""

        async def remove(child: TokenChild) -> bool:
            if child in doomed and not await self.remove_ledger(
                child.ledger_id, report, is_fenced_first=True
            ):
                return False
            # Those of visible ledgers go as well: the log itself names them now.
            await delete_node(self.site.store, nodes.tree.token_child(epoch, child))
            return True

        done = await each(remove, children, concurrency_max=self.settings.concurrency_max)
        return all(done)

    async def remove_ledger(
        self, ledger_id: int, report: SweepReport, *, is_fenced_first: bool = False
    ) -> bool:
        """Delete one ledger; returns whether it is gone for sure."""
        try:
            if is_fenced_first:
                # A zombie that still writes fails here, rather than add to a ledger that is gone.
                await self.site.fence(ledger_id)
            await self.site.delete_ledger(ledger_id)
        except NoSuchLedgerError:
            return True
        except BookKeeperError as cause:
            _log.warning("ledger not deleted yet. ledger_id=%d cause=%s", ledger_id, cause)
            report.ledgers_left.append(ledger_id)
            return False
        report.ledgers_deleted.append(ledger_id)
        return True

    async def remove_ledgers(self, ledger_ids: Collection[int], report: SweepReport) -> bool:
        """Delete closed ledgers, some at a time; returns whether all of them are gone for sure."""
        concurrency_max = self.settings.concurrency_max
        remove = partial(self.remove_ledger, report=report)
        return all(await each(remove, sorted(ledger_ids), concurrency_max=concurrency_max))


async def remove_job(nodes: LogNodes, job: str, report: SweepReport) -> None:
    """Remove a job's index unless an epoch of it is left; a claim makes it again if it must."""
    if await delete_node(nodes.store, nodes.tree.job(job)):
        report.jobs_removed.append(job)


@contextmanager
def leaving_rest(what: str, log: str, epoch: int) -> Iterator[None]:
    """For a block whose failure its caller must not notice: a collection ends what it left."""
    try:
        yield
    except (BookKeeperError, StoreConflict) as cause:
        _log.warning(
            "%s not finished; collection will. log=%s epoch=%d cause=%s", what, log, epoch, cause
        )
