"""The footer: the last entry of a ledger Spark wrote says which rows each entry holds.

One row per data entry: its first row and, for the first columns of a comparable type, minimum,
maximum and nulls. It is an aid: a ledger without one is scanned. Envelope of kind FOOTER (first row:
rows of the ledger, rows: data entries), then an Arrow IPC stream of one batch. Bounds are never
tighter than the values; an unknown one is null. Pure but for decoding.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from spark_bookkeeper.datasource.errors import PayloadCorruptError
from spark_bookkeeper.datasource.payload.arrow_guard import UnsafeMessageError, decode_message
from spark_bookkeeper.datasource.payload.entry_cutter import PAYLOAD_BYTES_MAX, CutEntry
from spark_bookkeeper.datasource.payload.envelope import (
    ENVELOPE_SIZE,
    EntryKind,
    Envelope,
    MalformedEnvelopeError,
    parse_envelope,
)
from spark_bookkeeper.log.format.columns import BOUND_BYTES_MAX, ColumnRange, Scalar

FOOTER_KEY = "sparkFooter"
"""Custom metadata of a ledger that may end in a footer: its format version."""
FOOTER_VERSION = b"1"


@dataclass(slots=True)
class _ColumnStats:
    """Bounds of one column, an item per entry; ``None`` bounds nothing."""

    position: int
    name: str
    arrow_type: pa.DataType
    minima: list[pa.Scalar | None]
    maxima: list[pa.Scalar | None]
    nulls: list[int]
    is_unknown: bool = False
    """Some entry has values but no bounds, so the whole ledger has none."""


class FooterBuilder:
    """Collects what the footer will say, entry by entry."""

    def __init__(self, schema: pa.Schema, columns_max: int) -> None:
        self._first_rows: list[int] = []
        self._rows = 0
        self._columns = [
            _ColumnStats(position, field.name, field.type, [], [], [])
            for position, field in enumerate(schema)
            if _is_comparable(field.type)
        ][:columns_max]

    def add(self, entry: CutEntry) -> None:
        """Note the next entry of the ledger."""
        self._first_rows.append(entry.first_row)
        self._rows = entry.first_row + entry.batch.num_rows
        for stats in self._columns:
            column = entry.batch.column(stats.position)
            minimum, maximum = _bounds(column)
            stats.minima.append(minimum)
            stats.maxima.append(maximum)
            stats.nulls.append(column.null_count)
            has_values = column.null_count < len(column)
            stats.is_unknown |= has_values and (minimum is None or maximum is None)

    def column_ranges(self) -> tuple[ColumnRange, ...]:
        """Bounds over all entries, as a commit records them for the whole range."""
        found = []
        for stats in self._columns:
            minimum = _extreme(_bound_array(stats.minima, stats.arrow_type), "min")
            maximum = _extreme(_bound_array(stats.maxima, stats.arrow_type), "max")
            if stats.is_unknown:
                minimum = maximum = None
            found.append(ColumnRange(stats.name, minimum, maximum, sum(stats.nulls)).bounded())
        return tuple(found)

    def encode(self, schema_id: int, time_ms: int) -> bytes | None:
        """The footer's payload; ``None`` when it would not fit into an entry."""
        columns = {"first_row": pa.array(self._first_rows, pa.int64())}
        for stats in self._columns:
            at = stats.position
            columns[f"min_{at}"] = _bound_array(stats.minima, stats.arrow_type)
            columns[f"max_{at}"] = _bound_array(stats.maxima, stats.arrow_type)
            columns[f"nulls_{at}"] = pa.array(stats.nulls, pa.int64())
        batch = pa.record_batch(columns)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        envelope = Envelope(EntryKind.FOOTER, schema_id, self._rows, len(self._first_rows), time_ms)
        payload = b"".join((envelope.encode(), memoryview(sink.getvalue())))
        return payload if len(payload) <= PAYLOAD_BYTES_MAX else None


@dataclass(frozen=True, slots=True)
class Footer:
    """What a ledger's data entries hold."""

    first_rows: list[int]
    """First row in the ledger of each data entry, ascending from 0."""
    rows: int
    """Rows of the ledger."""
    bounds: pa.RecordBatch
    """``min_<n>``, ``max_<n>``, ``nulls_<n>`` of column n of the ledger's schema."""

    def entries_of(self, first_row: int, end_row: int) -> tuple[int, int]:
        """First and last entry that hold rows ``first_row`` up to, not including, ``end_row``."""
        first = bisect_right(self.first_rows, first_row) - 1
        last = bisect_left(self.first_rows, end_row) - 1
        return max(0, first), max(first, last)


