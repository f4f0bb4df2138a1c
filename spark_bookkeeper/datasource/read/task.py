"""What a read's task does, batch or stream: its slices' rows as Arrow batches of Spark's schema.

A task opens its ledgers a few ahead and decodes while the next entries are on their way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from metadata.errors import BookKeeperError
from spark_bookkeeper.datasource.errors import report
from spark_bookkeeper.datasource.options.model import ReadOptions
from spark_bookkeeper.datasource.read.decoders import Decoders
from spark_bookkeeper.datasource.read.partitions import Slice
from spark_bookkeeper.datasource.read.readable import Readable
from spark_bookkeeper.datasource.read.slice_reader import Rows, read_ledger, read_log, read_raw
from spark_bookkeeper.datasource.schema import arrow_schema, cast_batch
from spark_bookkeeper.datasource.session import LedgerReader, Session, open_session

LEDGERS_OPENED_AHEAD = 4
"""Ledgers a task opens before it needs them: hides a metadata read per small ledger."""


class ReadPartition(InputPartition):  # type: ignore[misc, unused-ignore]
    """What one task reads, in order; may be nothing."""

    def __init__(self, slices: tuple[Slice, ...]) -> None:
        super().__init__(None)
        self.slices = slices

    def __repr__(self) -> str:
        return f"ReadPartition({', '.join(str(item.ledger_id) for item in self.slices)})"


def run_task(
    options: ReadOptions, readable: Readable, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The partition's rows, cast to exactly the schema; errors are reported ones."""
    assert isinstance(partition, ReadPartition)
    try:
        yield from read_slices(open_session(options), options, readable, schema, partition.slices)
    except BookKeeperError as error:
        raise report(error) from error


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
    decoders = Decoders(session, readable, names)
    for item, ledger in _opened(session, password, slices):
        if readable.is_raw:
            rows = read_raw(ledger, item, readable.schema.arrow)
        elif readable.log_id is None:
            rows = read_ledger(ledger, item, decoders.of(item.range.schema_id))
        else:
            rows = read_log(ledger, item, decoders.of(item.range.schema_id))
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
