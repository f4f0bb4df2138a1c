"""Drops what a log's retention lets go, and keeps what a consumer was promised.

Runs seldom, at any moment, any number of times at once: the base of a log only grows, so a second run
finds nothing. All is read anew at every attempt.

A consumer that has been told its cursor finds every row from there on as long as it is live. So a
change is refused if a cursor was made since the cursors were read - that raises the *generation*, the
version of their folder - or if one that had expired was touched since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bookkeeper_metadata.store.operations import Check, NoNodeError, Operation
from spark_bookkeeper.log.cleaning.references import read_whole
from spark_bookkeeper.log.cleaning.truncation import Dropped, cut_before
from spark_bookkeeper.log.commits.change import HeadChange, change_head
from spark_bookkeeper.log.format.model import LogHead, Retention
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.nodes.site import LogSite
from spark_bookkeeper.log.rules.chunks import ChunkNames
from spark_bookkeeper.log.rules.retention import first_row_kept
from spark_bookkeeper.log.rules.transitions import Transition, with_retention


@dataclass(frozen=True, slots=True)
class _Wanted:
    limits: Retention | None
    """``None``: the log's own."""
    before_row: int | None
    """Rows from there on stay."""


async def drop_expired(
    site: LogSite,
    nodes: LogNodes,
    limits: Retention | None = None,
    *,
    before_row: int | None = None,
    is_dry_run: bool = False,
) -> Dropped:
    """Drop what ``limits`` let go (``None``: what the log's own retention does), only before a row.

    Raises:
        NoSuchLogError, MetadataConflictError, MetadataUnavailableError: see ``change_head``.
    """
    wanted = _Wanted(limits, before_row)

    async def look() -> tuple[LogHead, Transition | None]:
        head = (await nodes.head()).head
        plan, _ = await _cut(nodes, head, wanted, ChunkNames(0), (site.clock_ms(), site.clock_ms()))
        return head, plan

    await nodes.sync()
    # Looked at first without a token: mostly nothing goes, and a token costs two writes.
    head, plan = await read_whole(nodes, "ranges", look)
    if plan is None or is_dry_run:
        return Dropped.by(head, plan)

    async def attempt(change: HeadChange) -> Dropped:
        found = await nodes.head()
        times = await _times_ms(change, nodes)
        transition, checks = await _cut(nodes, found.head, wanted, change.names, times)
        if transition is not None:
            await change.apply(found, transition.kept_for(site.garbage_retention_ms), checks)
        return Dropped.by(found.head, transition)

    return await change_head(nodes, attempt, clock_ms=site.clock_ms, pause=site.pause)


async def change_retention(
    site: LogSite, nodes: LogNodes, wanted: Callable[[Retention], Retention]
) -> Retention:
    """Give a log the retention ``wanted`` makes of the one it has; returns it.

    Raises:
        NoSuchLogError, MetadataConflictError, MetadataUnavailableError: see ``change_head``.
        ValueError: as ``wanted`` raises it.
    """

    async def attempt(change: HeadChange) -> Retention:
        found = await nodes.head()
        retention = wanted(found.head.retention)
        if retention != found.head.retention:
            await change.apply(found, Transition(with_retention(found.head, retention)))
        return retention

    return await change_head(nodes, attempt, clock_ms=site.clock_ms, pause=site.pause)


async def _times_ms(change: HeadChange, nodes: LogNodes) -> tuple[int, int]:
    """The time that ranges are held against, and the store's, for cursors.

    The former is the earlier of this host's and the store's: a clock in the future empties no log.
    """
    path = nodes.tree.token(change.epoch)
    token = await nodes.store.get(path)
    if token is None:
        raise NoNodeError(path)
    return min(change.now_ms, token.created_ms), token.created_ms


async def _cut(
    nodes: LogNodes, head: LogHead, wanted: _Wanted, names: ChunkNames, times_ms: tuple[int, int]
) -> tuple[Transition | None, list[Operation]]:
    """The change, and what must not have changed for it."""
    bounds, (now_ms, store_ms) = wanted.limits or head.retention, times_ms
    if not bounds.is_bounded:
        return None, []
    row = await first_row_kept((*head.chunks, *head.ranges), bounds, now_ms, nodes.chunk)
    checks: list[Operation] = []
    if row is not None and bounds.is_consumed_kept:
        # Cursors after the head, the generation before them: one that is made meanwhile raises it.
        checks.append(Check(nodes.tree.consumers, await nodes.generation()))
        for consumer, found in (await nodes.cursors()).items():
            if found.is_live(store_ms):
                row = min(row, found.cursor.row)
            else:
                checks.append(Check(nodes.tree.consumer(consumer), found.version))
    if row is not None and wanted.before_row is not None:
        row = min(row, wanted.before_row)
    if row is None or row <= head.base_row:
        return None, []
    return await cut_before(nodes, head, row, names, now_ms), checks
