"""The open end of a log: who may append behind it, and how one writer follows another.

A log has one ledger open at most, the one its head names; the writer of that ledger leads the log.
To follow a leader, in this order (LedgerChaining's, with its last two steps made one):

1. read the head;
2. recover the ledger it names as open, which fences its writer and decides its last entry;
3. in one multi, guarded by the head's version: create the metadata of the new ledger, record the
   old one with its rows - or, if it is empty, among the garbage - and name the new one as open;
4. only then append.

A roll is the same step taken by the leader itself after it closed its ledger, so between its ledgers
nothing is in flight, and a log never has two open ledgers. Wherever this is interrupted, the head
names one ledger to recover: the next take-over repairs the log and loses nothing acknowledged. The
ledger and its place in the log come about together, so no orphan is ever made.

A ledger that cannot be recovered - too few bookies answer, one of them wiped or damaged - stops the
take-over with that error. "No entry is confirmed" is never taken for "empty": only a ledger whose
metadata says CLOSED without entries is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from bookkeeper_metadata.foundation.backoff import Pause
from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.store.operations import Operation
from spark_bookkeeper.ledger.errors import LedgerRecoveryError
from spark_bookkeeper.log.commits.change import HeadChange, change_head
from spark_bookkeeper.log.format.model import LogHead, LogSettings
from spark_bookkeeper.log.format.raw import require_raw
from spark_bookkeeper.log.ledgers import LedgerAppender
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.rules.chunks import ChunkNames
from spark_bookkeeper.log.rules.transitions import (
    Transition,
    record_end,
    register_open_ledger,
)

CreateLedger = Callable[[LogSettings, ExtraOperations], Awaitable[LedgerAppender]]
Recover = Callable[[int], Awaitable[LedgerMetadata]]
"""Takes a ledger over from its writer and closes it; returns its metadata then."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """The right to append to a log, as long as its head names this ledger as open."""

    appender: LedgerAppender
    first_row: int
    """Row of the log that the ledger's entry 0 holds."""


class LogTail:
    """Ends the open ledger of one log, whichever writer's it is; holds no state between calls."""

    def __init__(
        self, nodes: LogNodes, recover: Recover, *, clock_ms: Callable[[], int], pause: Pause
    ) -> None:
        self.nodes = nodes
        self._recover = recover
        self._clock_ms = clock_ms
        self._pause = pause

    async def close(self, *, only: frozenset[int] | None = None) -> LogHead:
        """Recover the open ledger and record its end, so that no writer leads the log.

        ``only`` limits this to the ledgers of one writer: another's stays as it is. Returns the
        head then; a log without an open ledger is left alone.

        Raises:
            LedgerRecoveryError: too few bookies answered to know where the ledger ends.
            NoSuchLogError, MetadataConflictError, MetadataUnavailableError: see ``change_head``.
        """

        async def attempt(change: HeadChange) -> LogHead:
            found = await self.nodes.head()
            opened = found.head.open_ledger
            if opened is None or (only is not None and opened.ledger_id not in only):
                return found.head
            transition = await self._end_open_ledger(found.head, change.names)
            await change.apply(found, transition)
            return transition.head

        return await change_head(self.nodes, attempt, clock_ms=self._clock_ms, pause=self._pause)

    async def follow(self, create: CreateLedger, *, check: Callable[[int | None], None]) -> Tenure:
        """End the open ledger and put a new one in its place.

        ``check`` raises if the ledger found open, if any, may not be followed. ``create`` makes a
        ledger of the log's settings together with the operations it is given.

        Raises:
            LogPayloadError: the log's entries are not plain values.
            BookKeeperError: as :meth:`close`, as ``check``, and as creating a ledger raises.
        """

        async def attempt(change: HeadChange) -> Tenure:
            found = await self.nodes.head()
            require_raw(self.nodes.log, found.head)
            opened = found.head.open_ledger
            # Asked before the recovery, which fences: a leader that was followed must not, by
            # rolling, fence the one that follows it.
            check(None if opened is None else opened.ledger_id)
            ended = await self._end_open_ledger(found.head, change.names)
            await change.write_chunks(ended)

            def extra_operations(ledger_id: int) -> list[Operation]:
                # Asked anew for each ledger id that is tried, because the head names it.
                head = register_open_ledger(ended.head, ledger_id, change.now_ms)
                return change.operations(found, replace(ended, head=head))

            appender = await create(found.head.settings, extra_operations)
            return Tenure(appender, ended.head.next_row)

        return await change_head(self.nodes, attempt, clock_ms=self._clock_ms, pause=self._pause)

    async def _end_open_ledger(self, head: LogHead, names: ChunkNames) -> Transition:
        """The head without an open ledger."""
        if head.open_ledger is None:
            return Transition(head)
        ledger_id = head.open_ledger.ledger_id
        # A repeated attempt mostly finds it closed, and then no bookie is asked.
        metadata = await self._recover(ledger_id)
        if not metadata.is_closed:
            raise LedgerRecoveryError(ledger_id, f"it is {metadata.state.name} after recovery")
        return record_end(head, metadata.last_entry, metadata.length, names, self._clock_ms())
