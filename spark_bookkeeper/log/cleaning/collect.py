"""Collects what dead drivers left in a log: tokens, their ledgers, garbage past retention, chunks.

Runs at any moment, any number of times at once, beside commits: it takes nothing that can still
become visible, for it ends a token before it touches what is under it, and it looks for references
to a chunk or a ledger only after nothing can add one any more.

* A LIVE token dies if its transaction is stored already, else after its writer's ``jobTimeout``.
* A DEAD token goes with all its ledgers; a COMMITTED one ``job_timeout`` after its commit.
* Garbage past the retention chosen by its writer goes with the ledgers nothing else names.
* A cursor goes that lapsed long ago.
* What the log's retention lets go is dropped, last of all: it is garbage from then on.
* A chunk goes once its epoch's token was seen not LIVE or gone, and after that, in the same
  session, neither head nor garbage referenced it.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from bookkeeper_metadata.store.operations import Check, Delete, Operation, StoreConflict
from spark_bookkeeper.log.cleaning.consumers import remove_lapsed_cursors
from spark_bookkeeper.log.cleaning.references import find_referenced, referenced_chunks
from spark_bookkeeper.log.cleaning.retention import drop_expired
from spark_bookkeeper.log.cleaning.sweep import (
    Sweeper,
    SweepReport,
    remove_job,
)
from spark_bookkeeper.log.format.epoch import StoredTxn, TokenState, Txn
from spark_bookkeeper.log.format.model import Garbage
from spark_bookkeeper.log.nodes.deletes import delete_node, delete_nodes
from spark_bookkeeper.log.nodes.paths import parse_chunk_epoch, parse_job_name
from spark_bookkeeper.log.nodes.reads import ChunkMissingError, LogNodes, TokenAt


class Collector:
    """Collects with the ledger actions and settings of a sweeper."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper

    async def collect(self, log_id: int, *, log: str = "", is_dry_run: bool = False) -> SweepReport:
        """Clean one log; a dry run changes nothing and reports what a real one would do.

        Raises:
            NoSuchLogError: the log is gone or being deleted.
            MetadataUnavailableError: the store did not answer; run it again.
        """
        nodes = self._sweeper.site.nodes(log_id, log)
        report = SweepReport()
        await nodes.sync()
        # For its error alone: a log under deletion is taken apart in an order of its own.
        await nodes.head()
        # The commit made chunks and garbage before its token could go: tokens are cleaned first.
        await self._tokens(nodes, report, is_dry_run)
        await self._garbage(nodes, report, is_dry_run)
        await self._chunks(nodes, report, is_dry_run)
        report.consumers_forgotten = await remove_lapsed_cursors(nodes, is_dry_run=is_dry_run)
        # A busy head may refuse it for long, and the rest must not wait for that.
        expired = await drop_expired(self._sweeper.site, nodes, is_dry_run=is_dry_run)
        report.rows_dropped = expired.rows
        if expired.rows and not is_dry_run:
            now_ms, kept_ms = self._sweeper.site.clock_ms(), self._sweeper.site.garbage_retention_ms
            report.note_waiting(expired.size_bytes, now_ms + self._retention_ms(kept_ms))
        return report

    async def _tokens(self, nodes: LogNodes, report: SweepReport, is_dry_run: bool) -> None:
        jobs_of = await _jobs_by_epoch(nodes)
        stored = await nodes.txns()
        now_ms = self._sweeper.site.clock_ms()
        for epoch in await nodes.epochs():
            found = await nodes.token(epoch)
            if found is None or not self._is_due(found, jobs_of.get(epoch, ()), stored, now_ms):
                continue
            # A commit may still win. The sweep below reads the token again, and then finds it
            # COMMITTED.
            if found.token.state is TokenState.LIVE and (
                is_dry_run or await nodes.kill(epoch, now_ms) is TokenState.DEAD
            ):
                report.tokens_killed.append(epoch)
            await self._sweeper.sweep_epoch(nodes, epoch, report, is_dry_run=is_dry_run)
        if not is_dry_run:
            await self._jobs(nodes, report)

    def _is_due(
        self, found: TokenAt, jobs: Collection[str], stored: dict[str, StoredTxn], now_ms: int
    ) -> bool:
        token = found.token
        if token.state is TokenState.DEAD:
            return True
        # Kept a while when COMMITTED: a driver that lost the reply to its commit asks the token for
        # the outcome.
        timeout_ms = self._sweeper.settings.job_timeout_ms
        if token.state is TokenState.COMMITTED:
            return now_ms - token.changed_ms >= timeout_ms
        # The plan of a stream's batch does not know which one it is. Its tasks do, and their claims
        # name it in the job's index.
        txns: list[Txn | None] = [token.txn, *(parse_job_name(job) for job in jobs)]
        # Another epoch has committed this job or a later one: what this one wrote can never become
        # visible.
        if any(_is_stored(txn, stored) for txn in txns):
            return True
        return now_ms - token.created_ms >= (
            timeout_ms if token.timeout_ms is None else token.timeout_ms
        )

    async def _jobs(self, nodes: LogNodes, report: SweepReport) -> None:
        """Delete index nodes whose token is gone: they have no meaning any more."""
        for job in await nodes.store.children(nodes.tree.jobs) or []:
            for epoch in await nodes.job_epochs(job):
                # A token is older than its index node and never made again, so this session would
                # have seen it if it were there.
                if await nodes.token(epoch) is None:
                    await delete_node(nodes.store, nodes.tree.job_epoch(job, epoch))
            await remove_job(nodes, job, report)

    async def _garbage(self, nodes: LogNodes, report: SweepReport, is_dry_run: bool) -> None:
        # One entry at a time: of two that name one ledger, only the second deletes it.
        for epoch in await nodes.garbage_epochs():
            garbage = await nodes.garbage(epoch)
            if garbage is None:
                continue
            if (due_ms := self._due_ms(garbage)) > self._sweeper.site.clock_ms():
                report.note_waiting(garbage.size_bytes, due_ms)
                continue
            ledger_ids = await _ledgers_of(nodes, garbage)
            if ledger_ids is None:
                continue
            others = [other for other in await nodes.garbage_epochs() if other != epoch]
            await nodes.sync()
            kept = await find_referenced(nodes, ledger_ids, besides=epoch)
            doomed = ledger_ids - kept
            if is_dry_run:
                report.ledgers_deleted += sorted(doomed)
            elif not (
                # The ledgers before the entry, which alone remembers them: a crash in between costs
                # nothing. With nothing left to other entries, none of them may hold this one up.
                await self._sweeper.remove_ledgers(doomed, report)
                and await _forget_garbage(nodes, epoch, others if kept else [])
            ):
                continue
            report.garbage_removed.append(epoch)

    def _due_ms(self, garbage: Garbage) -> int:
        """From when on it may be deleted."""
        return garbage.dropped_ms + self._retention_ms(garbage.retention_ms)

    def _retention_ms(self, wanted_ms: int | None) -> int:
        """What whoever dropped something wanted, or what counts where nobody wanted anything."""
        return (
            self._sweeper.settings.deleted_ledger_retention_ms if wanted_ms is None else wanted_ms
        )

    async def _chunks(self, nodes: LogNodes, report: SweepReport, is_dry_run: bool) -> None:
        names = await nodes.store.children(nodes.tree.chunks) or []
        epoch_of: dict[str, int] = {}
        for name in names:
            # What is called otherwise is none of ours.
            with suppress(ValueError):
                epoch_of[name] = parse_chunk_epoch(name)
        ended: dict[int, bool] = {}
        for epoch in sorted(set(epoch_of.values())):
            # Tokens before references, in one session: an epoch that is found to have ended has
            # made its chunks count by now, or never will.
            found = await nodes.token(epoch)
            ended[epoch] = found is None or found.token.state is not TokenState.LIVE
        candidates = [name for name, epoch in epoch_of.items() if ended[epoch]]
        if not candidates:
            return
        kept = await referenced_chunks(nodes)
        doomed = [name for name in candidates if name not in kept]
        report.chunks_deleted += doomed
        if not is_dry_run:
            await delete_nodes(nodes.store, [nodes.tree.chunk(name) for name in doomed])


