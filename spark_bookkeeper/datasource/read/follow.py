"""Follows one log for a streaming query: where each micro-batch ends, and what its tasks read.

Everything is decided from the offsets Spark hands in and the log as it is. What is kept between
calls - the target of an AvailableNow run, since when rows are waited for, the end last seen - lives
as long as one run of the query and may be lost at any moment without a row lost or repeated.

Once per trigger the log's head is read, and of a log written outside Spark how far its open ledger
is confirmed; chunks only where a batch is planned or cut by bytes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from pyspark.sql.streaming.datasource import ReadLimit

from spark_bookkeeper.datasource.errors import OffsetInvalidError
from spark_bookkeeper.datasource.options.model import StreamReadOptions
from spark_bookkeeper.datasource.read.batch import plan_limits
from spark_bookkeeper.datasource.read.limits import (
    TriggerLimits,
    end_by_rows,
    is_waiting,
    trigger_limits,
)
from spark_bookkeeper.datasource.read.offsets import (
    EARLIEST,
    LATEST,
    TIMESTAMP,
    RowOffset,
    StartSymbol,
    parse_offset,
    start_symbol,
)
from spark_bookkeeper.datasource.read.partitions import Slice, plan
from spark_bookkeeper.datasource.read.readable import Readable
from spark_bookkeeper.datasource.read.times import row_since
from spark_bookkeeper.datasource.session import Session
from spark_bookkeeper.log.cleaning.consumers import CursorHolder
from spark_bookkeeper.log.errors import LogRecreatedError, NoSuchLogError
from spark_bookkeeper.log.format.model import LogHead
from spark_bookkeeper.log.reading.view import LogExtent

T = TypeVar("T")
Offset = dict[str, int | str]
_log = logging.getLogger(__name__)


class LogFollower:
    """One run of a streaming query over one log; ``clock_ms`` only measures waiting."""

    def __init__(
        self,
        session: Session,
        options: StreamReadOptions,
        readable: Readable,
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        assert readable.log_id is not None
        self.log = readable.log
        self.log_id = readable.log_id
        self._session = session
        self._options = options
        self._readable = readable
        self._clock_ms = clock_ms
        self._view = session.log_view(self.log_id, self.log, options.read_password())
        self._skipped: dict[str, Any] = {
            "is_trimmed_skipped": not options.fails_on_data_loss,
            "is_overwritten_skipped": options.ignores_overwrites,
        }
        self._target_row: int | None = None
        self._last_batch_ms: int | None = None
        self._end_seen: int | None = None
        self._cursor: CursorHolder | None = None
        if options.consumer is not None:
            self._cursor = CursorHolder(
                session.consumers(self.log_id, self.log),
                options.consumer,
                options.consumer_timeout_ms,
                session.clock_ms,
            )

    def initial_offset(self) -> Offset:
        """Where a new query begins; the same for the same options, whenever Spark asks."""
        return start_symbol(self.log_id, self._options).to_json()

    def pin_target(self) -> None:
        """Read no further than the log reaches now, and wait for nothing: an AvailableNow run."""
        # What its user saw committed before starting the run must be in the run.
        self._target_row = self._run(self._view.extent(is_latest=True)).end_row

    def next_offset(self, start: Mapping[str, object], limit: ReadLimit) -> Offset:
        """Where the next batch ends; ``start`` itself when there is nothing to read now.

        The first one of a query says where the query began, and may be empty.

        Raises:
            LogRecreatedError, OffsetInvalidError: the offset is not of this log.
            LogOverwrittenError, DataLossError: rows that come next are gone.
        """
        place = self._parsed(start)
        limits = trigger_limits(self._options, limit)
        if isinstance(place, StartSymbol):
            row, extent = self._resolve_held_start(place)
            end = self._batch_end(row, extent.end_row, limits)
            # Never the symbol, even without rows: Spark keeps ends only, so this is what pins the
            # start.
            return RowOffset(self.log_id, end, row).to_json()
        extent = self._run(self._view.extent_reaching(place.row, was_handed_out=True))
        self._end_seen = extent.end_row
        # Also when nothing is new, because a cursor that is not touched expires.
        self._move_cursor(place.row)
        first = self._first_row(extent.head, place.row)
        end = self._batch_end(first, extent.end_row, limits)
        # To Spark any other text is a new batch. Rows that were skipped do not make one by
        # themselves.
        return RowOffset(self.log_id, end).to_json() if end > first else place.to_json()

    def commit(self, end: Mapping[str, object]) -> None:
        """The rows before ``end`` are in the sink: retention need not keep them for this query.

        Raises: as :class:`Consumers`; the query would fail at its next look at the log as well.
        """
        place = self._parsed(end)
        # Spark calls this as it builds the batch behind, so the cursor stays a batch behind too.
        if self._cursor is not None and isinstance(place, RowOffset):
            self._run(self._cursor.advance(place.row))

    def end_offset(self) -> Offset | None:
        """Where the log ended when its head was last read."""
        # Spark asks after each latestOffset, so what that saw is new enough and costs no read.
        return None if self._end_seen is None else RowOffset(self.log_id, self._end_seen).to_json()

    def plan(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> list[tuple[Slice, ...]]:
        """What the tasks of the batch from ``start`` to ``end`` read; empty when it has no rows.

        The same batch is planned again after a restart, and has the same rows then.

        Raises: as :meth:`next_offset`; never gives fewer rows.
        """
        first, until = self._parsed(start), self._parsed(end)
        if isinstance(until, StartSymbol):
            raise OffsetInvalidError(self.log, json.dumps(end))
        if isinstance(first, RowOffset):
            row = first.row
        # The first batch: its start is a symbol, which may mean another row by now.
        elif until.from_row is not None:
            row = until.from_row
        else:
            raise OffsetInvalidError(self.log, json.dumps(end))
        if row >= until.row:
            return []
        ranges = self._view.ranges(row, until.row, was_handed_out=True, **self._skipped)
        found = self._run(ranges)
        self._log_skipped(row, found.from_row, until.row)
        return plan(
            found.ranges,
            found.from_row,
            until.row,
            plan_limits(self._options),
            row_is_entry=self._readable.is_raw,
        )

    def _resolve_held_start(self, symbol: StartSymbol) -> tuple[int, LogExtent]:
        """The row a new query begins with, held for it by its cursor, and the log it was found in."""
        row, extent = self._resolve_start(symbol)
        # Before anything is read: the rows of the first batch are wanted from now on.
        self._move_cursor(row)
        if self._cursor is None:
            return row, extent
        # Retention may have dropped rows between the two, and never will again.
        extent = self._run(self._view.extent(is_latest=True))
        if extent.head.base_row <= row:
            return row, extent
        row, extent = self._resolve_start(symbol)
        self._move_cursor(row)
        return row, extent

    def _resolve_start(self, symbol: StartSymbol) -> tuple[int, LogExtent]:
        """The row a new query begins with, and the log it was found in."""
        if symbol.start in (EARLIEST, LATEST):
            extent = self._run(self._view.extent(is_latest=True))
            row = extent.head.base_row if symbol.start == EARLIEST else extent.end_row
            if symbol.start == LATEST and self._target_row is not None:
                # Rows that came since the target was pinned are not older than the query: they are
                # for its next run.
                row = min(row, self._target_row)
        else:
            row = symbol.at
            if symbol.start == TIMESTAMP:
                is_latest = self._options.is_latest_without_match
                row = row_since(
                    self._session, self._view, self.log, row, is_latest_without_match=is_latest
                )
            extent = self._run(self._view.extent_reaching(row))
        self._end_seen = extent.end_row
        first = self._first_row(extent.head, row)
        self._log_skipped(row, first, extent.end_row)
        return first, extent

    def _first_row(self, head: LogHead, row: int) -> int:
        return self._view.first_row(head, row, **self._skipped)

    def _batch_end(self, first: int, end: int, limits: TriggerLimits) -> int:
        """Where a batch from ``first`` on ends; ``first`` itself: there is none now."""
        now_ms = self._clock_ms()
        if self._last_batch_ms is None:
            # When the previous run had its last batch is kept nowhere: this run's wait begins now.
            self._last_batch_ms = now_ms
        is_due = now_ms - self._last_batch_ms >= self._options.trigger_delay_max_ms
        if self._target_row is not None:
            # Rows held back for company would never be read: this run ends here.
            end, is_due = min(end, self._target_row), True
        if end <= first or is_waiting(limits, end - first, is_due=is_due):
            return first
        self._last_batch_ms = now_ms
        # Rows first, which is a sum: bytes need chunks, and then of fewer rows.
        end = end_by_rows(limits, first, end)
        if limits.bytes_max is None:
            return end
        return self._run(self._view.row_after_bytes(first, end, limits.bytes_max))

    def _move_cursor(self, row: int) -> None:
        """Let retention know how far this query has read."""
        if self._cursor is not None:
            self._run(self._cursor.heartbeat(row))

    def _log_skipped(self, row: int, first: int, end: int) -> None:
        if first > row:
            _log.warning(
                "rows are gone and were skipped, as failOnDataLoss=false or ignoreOverwrites=true "
                "allow. log=%s wanted_row=%d first_row=%d end_row=%d",
                self.log, row, first, end,
            )  # fmt: skip

    def _parsed(self, offset: Mapping[str, object]) -> StartSymbol | RowOffset:
        found = parse_offset(self.log, offset)
        # A log made again under its name counts from 0 again: the same number is another row.
        if found.log_id != self.log_id:
            raise LogRecreatedError(self.log, found.log_id, self.log_id)
        return found

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it; raises LogRecreatedError instead where a gone log's name is another log's now."""
        try:
            return self._session.run(coroutine)
        except NoSuchLogError:
            self._session.run(self._session.catalog.open(self.log, expected_log_id=self.log_id))
            raise
