"""A batch read as Spark drives it: plan on the driver, Arrow batches out of each task.

The read is of what was committed when it was planned. Planning reads the log's head and chunks.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from spark_bookkeeper.datasource.errors import OptionsError, source_errors
from spark_bookkeeper.datasource.options.model import ReadOptions
from spark_bookkeeper.datasource.options.values import Position
from spark_bookkeeper.datasource.read.bounds import ranges_that_may_hold
from spark_bookkeeper.datasource.read.partitions import PlanLimits, Slice, plan
from spark_bookkeeper.datasource.read.pruning import ALL_ROWS, Predicate, predicate_of
from spark_bookkeeper.datasource.read.readable import Readable, find_readable
from spark_bookkeeper.datasource.read.task import ReadPartition, run_task
from spark_bookkeeper.datasource.read.times import row_before, row_since
from spark_bookkeeper.datasource.session import Session, open_session
from spark_bookkeeper.datasource.worker_logging import log_read
from spark_bookkeeper.log.format.model import LedgerRange
from spark_bookkeeper.log.reading.view import LogView, RowRanges


class PushedFilters:
    """Takes the filters Spark offers, and gives all of them back for Spark to apply again.

    Spark fails the reads of a reader *class* with ``pushFilters`` of its own when its conf
    ``spark.sql.python.filterPushdown.enabled`` is off, and offers no way to ask. So this
    stands on the instance, and shows the attribute by which Spark knows a method not overridden.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, readable: Readable, schema: StructType) -> None:
        self.predicate = ALL_ROWS
        self._schema = schema
        self._columns = readable.bounded_names()

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """What Spark has to apply itself: everything, because bounds rule out entries, not rows."""
        self.predicate = predicate_of(filters, self._schema, self._columns)
        return filters


class BookKeeperBatchReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    """One planned batch read."""

    def __init__(self, options: ReadOptions, readable: Readable, schema: StructType) -> None:
        self._options = options
        self._readable = readable
        self._schema = schema
        self._pushed = PushedFilters(readable, schema)
        self.pushFilters = self._pushed  # type: ignore[method-assign, unused-ignore]

    @source_errors()
    def partitions(self) -> list[InputPartition]:
        """Never an empty list: Spark would put a partition of its own there."""
        session, predicate = open_session(self._options), self._pushed.predicate
        packs = plan_read(session, self._options, self._readable, predicate=predicate)
        return [ReadPartition(pack) for pack in packs] or [ReadPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The partition's rows, cast to exactly the schema (in a task)."""
        predicate = self._pushed.predicate
        return run_task(self._options, self._readable, self._schema, partition, predicate=predicate)


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
    session: Session, options: ReadOptions, readable: Readable, *, predicate: Predicate = ALL_ROWS
) -> list[tuple[Slice, ...]]:
    """The partitions of a read, without ranges ``predicate`` rules out; empty: there are no rows.

    Raises:
        DataLossError: rows asked for are trimmed, or lie beyond the end of the log.
    """
    limits = plan_limits(options)
    if readable.log_id is None:
        # Only a log's commits record bounds of ledgers; here the tasks prune, by the footers.
        ranges = _ledger_ranges(session, options, readable.schema_id)
        end = ranges[-1].next_row if ranges else 0
        return plan(ranges, 0, end, limits, row_is_entry=readable.is_raw)
    stored = readable.schema.spark.names
    # Bounds cost most of the time of planning, so only those of filtered columns are decoded.
    columns = predicate.columns.intersection(stored)
    found = _log_ranges(session, options, readable.log_id, columns)
    ranges = ranges_that_may_hold(found.ranges, predicate, stored)
    packs = plan(ranges, found.from_row, found.to_row, limits, row_is_entry=readable.is_raw)
    log_read(
        f"read planned. log={readable.log} from_row={found.from_row} to_row={found.to_row} "
        f"ranges={len(ranges)} ranges_pruned={len(found.ranges) - len(ranges)} "
        f"partitions={len(packs)}"
    )
    return packs


def plan_limits(options: ReadOptions) -> PlanLimits:
    """How the options, and the cores of this host, want partitions cut."""
    return PlanLimits(
        partition_bytes_max=options.partition_bytes_max,
        partition_rows_max=options.partition_rows_max,
        partitions_min=options.partitions_min,
        # Spark tells its Python planner neither its executors nor its settings.
        cores_hint=os.cpu_count() or 1,
    )


def _log_ranges(
    session: Session, options: ReadOptions, log_id: int, columns: Collection[str]
) -> RowRanges:
    view = session.log_view(log_id, options.log or "", options.read_password())
    # An action sees what was committed before it: this session may be another than the one that
    # found the log, and both may lag.
    session.run(view.nodes.sync())
    first, end = _first_row(session, options, view), _end_row(session, options, view)
    if first is not None and end is not None and end < first:
        raise OptionsError((f"the read ends before it begins; end_row={end} first_row={first}",))
    skips = not options.fails_on_data_loss
    return session.run(view.ranges(first, end, columns=columns, is_trimmed_skipped=skips))


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
    # Not pinned: a truncation between that and the read of the ranges would look like data loss.
    if options.starting.symbol == "earliest":
        return None
    return _pin_rows(session, view, options.starting)


def _end_row(session: Session, options: ReadOptions, view: LogView) -> int | None:
    """The row the options end before; ``None``: the end of the very head that is read."""
    if options.ending_timestamp_ms is not None:
        return row_before(session, view, options.ending_timestamp_ms)
    return None if options.ending.symbol == "latest" else _pin_rows(session, view, options.ending)


def _pin_rows(session: Session, view: LogView, position: Position) -> int:
    return session.run(view.pin(position.row if position.symbol == "row" else position.symbol))


def _ledger_ranges(session: Session, options: ReadOptions, schema_id: int) -> list[LedgerRange]:
    """Ledgers by id as ranges: an open one up to its LAC now; rows stand for entries."""
    found, row = [], 0
    password = options.read_password()
    for ledger_id in options.ledgers:
        ledger = session.client.open_ledger(ledger_id, password=password)
        entries = ledger.last_add_confirmed + 1
        if entries:
            # An open ledger has no length yet. A byte per entry is far off, but all that sizes do
            # is even out partitions.
            size = max(ledger.metadata.length, entries)
            found.append(LedgerRange(ledger_id, 0, entries - 1, row, entries, size, schema_id, 0))
            row += entries
    return found