async def _jobs_by_epoch(nodes: LogNodes) -> dict[int, list[str]]:
    jobs_of: dict[int, list[str]] = {}
    for job in await nodes.store.children(nodes.tree.jobs) or []:
        for epoch in await nodes.job_epochs(job):
            jobs_of.setdefault(epoch, []).append(job)
    return jobs_of


def _is_stored(txn: Txn | None, stored: dict[str, StoredTxn]) -> bool:
    return txn is not None and txn.app_id in stored and txn.version <= stored[txn.app_id].version


async def _ledgers_of(nodes: LogNodes, garbage: Garbage) -> set[int] | None:
    """The ledgers an entry names; ``None``: another collection has removed it meanwhile."""
    try:
        return await nodes.ledger_ids(garbage)
    except ChunkMissingError:
        return None


async def _forget_garbage(nodes: LogNodes, epoch: int, others: Collection[int]) -> bool:
    """Remove an entry, provided that the entries its ledgers were left to are still there.

    Else two collections at once could each leave a shared ledger to the other's entry.
    """
    operations: list[Operation] = [Delete(nodes.tree.garbage_entry(epoch), None)]
    operations += [Check(nodes.tree.garbage_entry(other), None) for other in others]
    try:
        await nodes.store.multi(operations)
    except StoreConflict:
        return False
    return True
