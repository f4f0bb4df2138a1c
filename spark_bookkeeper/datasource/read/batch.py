"""A batch read as Spark drives it: plan on the driver, Arrow batches out of each task.

The read is of what was committed when it was planned. Planning reads the log's head and chunks;
tasks open their ledgers a few ahead and decode while the next entries are on their way.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from metadata.errors import BookKeeperError
from spark_bookkeeper.datasource.errors import OptionsError, report, reported
from spark_bookkeeper.datasource.options.model import ReadOptions
from spark_bookkeeper.datasource.options.values import Position
from spark_bookkeeper.datasource.payload.arrow import ArrowDecoder
from spark_bookkeeper.datasource.read.partitions import PlanLimits, Slice, plan
from spark_bookkeeper.datasource.read.readable import Readable, find_readable
from spark_bookkeeper.datasource.read.slice_reader import Rows, read_arrow, read_ledger, read_raw
from spark_bookkeeper.datasource.read.times import row_before, row_since
from spark_bookkeeper.datasource.schema import arrow_schema, cast_batch
from spark_bookkeeper.datasource.session import LedgerReader, Session, open_session
from spark_bookkeeper.log.model import LedgerRange
from spark_bookkeeper.log.reader import LogView, RowRanges

LEDGERS_OPENED_AHEAD = 4
"""Ledgers a task opens before it needs them: hides a metadata read per small ledger."""


class ReadPartition(InputPartition):  # type: ignore[misc, unused-ignore]
    """What one task reads, in order; may be nothing."""

    def __init__(self, slices: tuple[Slice, ...]) -> None:
        super().__init__(None)
        self.slices = slices

    def __repr__(self) -> str:
        return f"ReadPartition({', '.join(str(item.ledger_id) for item in self.slices)})"


class BookKeeperBatchReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    """One planned batch read."""

    def __init__(self, options: ReadOptions, readable: Readable, schema: StructType) -> None:
        self._options = options
        self._readable = readable
        self._schema = schema

    @reported
    def partitions(self) -> list[InputPartition]:
        """Never an empty list: Spark would put a partition of its own there."""
        packs = plan_read(open_session(self._options), self._options, self._readable)
        return [ReadPartition(pack) for pack in packs] or [ReadPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The partition's rows, cast to exactly the schema (in a task)."""
        assert isinstance(partition, ReadPartition)
        try:
            session = open_session(self._options)
            yield from read_slices(
                session, self._options, self._readable, self._schema, partition.slices
            )
        except BookKeeperError as error:
            raise report(error) from error


def read_schema(options: ReadOptions) -> StructType:
    """The columns ``load()`` shows; raises as :func:`find_readable`."""
    return find_readable(open_session(options), options).columns(options)


def open_batch_read(options: ReadOptions, schema: StructType) -> BookKeeperBatchReader:
    """A reader of what the options name, giving the columns of ``schema``.

    Raises:
        SchemaMismatchError: a user's own ``.schema(…)`` does not fit.
    """
    readable = find_readable(open_session(options), options)
    readable.check_wanted(options, schema)
    return BookKeeperBatchReader(options, readable, schema)


def plan_read(
    session: Session, options: ReadOptions, readable: Readable
) -> list[tuple[Slice, ...]]:
    """The partitions of a read; empty when there are no rows.

    Raises:
        DataLossError: rows asked for are trimmed, or lie beyond the end of the log.
    """
    limits = PlanLimits(
        partition_bytes_max=options.partition_bytes_max,
        partition_rows_max=options.partition_rows_max,
        partitions_min=options.partitions_min,
        cores_hint=os.cpu_count() or 1,
    )
    if readable.log_id is None:
        ranges = _ledger_ranges(session, options)
        end = ranges[-1].next_row if ranges else 0
        return plan(ranges, 0, end, limits, row_is_entry=readable.is_raw)
    found = _log_ranges(session, options, readable.log_id)
    return plan(found.ranges, found.from_row, found.to_row, limits, row_is_entry=readable.is_raw)


def _log_ranges(session: Session, options: ReadOptions, log_id: int) -> RowRanges:
    view = session.view(log_id, options.log or "")
    first, end = _first_row(session, options, view), _end_row(session, options, view)
    if first is not None and end is not None and end < first:
        raise OptionsError((f"the read ends before it begins; end_row={end} first_row={first}",))
    return session.run(view.ranges(first, end, is_trimmed_skipped=not options.fails_on_data_loss))


def _first_row(session: Session, options: ReadOptions, view: LogView) -> int | None:
    """The row the options begin at; ``None``: the first of the very head that is read."""
    if options.starting_timestamp_ms is not None:
        return row_since(
            session,
            view,
            options.log or "",
            options.starting_timestamp_ms,
            is_latest_without_match=options.is_latest_without_match,
        )
    if options.starting.symbol == "earliest":
        return None
    return _pinned(session, view, options.starting)


