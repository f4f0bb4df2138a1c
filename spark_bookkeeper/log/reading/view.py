"""Which ranges hold which rows: all that planning a read of a log needs, and nothing else.

Reads the head and the chunks that overlap, in parallel; never a closed ledger's metadata or entries.
Positions are row numbers, half-open: ``from_row`` included, ``to_row`` not. Rows that should be
there and are not are an error, never fewer rows.

Given a way to ask for it, a view also shows the open ledger of a writer outside Spark as far as it
is confirmed, as a range like any other: one entry is one row. What was confirmed once stays, at the
row it was shown at, whichever client ends that ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from bookkeeper_metadata.errors import MetadataCorruptError, NoSuchLedgerError
from spark_bookkeeper.log.errors import DataLossError, LogOverwrittenError
from spark_bookkeeper.log.format.model import ChunkRef, LedgerRange, LogHead
from spark_bookkeeper.log.format.runs import Runs
from spark_bookkeeper.log.nodes.reads import ChunkMissingError, HeadAt, LogNodes
from spark_bookkeeper.log.rules.row_sizes import row_after_bytes

READ_ATTEMPTS_MAX = 16
"""How often a read starts over because an overwrite took a chunk, before the log counts as damaged."""

T = TypeVar("T")
ReadRuns = Callable[[int], Awaitable[Runs]]

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class RowRanges:
    """The ranges that hold rows ``from_row`` up to, not including, ``to_row``.

    The first and last range may hold rows beyond; each range knows its own first row.
    """

    from_row: int
    to_row: int
    ranges: tuple[LedgerRange, ...]
    head: LogHead
    """The head these ranges were read from."""


class OpenLedgers(Protocol):
    """What can be asked of a ledger that its writer has not closed."""

    async def read_last_confirmed(self, ledger_id: int) -> int:
        """Its last entry known to be confirmed; -1: none is. Other readers may have seen more."""

    async def length(self, ledger_id: int, last_entry: int) -> int:
        """Payload bytes of its entries up to ``last_entry``, which is confirmed."""


@dataclass(frozen=True, slots=True)
class LogExtent:
    """How far a log reaches: its head, and behind it the confirmed rows of the open ledger."""

    head: LogHead
    end_row: int
    """Exclusive; the head's ``next_row`` when the log has no writer or open ledgers are not read."""


@dataclass(frozen=True, slots=True)
class RowAtTime:
    """Where a time lies in a log."""

    row: int | None
    """The first row committed then or later; ``None``: none was."""
    head: LogHead
    """The head that says so."""


