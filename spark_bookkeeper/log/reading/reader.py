"""LogReader: the rows of a log in order, from the first wanted on, and if wanted those to come.

Reads what the head lists, then the open ledger up to what is confirmed of it. A follower waits
there, sees the ledger close, waits until the head names its successor, and goes on: over rolls and
take-overs every row comes once, in order. A row that was confirmed once is never taken back, so what
a reader saw of an open ledger stays true whichever client ends that ledger.

Rows are never skipped. A read of rows that truncation or an overwrite dropped raises an error that
names the row wanted and the first one there is. "Nothing confirmed" of an open ledger means "not yet".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.closing import AsyncClosing
from spark_bookkeeper.ledger.entry import Entry
from spark_bookkeeper.ledger.errors import EntryUnreadableError, NoSuchEntryError
from spark_bookkeeper.ledger.tail import IdleTime
from spark_bookkeeper.log.errors import DataLossError
from spark_bookkeeper.log.format.model import LogHead, OpenLedger
from spark_bookkeeper.log.format.position import Position, Start, row_of
from spark_bookkeeper.log.format.raw import require_raw
from spark_bookkeeper.log.ledgers import LedgerEntries, Ledgers
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.reading.view import LATEST, READ_ATTEMPTS_MAX, LogView

Rows = list[tuple[Position, Entry]]
_LOST = (NoSuchLedgerError, NoSuchEntryError, EntryUnreadableError)
"""Raised by reads of a ledger that was dropped from the log meanwhile."""


class LogReader(AsyncClosing):
    """Iterates over ``(Position, Entry)`` of one log, once; use within one event loop.

    ``timeout_s`` is how long a follower waits for the next row before it ends; ``None``: for ever.
    """

    def __init__(
        self,
        view: LogView,
        ledgers: Ledgers,
        *,
        start: Start,
        is_following: bool = False,
        timeout_s: float | None = None,
        password: bytes = b"",
    ) -> None:
        self.log = view.nodes.log
        self.next_row: int | None = None
        """The row it reads next, where another reader may go on; ``None`` until it has begun."""
        self._nodes = view.nodes
        self._view = view
        self._ledgers = ledgers
        self._start = row_of(start)
        self._is_following = is_following
        self._timeout_s = timeout_s
        self._password = password
        self._batches: AsyncGenerator[Rows, None] | None = None

    async def __aiter__(self) -> AsyncIterator[tuple[Position, Entry]]:
        async for rows in self.batches():
            for position, entry in rows:
                yield position, entry

    def batches(self) -> AsyncGenerator[Rows, None]:
        """The rows as they arrive, some at a time; never an empty list.

        Raises:
            DataLossError: rows it has to read next were dropped, or lie beyond the log's end.
            LogPayloadError: the log's entries are not its rows.
            NoSuchLogError: the log is gone.
            EntryUnreadableError, DigestMismatchError: no replica returned an entry.
        """
        if self._batches is None:
            self._batches = self._read()
        return self._batches

    async def close(self) -> None:
        """End reading; iteration ends with it. Idempotent."""
        if self._batches is not None:
            await self._batches.aclose()

    async def _read(self) -> AsyncGenerator[Rows, None]:
        row = self.next_row = await self._resolve_start()
        failures = 0
        idle = IdleTime(self._timeout_s)
        async with _watch_head(self._nodes) as has_changed:
            while True:
                # Before the head is read: a change after that sets it again, and none is slept
                # through.
                has_changed.clear()
                head = await self._head(row)
                try:
                    async with aclosing(self._rows(head, row, idle)) as found:
                        async for rows in found:
                            row = self.next_row = rows[-1][0].row + 1
                            failures = 0
                            yield rows
                            # Not before the yield: the time its caller spends on the rows is not
                            # idle time.
                            idle.restart()
                except _LOST:
                    # Most likely they were dropped meanwhile. The next round finds that out, and
                    # says so as a DataLossError, which names the rows.
                    failures += 1
                    if failures == READ_ATTEMPTS_MAX or await self._confirm_unchanged(head, row):
                        raise
                    continue
                if not self._is_following or not await _wait(has_changed, idle):
                    return

    async def _resolve_start(self) -> int:
        """The row to begin with; ``"latest"`` is the row behind all that are confirmed now."""
        # The reader must see what its caller saw acknowledged, even in another session.
        await self._nodes.sync()
        row = await self._view.pin(self._start)
        if self._start != LATEST:
            return row
        head = (await self._nodes.head()).head
        if head.open_ledger is None:
            return head.next_row
        opened = await self._open_ledger(head.open_ledger)
        return head.next_row + opened.last_add_confirmed + 1

    async def _head(self, row: int) -> LogHead:
        """The head now, once it is sure that ``row`` does not lie beyond the log's end.

        Raises:
            DataLossError: it does, and the log has no writer.
        """
        head = (await self._nodes.head()).head
        # Perhaps only this session lags: the row may come from a reader of another one.
        if row > head.next_row and head.open_ledger is None:
            await self._nodes.sync()
            head = (await self._nodes.head()).head
        require_raw(self.log, head)
        if row > head.next_row and head.open_ledger is None:
            available = (head.base_row, head.next_row)
            raise DataLossError(self.log, row, available, "the log ends before them")
        return head

    async def _rows(self, head: LogHead, row: int, idle: IdleTime) -> AsyncGenerator[Rows, None]:
        """Rows from ``row`` on: those the head lists, then those of the open ledger."""
        if row < head.next_row:
            found = await self._view.ranges(row)
            for item in found.ranges:
                ledger = await self._ledgers.open(item.ledger_id, self._password)
                first = item.first_entry + max(row - item.first_row, 0)
                async with aclosing(ledger.batches(first, item.last_entry)) as found_entries:
                    async for entries in found_entries:
                        yield _placed(entries, item.first_row - item.first_entry)
            # Its own head, read later than ours: the open ledger that head names follows these very
            # ranges.
            row, head = found.to_row, found.head
        if head.open_ledger is not None:
            async with aclosing(self._open_rows(head.open_ledger, row, idle)) as open_rows:
                async for rows in open_rows:
                    yield rows

    async def _open_rows(
        self, opened: OpenLedger, row: int, idle: IdleTime
    ) -> AsyncGenerator[Rows, None]:
        """Rows of the open ledger from ``row`` on; a follower goes on until it is closed."""
        ledger = await self._open_ledger(opened)
        next_entry = row - opened.first_row
        if self._is_following:
            found = ledger.tail(next_entry, timeout_s=idle.left_s)
        elif next_entry <= ledger.last_add_confirmed:
            found = ledger.batches(next_entry, ledger.last_add_confirmed)
        else:
            return
        async with aclosing(found):
            async for entries in found:
                yield _placed(entries, opened.first_row)

    async def _open_ledger(self, opened: OpenLedger) -> LedgerEntries:
        return await self._ledgers.open(opened.ledger_id, self._password)

    async def _confirm_unchanged(self, seen: LogHead, row: int) -> bool:
        """Whether the log is as it was when the read began, so that a failed read is a real failure."""
        await self._nodes.sync()
        return await self._head(row) == seen


@asynccontextmanager
async def _watch_head(nodes: LogNodes) -> AsyncIterator[asyncio.Event]:
    """An event that each change of a log's head sets; cleared by who reads the head next."""
    has_changed = asyncio.Event()
    stop = await nodes.store.watch(nodes.tree.head, lambda _: has_changed.set())
    try:
        yield has_changed
    finally:
        stop()


async def _wait(has_changed: asyncio.Event, idle: IdleTime) -> bool:
    """Wait for a change; returns ``False`` if none came in time."""
    try:
        return await asyncio.wait_for(has_changed.wait(), idle.left_s)
    except TimeoutError:
        return False


def _placed(entries: Sequence[Entry], row_of_entry_0: int) -> Rows:
    return [
        (Position(row_of_entry_0 + entry.entry_id, entry.ledger_id, entry.entry_id), entry)
        for entry in entries
    ]
