"""What a read's task does, batch or stream: its slices' rows as Arrow batches of Spark's schema.

A task opens its ledgers a few ahead and decodes while the next entries are on their way. At its end
it logs how many entries it fetched of those its slices lie in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.blocking.read_handle import ReadHandle
from spark_bookkeeper.datasource.errors import source_errors
from spark_bookkeeper.datasource.options.model import ReadOptions
from spark_bookkeeper.datasource.read.decoders import Decoders
from spark_bookkeeper.datasource.read.partitions import Slice
from spark_bookkeeper.datasource.read.pruning import ALL_ROWS, Predicate
from spark_bookkeeper.datasource.read.readable import Readable
from spark_bookkeeper.datasource.read.slice_reader import (
    Fetching,
    Rows,
    read_ledger,
    read_log,
    read_raw,
)
from spark_bookkeeper.datasource.schema import arrow_schema, cast_array, cast_batch
from spark_bookkeeper.datasource.session import (
    BATCH_ID_KEY,
    PAYLOAD_KEY,
    QUERY_ID_KEY,
    Session,
    open_session,
)
from spark_bookkeeper.datasource.worker_logging import log_read

LEDGERS_OPENED_AHEAD = 4
"""Ledgers a task opens before it needs them: hides a metadata read per small ledger."""


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
    shape = _Shape(schema, names)
    decoders = Decoders(session, readable, names)
    fetching = Fetching(predicate, readable.schema.arrow)
    rows_given = 0
    try:
        for item, ledger in _open_slice(session, password, slices):
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


def _open_slice(
    session: Session, password: bytes, slices: tuple[Slice, ...]
) -> Iterator[tuple[Slice, ReadHandle]]:
    if len(slices) <= 1:
        for item in slices:
            yield item, session.client.open_ledger(item.ledger_id, password=password)
        return
    with ThreadPoolExecutor(LEDGERS_OPENED_AHEAD, "bookkeeper-open") as pool:
        ahead: deque[tuple[Slice, Future[ReadHandle]]] = deque()
        waiting = iter(slices)
        try:
            for item in waiting:
                opening = pool.submit(session.client.open_ledger, item.ledger_id, password=password)
                ahead.append((item, opening))
                if len(ahead) > LEDGERS_OPENED_AHEAD:
                    opened, future = ahead.popleft()
                    yield opened, future.result()
            while ahead:
                opened, future = ahead.popleft()
                yield opened, future.result()
        finally:
            # Spark may stop taking rows, for a LIMIT say. Leaving the pool would wait for ledgers
            # that nobody reads any more.
            for _, future in ahead:
                future.cancel()


class _Shape:
    """Gives rows Spark's schema: stored columns cast, metadata columns made."""

    def __init__(self, schema: StructType, stored: list[str]) -> None:
        self._target = arrow_schema(schema)
        self._stored = {name: at for at, name in enumerate(stored)}
        self._metadata_column = [name for name in self._target.names if name not in self._stored]

    def batch(self, rows: Rows, item: Slice, ledger: ReadHandle, *, is_raw: bool) -> pa.RecordBatch:
        """The rows in Spark's order and types."""
        if not self._metadata_column:
            return cast_batch(rows.batch, self._target)
        columns = []
        for field in self._target:
            if field.name in self._stored:
                column = rows.batch.column(self._stored[field.name])
            else:
                column = _metadata_column(field, rows, item, ledger, is_raw=is_raw)
            columns.append(cast_array(column, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._target)


def _metadata_column(
    field: pa.Field, rows: Rows, item: Slice, ledger: ReadHandle, *, is_raw: bool
) -> pa.Array:
    """A metadata column: where the rows lie, and who wrote them when."""
    custom = ledger.metadata.custom_metadata
    match field.name:
        case "_ledger":
            return _constant(rows.ledger_id, rows, pa.int64())
        case "_entry" if is_raw:
            return _counting(rows.entry_id, rows)
        case "_entry":
            return _constant(rows.entry_id, rows, pa.int64())
        case "_position":
            return _counting(rows.position, rows)
        case "_batch_id" if BATCH_ID_KEY in custom:
            return _constant(_batch_id(rows.ledger_id, custom[BATCH_ID_KEY]), rows, pa.int64())
        case "_query_id" if QUERY_ID_KEY in custom:
            query_id = custom[QUERY_ID_KEY].decode(errors="replace")
            return pa.repeat(pa.scalar(query_id), rows.batch.num_rows)
        # A ledger of Spark's that is read by id has no commit time here, and so no timestamp.
        case "_timestamp" if time_ms := _time_ms(item, ledger.metadata):
            return _constant(time_ms * 1000, rows, pa.timestamp("us", "UTC"))
        case _:
            return pa.nulls(rows.batch.num_rows, field.type)


def _time_ms(item: Slice, metadata: LedgerMetadata) -> int:
    """When the rows were committed by Spark, or, written outside Spark, when their ledger began.

    Rows written outside Spark are read before their ledger ends, and a batch that is read again
    after that must have the very same rows, so what counts is what is known from the first on.
    """
    if PAYLOAD_KEY in metadata.custom_metadata or metadata.created_ms < 0:
        return item.range.commit_ms
    return metadata.created_ms


def _batch_id(ledger_id: int, mark: bytes) -> int:
    try:
        return int(mark)
    except ValueError as error:
        raise MetadataCorruptError(
            f"ledger {ledger_id}", f"custom metadata {BATCH_ID_KEY} is no number: {mark[:40]!r}"
        ) from error


def _constant(value: int, rows: Rows, of: pa.DataType) -> pa.Array:
    return pa.array(np.full(rows.batch.num_rows, value)).cast(of)


def _counting(first: int, rows: Rows) -> pa.Array:
    return pa.array(np.arange(first, first + rows.batch.num_rows))