class LogView:
    """Reads one log; any number may exist. ``runs_of`` reads the origins of a rewritten ledger's rows.

    With ``open_ledgers`` the rows of the log's open ledger are shown too; without, only its ranges.
    """

    def __init__(
        self, nodes: LogNodes, runs_of: ReadRuns, open_ledgers: OpenLedgers | None = None
    ) -> None:
        self.nodes = nodes
        self._runs_of = runs_of
        self._open_ledgers = open_ledgers

    async def head(self) -> HeadAt:
        """The head now.

        Raises:
            NoSuchLogError: the log is gone.
        """
        return await self.nodes.head()

    async def pin(self, position: int | str) -> int:
        """The row number of ``"earliest"``, ``"latest"``, or of a row itself.

        A row outside the log is returned as it is: :meth:`ranges` checks it.

        Raises:
            ValueError: it is none of these.
        """
        if isinstance(position, int) and position >= 0:
            return position
        if position not in (EARLIEST, LATEST):
            raise ValueError(
                f"a position is {EARLIEST}, {LATEST} or a row number from 0; position={position!r}"
            )
        extent = await self.extent(is_latest=True)
        return extent.head.base_row if position == EARLIEST else extent.end_row

    async def extent(self, *, is_latest: bool = False) -> LogExtent:
        """Where the log ends now; ``is_latest``: not before what the caller saw committed elsewhere.

        Raises:
            NoSuchLogError: the log is gone.
            EntryUnreadableError: too few bookies say how far the open ledger is confirmed.
        """
        if is_latest:
            await self.nodes.sync()
        head = (await self.nodes.head()).head
        if head.open_ledger is None or self._open_ledgers is None:
            return LogExtent(head, head.next_row)
        try:
            confirmed = await self._open_ledgers.read_last_confirmed(head.open_ledger.ledger_id)
        except NoSuchLedgerError:
            if is_latest:
                raise
            return await self.extent(is_latest=True)  # A stale head named a ledger that is gone.
        return LogExtent(head, head.next_row + confirmed + 1)

    async def ranges(
        self,
        from_row: int | None = None,
        to_row: int | None = None,
        *,
        columns: Collection[str] | None = (),
        is_trimmed_skipped: bool = False,
        is_overwritten_skipped: bool | None = None,
        was_handed_out: bool = False,
    ) -> RowRanges:
        """The ranges of rows ``from_row`` (default: the first there is) to ``to_row`` (the end).

        ``columns`` names the column bounds to keep (``None``: all): by default none, they cost most
        of the time. For ``is_…_skipped`` see :meth:`first_row`. ``was_handed_out``: a view of this
        log gave these positions out, so up to there the open ledger is confirmed.

        Raises:
            DataLossError: rows asked for are trimmed, or lie beyond the end.
            LogOverwrittenError: see :meth:`first_row`.
            NoSuchLogError: the log is gone.
            ValueError: ``to_row`` lies before ``from_row``.
        """
        if from_row is not None and to_row is not None and to_row < from_row:
            raise ValueError(f"rows end before they begin; from_row={from_row} to_row={to_row}")

        async def read() -> RowRanges:
            if to_row is None:
                extent = await self.extent_reaching(from_row or 0, was_handed_out=was_handed_out)
            else:
                reach = max(from_row or 0, to_row)
                extent = await self._closed_reaching(reach, was_handed_out=was_handed_out)
            head, first = extent.head, extent.head.base_row
            if from_row is not None:
                first = self.first_row(
                    head,
                    from_row,
                    is_trimmed_skipped=is_trimmed_skipped,
                    is_overwritten_skipped=is_overwritten_skipped,
                )
            # What is skipped may reach beyond ``to_row``: there are no rows to read then.
            last = max(extent.end_row if to_row is None else to_row, first)
            found = await self._overlapping(head, first, last, columns)
            return RowRanges(first, last, (*found, *await self._open_range(head, last)), head)

        return await self._with_chunks(read)

    def first_row(
        self,
        head: LogHead,
        from_row: int,
        *,
        is_trimmed_skipped: bool = False,
        is_overwritten_skipped: bool | None = None,
    ) -> int:
        """Where a read from ``from_row`` on begins: behind what it may skip.

        ``is_overwritten_skipped`` is about rows that an overwrite replaced; ``None``: they are
        trimmed rows like others.

        Raises:
            DataLossError: rows were trimmed that must not be skipped.
            LogOverwrittenError: rows were overwritten that must not be skipped.
        """
        first = from_row
        if is_overwritten_skipped is not None and first < head.overwritten_row:
            if not is_overwritten_skipped:
                raise LogOverwrittenError(self.nodes.log, first, head.overwritten_row)
            first = head.overwritten_row
        if first < head.base_row and not is_trimmed_skipped:
            raise DataLossError(
                self.nodes.log,
                from_row,
                (head.base_row, head.next_row),
                "they were overwritten or trimmed",
            )
        return max(first, head.base_row)

    async def row_after_bytes(self, from_row: int, to_row: int, size_bytes_max: int) -> int:
        """About where the first ``size_bytes_max`` stored bytes from ``from_row`` on end.

        At least one entry, at most up to ``to_row``, which was handed out. Reads two chunks per
        level, however long the log is.
        """

        async def read() -> int:
            extent = await self._closed_reaching(to_row, was_handed_out=True)
            head = extent.head
            opened = await self._open_range(head, to_row)
            parts: tuple[ChunkRef | LedgerRange, ...] = (*head.chunks, *head.ranges, *opened)
            return await row_after_bytes(parts, from_row, to_row, size_bytes_max, self.nodes.chunk)

        return await self._with_chunks(read)

    async def extent_reaching(self, row: int, *, was_handed_out: bool = False) -> LogExtent:
        """As :meth:`extent`, at least up to ``row``; reads again after a ``sync`` if need be.

        Raises:
            DataLossError: the log ends before ``row``. Where it ``was_handed_out`` the confirmed
                rows of an open ledger reach up to it, whatever bookies say now.
        """
        extent = await self.extent()
        if extent.end_row < row:
            extent = await self.extent(is_latest=True)
        if extent.end_row >= row:
            return extent
        if was_handed_out and self._open_ledgers is not None and extent.head.open_ledger:
            # This head is younger than the position. Had the row been in an earlier ledger, the head
            # would list it. So it is in this open ledger, and its entries were confirmed when the
            # position was handed out, although the bookies that answered now know of fewer.
            return replace(extent, end_row=row)
        raise DataLossError(
            self.nodes.log,
            row,
            (extent.head.base_row, extent.end_row),
            "the log ends before a position it handed out or was asked for",
        )

    async def row_at_time(self, timestamp_ms: int) -> RowAtTime:
        """The first row committed at ``timestamp_ms`` (since the epoch) or later, that is there.

        As of everything committed before this call. Commit times never fall from a range to the
        next, so one chunk per level is read. Rows of an open ledger are not committed yet, and those
        of a writer outside Spark are all at once, when their ledger ends.

        Raises:
            NoSuchLogError: the log is gone.
        """
        # A stale head would answer "nothing yet" of a commit its caller knows of.
        await self.nodes.sync()

        async def read() -> RowAtTime:
            head = (await self.nodes.head()).head
            parts: tuple[ChunkRef | LedgerRange, ...] = (*head.chunks, *head.ranges)
            while True:
                at = bisect_left(parts, timestamp_ms, key=_last_commit_ms)
                if at == len(parts):
                    return RowAtTime(None, head)
                found = parts[at]
                if isinstance(found, LedgerRange):
                    return RowAtTime(await self._row_within(found, timestamp_ms), head)
                # Bounds are not asked for: parsing them is most of the cost.
                chunk = await self.nodes.chunk(found, ())
                parts = (*chunk.chunks, *chunk.ranges)

        return await self._with_chunks(read)

    async def _row_within(self, found: LedgerRange, timestamp_ms: int) -> int:
        """The first row committed at that time or later, of a range whose last one was."""
        if timestamp_ms <= found.committed_since_ms:
            return found.first_row
        try:
            runs = await self._runs_of(found.ledger_id)
        except NoSuchLedgerError as gone:
            # Its rows lie elsewhere by now, as a newer head says.
            raise ChunkMissingError(f"of ledger {found.ledger_id}") from gone
        return found.first_row + runs.first_row_since(timestamp_ms)

    async def _with_chunks(self, read: Callable[[], Awaitable[T]]) -> T:
        """Run ``read``; start it over, from the head, when a change took a chunk away meanwhile."""
        missing = ""
        for _ in range(READ_ATTEMPTS_MAX):
            try:
                return await read()
            except ChunkMissingError as gone:
                # The head is newer than the one just read: a session that lags has to see that.
                missing = str(gone)
                await self.nodes.sync()
        raise MetadataCorruptError(
            self.nodes.tree.chunk(missing), "the head references a chunk that is not there"
        )

    async def _closed_reaching(self, row: int, *, was_handed_out: bool) -> LogExtent:
        """As :meth:`extent_reaching`, without asking for the open ledger's end when it need not."""
        head = (await self.nodes.head()).head
        if head.next_row >= row:
            return LogExtent(head, head.next_row)
        return await self.extent_reaching(row, was_handed_out=was_handed_out)

    async def _open_range(self, head: LogHead, to_row: int) -> tuple[LedgerRange, ...]:
        """The rows before ``to_row`` that the open ledger holds, all of them confirmed."""
        opened = head.open_ledger
        if to_row <= head.next_row or opened is None or self._open_ledgers is None:
            return ()
        rows = to_row - opened.first_row
        size = await self._open_ledgers.length(opened.ledger_id, rows - 1)
        # Never less than the range before, even when the writer's clock was behind.
        shown_ms = max(opened.opened_ms, head.last_commit_ms)
        shown = LedgerRange(
            opened.ledger_id, 0, rows - 1, opened.first_row, rows, size, head.schema_id, shown_ms
        )
        return (shown,)

    async def _overlapping(
        self, head: LogHead, first: int, last: int, columns: Collection[str] | None
    ) -> tuple[LedgerRange, ...]:
        def overlaps(part: ChunkRef | LedgerRange) -> bool:
            return part.first_row < last and part.next_row > first

        older = await self.nodes.ranges_below(head.chunks, overlaps, columns)
        return tuple(item for item in (*older, *head.ranges) if overlaps(item))


def _last_commit_ms(part: ChunkRef | LedgerRange) -> int:
    return part.commit_ms if isinstance(part, LedgerRange) else part.last_commit_ms