def parse_footer(ledger_id: int, entry_id: int, payload: bytes | memoryview) -> Footer | None:
    """The footer in a ledger's last entry; ``None`` when that entry is rows.

    Raises:
        PayloadCorruptError: it claims to be a footer and is none.
    """
    try:
        envelope = parse_envelope(payload)
        if envelope.kind is not EntryKind.FOOTER:
            return None
        stream = pa.ipc.MessageReader.open_stream(pa.py_buffer(payload).slice(ENVELOPE_SIZE))
        # As bytes: Arrow looks at the type of a message it reads there, and not of one it is given.
        schema = pa.ipc.read_schema(stream.read_next_message().serialize())
        _check_shape(schema, envelope.rows, entry_id)
        message = stream.read_next_message().serialize()
        batch = decode_message(message, schema, envelope.rows)
        first_rows = batch.column("first_row").to_pylist()
        _check_rows(first_rows, envelope.first_row)
    except (MalformedEnvelopeError, UnsafeMessageError) as error:
        raise PayloadCorruptError(ledger_id, entry_id, str(error)) from error
    except (pa.ArrowException, OSError, EOFError, StopIteration, TypeError, ValueError) as error:
        raise PayloadCorruptError(ledger_id, entry_id, f"not a footer: {error}") from error
    return Footer(first_rows, envelope.first_row, batch.drop_columns(["first_row"]))


def _check_shape(schema: pa.Schema, entries: int, entry_id: int) -> None:
    """Refuse a schema that no footer has: unlike that of rows, it comes from the entry itself."""
    if entries != entry_id:
        # As many as there are before it, so a few bytes cannot claim millions.
        raise ValueError(f"describes {entries} entries where {entry_id} lie before it")
    if not schema.names or schema.names[0] != "first_row" or schema.types[0] != pa.int64():
        raise ValueError("does not begin with first rows")
    if len(set(schema.names)) < len(schema.names):
        raise ValueError("a column stands twice")
    for field in schema:
        if not _is_comparable(field.type):
            raise ValueError(f"a column of type {field.type}")


def _check_rows(first_rows: list[int], rows: int) -> None:
    # Readers search these by bisection, and take rows of an entry from its neighbour.
    expected_first = first_rows[:1] in ([], [0])
    ascending = all(a < b for a, b in zip(first_rows, [*first_rows[1:], rows], strict=True))
    if not expected_first or not ascending:
        raise ValueError("first rows do not ascend from 0 to the ledger's rows")


def _is_comparable(of: pa.DataType) -> bool:
    return bool(
        types.is_integer(of)
        or types.is_floating(of)
        or types.is_decimal128(of)
        or types.is_date32(of)
        or types.is_timestamp(of)
        or types.is_string(of)
    )


def _bounds(column: pa.Array) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    """Minimum and maximum; unknown for floats with NaN, which Spark orders above all others."""
    if types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return None, None
    found = pc.min_max(column)
    return _kept(found["min"]), _kept(found["max"])


def _kept(bound: pa.Scalar) -> pa.Scalar | None:
    if not bound.is_valid:
        return None
    # Long texts would make the footer large; unknown is always a sound bound.
    if types.is_string(bound.type) and bound.as_buffer().size > BOUND_BYTES_MAX:
        return None
    return bound


def _bound_array(bounds: list[pa.Scalar | None], of: pa.DataType) -> pa.Array:
    null = pa.scalar(None, of)
    return pa.array([null if bound is None else bound for bound in bounds], of)


def as_python(bound: pa.Scalar) -> Scalar | None:
    """The bound as Python knows it; years it does not know, before 1 and after 9999, are unknown."""
    try:
        found: Scalar | None = bound.as_py()
    except (OverflowError, ValueError):
        return None
    return found


def _extreme(bounds: pa.Array, kernel: str) -> Scalar | None:
    """The least or greatest of the entries' bounds."""
    found = as_python(pc.call_function(kernel, [bounds]))
    # Infinity is where the order of floats ends anyway: as a bound it says nothing.
    return None if isinstance(found, float) and math.isinf(found) else found