def _end_row(session: Session, options: ReadOptions, view: LogView) -> int | None:
    """The row the options end before; ``None``: the end of the very head that is read."""
    if options.ending_timestamp_ms is not None:
        return row_before(session, view, options.ending_timestamp_ms)
    return None if options.ending.symbol == "latest" else _pinned(session, view, options.ending)


def _pinned(session: Session, view: LogView, position: Position) -> int:
    return session.run(view.pin(position.row if position.symbol == "row" else position.symbol))


def _ledger_ranges(session: Session, options: ReadOptions) -> list[LedgerRange]:
    """Ledgers by id as ranges: an open one up to its LAC now; rows stand for entries."""
    found, row = [], 0
    password = options.read_password()
    for ledger_id in options.ledgers:
        ledger = session.client.open_ledger(ledger_id, password)
        entries = ledger.last_add_confirmed + 1
        if entries:
            size = max(ledger.metadata.length, entries)
            found.append(LedgerRange(ledger_id, 0, entries - 1, row, entries, size, 0, 0))
            row += entries
    return found


def read_slices(
    session: Session,
    options: ReadOptions,
    readable: Readable,
    schema: StructType,
    slices: tuple[Slice, ...],
) -> Iterator[pa.RecordBatch]:
    """The slices' rows as batches of exactly Spark's schema.

    Raises:
        BookKeeperError: a ledger cannot be opened, read or decoded; never fewer rows.
    """
    password = options.read_password()
    names = readable.stored_names(schema)
    shape = _Shape(schema, names)
    decoder = ArrowDecoder(readable.schema.arrow, names)
    for item, ledger in _opened(session, password, slices):
        if readable.is_raw:
            rows = read_raw(ledger, item, readable.schema.arrow)
        elif readable.log_id is None:
            rows = read_ledger(ledger, item, decoder)
        else:
            rows = read_arrow(ledger, item, decoder)
        for found in rows:
            yield shape.batch(found, item, is_raw=readable.is_raw)


def _opened(
    session: Session, password: bytes, slices: tuple[Slice, ...]
) -> Iterator[tuple[Slice, LedgerReader]]:
    if len(slices) <= 1:
        for item in slices:
            yield item, session.client.open_ledger(item.ledger_id, password)
        return
    with ThreadPoolExecutor(LEDGERS_OPENED_AHEAD, "bookkeeper-open") as pool:
        ahead: deque[tuple[Slice, Future[LedgerReader]]] = deque()
        waiting = iter(slices)
        try:
            for item in waiting:
                ahead.append(
                    (item, pool.submit(session.client.open_ledger, item.ledger_id, password))
                )
                if len(ahead) > LEDGERS_OPENED_AHEAD:
                    opened, future = ahead.popleft()
                    yield opened, future.result()
            while ahead:
                opened, future = ahead.popleft()
                yield opened, future.result()
        finally:
            for _, future in ahead:
                future.cancel()


class _Shape:
    """Gives rows Spark's schema: stored columns cast, metadata columns made."""

    def __init__(self, schema: StructType, stored: list[str]) -> None:
        self._target = arrow_schema(schema)
        self._stored = {name: at for at, name in enumerate(stored)}
        self._makers: dict[str, Callable[[Rows, Slice, bool], pa.Array]] = {
            "_ledger": lambda rows, item, is_raw: _constant(rows.ledger_id, rows, pa.int64()),
            "_entry": _entry_ids,
            "_position": lambda rows, item, is_raw: _counting(rows.position, rows),
            "_batch_id": lambda rows, item, is_raw: pa.nulls(rows.batch.num_rows, pa.int64()),
            "_query_id": lambda rows, item, is_raw: pa.nulls(rows.batch.num_rows, pa.string()),
            "_timestamp": lambda rows, item, is_raw: _constant(
                item.range.commit_ms * 1000, rows, pa.timestamp("us", "UTC")
            ),
        }
        self._made = [name for name in self._target.names if name not in self._stored]

    def batch(self, rows: Rows, item: Slice, *, is_raw: bool) -> pa.RecordBatch:
        """The rows in Spark's order and types."""
        if not self._made:
            return cast_batch(rows.batch, self._target)
        columns = []
        for field in self._target:
            at = self._stored.get(field.name)
            if at is not None:
                column = rows.batch.column(at)
            else:
                column = self._makers[field.name](rows, item, is_raw)
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._target)


def _entry_ids(rows: Rows, item: Slice, is_raw: bool) -> pa.Array:
    if is_raw:
        return _counting(rows.entry_id, rows)
    return _constant(rows.entry_id, rows, pa.int64())


def _constant(value: int, rows: Rows, of: pa.DataType) -> pa.Array:
    return pa.array(np.full(rows.batch.num_rows, value)).cast(of)


def _counting(first: int, rows: Rows) -> pa.Array:
    return pa.array(np.arange(first, first + rows.batch.num_rows))
