"""What a read's task does, batch or stream: its slices' rows as Arrow batches of Spark's schema.

A task opens its ledgers a few ahead and decodes while the next entries are on their way. At its end
it logs how many entries it fetched of those its slices lie in.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spark_bookkeeper.blocking.read_handle import ReadHandle
from spark_bookkeeper.datasource.errors import source_errors
from spark_bookkeeper.datasource.options.model import ReadOptions
from spark_bookkeeper.datasource.origins import ANY_ROWS, origins_of
from spark_bookkeeper.datasource.read.decoders import Decoders
from spark_bookkeeper.datasource.read.partitions import Slice
from spark_bookkeeper.datasource.read.pruning import ALL_ROWS, Predicate
from spark_bookkeeper.datasource.read.readable import Readable
from spark_bookkeeper.datasource.read.slice_opener import SliceOpener
from spark_bookkeeper.datasource.read.slice_reader import (
    Fetching,
    Rows,
    read_ledger,
    read_log,
    read_raw,
)
from spark_bookkeeper.datasource.schema import arrow_schema, cast_array, cast_batch
from spark_bookkeeper.datasource.session import Session, open_session
from spark_bookkeeper.datasource.worker_logging import log_read
from spark_bookkeeper.log.format.runs import Runs


class ReadPartition(InputPartition):  # type: ignore[misc, unused-ignore]
    """The slices that one task reads, in order; there may be none."""

    def __init__(self, slices: tuple[Slice, ...]) -> None:
        super().__init__(None)
        self.slices = slices

    def __repr__(self) -> str:
        return f"ReadPartition({', '.join(str(item.ledger_id) for item in self.slices)})"


def run_task(
    options: ReadOptions,
    readable: Readable,
    schema: StructType,
    partition: InputPartition,
    *,
    predicate: Predicate = ALL_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The partition's rows, cast to exactly the schema; errors are reported ones."""
    assert isinstance(partition, ReadPartition)
    # In here and not around the call: a generator raises while its rows are taken.
    with source_errors():
        session, slices = open_session(options), partition.slices
        yield from read_slices(session, options, readable, schema, slices, predicate=predicate)


def read_slices(
    session: Session,
    options: ReadOptions,
    readable: Readable,
    schema: StructType,
    slices: tuple[Slice, ...],
    *,
    predicate: Predicate = ALL_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The slices' rows as batches of Spark's schema; some that ``predicate`` rules out are left out.

    Raises:
        BookKeeperError: a ledger cannot be opened, read or decoded; never fewer rows.
    """
    password = options.read_password()
    names = readable.stored_names(schema)
    shape = _Shape(schema, names, is_of_log=readable.log_id is not None)
    decoders = Decoders(session, readable, names)
    fetching = Fetching(predicate, readable.schema.arrow)
    rows_given = 0
    try:
        opener = SliceOpener(session, readable, password, is_place_shown=shape.is_place_shown)
        for item, ledger in opener.open(slices):
            if readable.is_raw:
                rows = read_raw(ledger, item, readable.schema.arrow, fetching)
            elif readable.log_id is None:
                rows = read_ledger(ledger, item, decoders.of(item.range.schema_id), fetching)
            else:
                rows = read_log(ledger, item, decoders.of(item.range.schema_id), fetching)
            for found in rows:
                rows_given += found.batch.num_rows
                yield shape.batch(found, item, ledger, is_raw=readable.is_raw)
    finally:
        log_read(
            f"read task ended. of={readable.title} slices={len(slices)} "
            f"entries_fetched={fetching.entries_fetched} "
            f"entries_planned={fetching.entries_planned} rows={rows_given}"
        )


class _Shape:
    """Gives rows Spark's schema: stored columns cast, metadata columns made."""

    def __init__(self, schema: StructType, stored: list[str], *, is_of_log: bool) -> None:
        self._is_of_log = is_of_log
        self._target = arrow_schema(schema)
        self._stored = {name: at for at, name in enumerate(stored)}
        self._metadata_column = [name for name in self._target.names if name not in self._stored]
        self._origins: tuple[ReadHandle, Runs] | None = None
        """Of the ledger read last: they are in its metadata, and packed there."""

    @property
    def is_place_shown(self) -> bool:
        """Whether a column says in which ledger a row lies."""
        return not {"_ledger", "_entry"}.isdisjoint(self._metadata_column)

    def batch(self, rows: Rows, item: Slice, ledger: ReadHandle, *, is_raw: bool) -> pa.RecordBatch:
        """The rows in Spark's order and types."""
        if not self._metadata_column:
            return cast_batch(rows.batch, self._target)
        found = self._metadata_columns(rows, item, ledger, is_raw=is_raw)
        columns = []
        for field in self._target:
            if field.name in self._stored:
                column = rows.batch.column(self._stored[field.name])
            else:
                column = found[field.name]
            columns.append(cast_array(column, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _metadata_columns(
        self, rows: Rows, item: Slice, ledger: ReadHandle, *, is_raw: bool
    ) -> dict[str, pa.Array]:
        """Where the rows lie, and who wrote them when."""
        if self._origins is None or self._origins[0] is not ledger:
            known = item.range.rows if self._is_of_log else ANY_ROWS
            found = origins_of(item.range, rows.ledger_id, ledger.metadata, known)
            self._origins = ledger, found
        # Read by id, the ranges are made up: rows of entries count in their ledger, raw ones are entries.
        first = rows.position - item.range.first_row if self._is_of_log else rows.position
        if is_raw and not self._is_of_log:
            first = rows.entry_id
        count = rows.batch.num_rows
        runs = self._origins[1].between(first, first + count)
        counts = [run.rows for run in runs]
        shown_us = [run.shown_ms * 1000 if run.shown_ms else None for run in runs]
        at = np.repeat(np.arange(len(runs)), counts)
        return {
            "_ledger": _constant(rows.ledger_id, rows),
            "_entry": (_counting if is_raw else _constant)(rows.entry_id, rows),
            "_position": _counting(rows.position, rows),
            "_batch_id": pa.array([run.batch_id for run in runs], pa.int64()).take(at),
            "_query_id": pa.array([run.query_id for run in runs], pa.string()).take(at),
            # A ledger of Spark's that is read by id has no commit time here, and so no timestamp.
            "_timestamp": pa.array(shown_us, pa.timestamp("us", "UTC")).take(at),
        }


def _constant(value: int, rows: Rows) -> pa.Array:
    return pa.array(np.full(rows.batch.num_rows, value, np.int64))


def _counting(first: int, rows: Rows) -> pa.Array:
    return pa.array(np.arange(first, first + rows.batch.num_rows))
