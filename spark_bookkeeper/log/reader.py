"""Which ranges hold which rows: all that planning a read of a log needs, and nothing else.

Reads the head and the chunks that overlap, in parallel; never a ledger's metadata, never entries.
Positions are row numbers, half-open: ``from_row`` included, ``to_row`` not. Rows that should be
there and are not are an error, never fewer rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from metadata.errors import MetadataCorruptError
from metadata.store import MetadataStore
from spark_bookkeeper.log.errors import DataLossError
from spark_bookkeeper.log.model import ChunkRef, LedgerRange, LogHead
from spark_bookkeeper.log.nodes import ChunkMissingError, HeadAt, LogNodes
from spark_bookkeeper.log.paths import LogPaths

READ_ATTEMPTS_MAX = 16
"""Reads of a log whose chunks may go missing under overwrites before the log counts as damaged."""

T = TypeVar("T")

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
    """As it was when this was read."""


class LogView:
    """Reads one log; any number may exist. ``log`` names it in errors."""

    def __init__(self, store: MetadataStore, paths: LogPaths, log_id: int, *, log: str) -> None:
        self._nodes = LogNodes(store, paths, log_id, log)

    async def head(self) -> HeadAt:
        """The head now.

        Raises:
            NoSuchLogError: the log is gone.
        """
        return await self._nodes.head()

    async def pin(self, position: int | str) -> int:
        """The row number of ``"earliest"``, ``"latest"``, or of a row itself.

        A row outside the log is returned as it is: :meth:`ranges` judges it.

        Raises:
            ValueError: it is none of these.
        """
        if isinstance(position, int) and position >= 0:
            return position
        if position not in (EARLIEST, LATEST):
            raise ValueError(
                f"a position is {EARLIEST}, {LATEST} or a row number from 0; position={position!r}"
            )
        # Latest must not lie before what the caller has seen committed elsewhere.
        await self._nodes.sync()
        head = (await self._nodes.head()).head
        return head.base_row if position == EARLIEST else head.next_row

    async def ranges(
        self,
        from_row: int | None = None,
        to_row: int | None = None,
        *,
        columns: Collection[str] | None = (),
        is_trimmed_skipped: bool = False,
    ) -> RowRanges:
        """The ranges of rows ``from_row`` (default: the first there is) to ``to_row`` (the end).

        ``columns`` names the column bounds to keep (``None``: all): by default none, they cost most
        of the time. Rows trimmed since are an error unless ``is_trimmed_skipped``.

        Raises:
            DataLossError: rows asked for are trimmed, or lie beyond the end.
            NoSuchLogError: the log is gone.
            ValueError: ``to_row`` lies before ``from_row``.
        """
        if from_row is not None and to_row is not None and to_row < from_row:
            raise ValueError(f"rows end before they begin; from_row={from_row} to_row={to_row}")

        async def read() -> RowRanges:
            head = await self._head_reaching(max(from_row or 0, to_row or 0))
            first = self._first_row(head, from_row, is_trimmed_skipped)
            last = head.next_row if to_row is None else max(to_row, first)
            found = await self._overlapping(head, first, last, columns)
            return RowRanges(first, last, found, head)

        return await self._with_chunks(read)

    async def row_at_time(self, timestamp_ms: int) -> int | None:
        """The first row committed at ``timestamp_ms`` (since the epoch) or later, that is there.

        ``None``: nothing was, as of everything committed before this call. Commit times never fall
        from a range to the next, so one chunk per level is read. Rows of an open ledger are not
        committed yet, and those of a writer outside Spark are all at once, when their ledger ends.

        Raises:
            NoSuchLogError: the log is gone.
        """
        # A stale head would answer "nothing yet" of a commit its caller knows of.
        await self._nodes.sync()

        async def read() -> int | None:
            head = (await self._nodes.head()).head
            parts: tuple[ChunkRef | LedgerRange, ...] = (*head.chunks, *head.ranges)
            while True:
                at = bisect_left(parts, timestamp_ms, key=_last_commit_ms)
                if at == len(parts):
                    return None
                found = parts[at]
                if isinstance(found, LedgerRange):
                    return found.first_row
                chunk = await self._nodes.chunk(found, ())
                parts = (*chunk.chunks, *chunk.ranges)

        return await self._with_chunks(read)

    async def _with_chunks(self, read: Callable[[], Awaitable[T]]) -> T:
        """What ``read`` returns, begun again from the head when a change took a chunk away."""
        missing = ""
        for _ in range(READ_ATTEMPTS_MAX):
            try:
                return await read()
            except ChunkMissingError as gone:
                missing = str(gone)
                await self._nodes.sync()
        raise MetadataCorruptError(
            self._nodes.tree.chunk(missing), "the head references a chunk that is not there"
        )

    async def _head_reaching(self, row: int) -> LogHead:
        """A head whose rows end at ``row`` or later, synced for if need be."""
        head = (await self._nodes.head()).head
        if head.next_row < row:
            await self._nodes.sync()
            head = (await self._nodes.head()).head
        if head.next_row < row:
            raise DataLossError(
                self._nodes.log,
                row,
                (head.base_row, head.next_row),
                "the log ends before a position it handed out or was asked for",
            )
        return head

    def _first_row(self, head: LogHead, from_row: int | None, is_trimmed_skipped: bool) -> int:
        if from_row is None:
            return head.base_row
        if from_row < head.base_row and not is_trimmed_skipped:
            raise DataLossError(
                self._nodes.log,
                from_row,
                (head.base_row, head.next_row),
                "they were overwritten or trimmed",
            )
        return max(from_row, head.base_row)

    async def _overlapping(
        self, head: LogHead, first: int, last: int, columns: Collection[str] | None
    ) -> tuple[LedgerRange, ...]:
        def overlaps(part: ChunkRef | LedgerRange) -> bool:
            return part.first_row < last and part.next_row > first

        older = await self._nodes.ranges_below(head.chunks, overlaps, columns)
        return tuple(item for item in (*older, *head.ranges) if overlaps(item))


def _last_commit_ms(part: ChunkRef | LedgerRange) -> int:
    return part.commit_ms if isinstance(part, LedgerRange) else part.last_commit_ms
