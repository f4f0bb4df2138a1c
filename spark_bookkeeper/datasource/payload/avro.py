"""Rows to ``avro`` payloads and back: an envelope, then the rows in Avro's binary, one by one.

The schema of the rows is in the custom metadata of every ledger, so that consumers outside Spark
read an entry with any Avro library: skip the envelope, then read rows to the end. ``compression``
does not apply. Python sees every value here, though in one call of fastavro per entry; ``arrow`` is
faster by far.

Bytes are never believed: every nullable value takes a byte at least, so the envelope's row count is
held against the size before anything is decoded, and the rows must end where the payload does.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.types as types

from spark_bookkeeper.datasource.errors import PayloadCorruptError
from spark_bookkeeper.datasource.payload.avro_schema import (
    Avro,
    avro_name,
    avro_schema_of,
    carrier_schema,
)
from spark_bookkeeper.datasource.payload.avro_values import reshaped
from spark_bookkeeper.datasource.payload.envelope import (
    ENVELOPE_SIZE,
    EntryKind,
    Envelope,
    MalformedEnvelopeError,
    parse_envelope,
)

_END_OF_ARRAY = b"\0"


class AvroEncoder:
    """Encodes record batches of one schema, one entry each."""

    def __init__(self, schema: pa.Schema, schema_id: int) -> None:
        self._schema_id = schema_id
        self._carrier = carrier_schema(schema)
        self._rows = _parsed(_array_of(_stored(avro_schema_of(schema))))

    def encode(self, batch: pa.RecordBatch, first_row: int, time_ms: int) -> bytes:
        """The payload of one entry. ``first_row`` counts in the ledger."""
        carriers = [
            _values(reshaped(column, field.type))
            for column, field in zip(batch.columns, self._carrier, strict=True)
        ]
        names = self._carrier.names
        rows = [dict(zip(names, values, strict=True)) for values in zip(*carriers, strict=True)]
        sink = io.BytesIO()
        # One call for all rows: an Avro array is its length, the items, and a zero behind them.
        fastavro.schemaless_writer(sink, self._rows, rows)
        body = sink.getvalue()[len(_long(len(rows))) : -len(_END_OF_ARRAY)] if rows else b""
        envelope = Envelope(EntryKind.AVRO, self._schema_id, first_row, batch.num_rows, time_ms)
        return b"".join((envelope.encode(), body))


class AvroDecoder:
    """Decodes entries of one schema; ``columns`` limits what becomes values, and orders it."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str] | None = None) -> None:
        wanted = schema if columns is None else pa.schema([schema.field(n) for n in set(columns)])
        self._names = list(schema.names if columns is None else columns)
        self._columns_stored = len(schema)
        self._carrier = carrier_schema(wanted)
        self._target = wanted
        record = _stored(avro_schema_of(schema))
        kept = {avro_name(name) for name in wanted.names}
        fields = [field for field in record["fields"] if field["name"] in kept]
        self._written = _parsed(_array_of(record))
        self._read = (
            None if len(wanted) == len(schema) else _parsed(_array_of({**record, "fields": fields}))
        )

    def decode(
        self, ledger_id: int, entry_id: int, payload: bytes | memoryview
    ) -> tuple[Envelope, pa.RecordBatch]:
        """The envelope and the rows.

        Raises:
            PayloadCorruptError: the bytes are not what the format says.
        """
        try:
            envelope = parse_envelope(payload)
            if envelope.kind is not EntryKind.AVRO:
                raise MalformedEnvelopeError(f"an entry of kind {envelope.kind.name} among rows")
            rows = self._rows(memoryview(payload)[ENVELOPE_SIZE:], envelope.rows)
            return envelope, self._batch(rows)
        except _MALFORMED as error:
            detail = str(error) or type(error).__name__
            raise PayloadCorruptError(ledger_id, entry_id, f"not Avro rows: {detail}") from error

    def _rows(self, body: memoryview, rows: int) -> list[Avro]:
        if rows * self._columns_stored > len(body):
            raise MalformedEnvelopeError(f"{len(body)} bytes cannot be {rows} rows")
        if rows == 0 or self._columns_stored == 0:
            if len(body):
                raise MalformedEnvelopeError(f"{len(body)} bytes behind no rows")
            return [{}] * rows
        # The array again that the encoder took apart, so that fastavro is called once for all rows.
        source = io.BytesIO(b"".join((_long(rows), body, _END_OF_ARRAY)))
        found: Any = fastavro.schemaless_reader(source, self._written, self._read)
        if len(found) != rows or source.read(1):
            raise MalformedEnvelopeError("rows end before the payload does")
        return list(found)

    def _batch(self, rows: list[Avro]) -> pa.RecordBatch:
        if not self._names:
            # Made with a column and left without: otherwise Arrow would not know how many rows
            # there are.
            return pa.RecordBatch.from_pylist([{"": None}] * len(rows)).select([])
        made = {}
        for stored, field in zip(self._carrier, self._target, strict=True):
            carried = pa.array([row[stored.name] for row in rows], stored.type)
            column = reshaped(carried, field.type)
            column.validate(full=True)
            made[field.name] = column
        return pa.RecordBatch.from_arrays(
            [made[name] for name in self._names],
            schema=pa.schema([self._target.field(name) for name in self._names]),
        )


_MALFORMED = (
    MalformedEnvelopeError,
    EOFError,
    ValueError,  # Arrow's errors too
    TypeError,
    LookupError,
    OverflowError,
    pa.ArrowException,
    fastavro.read.SchemaResolutionError,
)
"""What bytes that are no rows of the schema make fastavro and Arrow raise."""


def _values(column: pa.Array) -> list[Any]:
    """What fastavro writes; through numpy where that knows the values, eight times as fast."""
    of = column.type
    is_number = types.is_integer(of) or types.is_floating(of)
    if (is_number and not column.null_count) or types.is_string(of):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    return list(column.to_pylist(maps_as_pydicts="strict"))


def _stored(node: Any) -> Any:
    """The schema without logical types: what is stored is what they stand on."""
    if isinstance(node, dict):
        return {key: _stored(value) for key, value in node.items() if key != "logicalType"}
    return [_stored(item) for item in node] if isinstance(node, list) else node


def _array_of(record: Avro) -> Avro:
    return {"type": "array", "items": record}


def _parsed(schema: Avro) -> Any:
    return fastavro.parse_schema(schema)


def _long(value: int) -> bytes:
    """Avro's encoding of a count: zigzag, seven bits a byte, lowest first."""
    left, octets = value << 1, bytearray()
    while left > 0x7F:
        octets.append(left & 0x7F | 0x80)
        left >>= 7
    octets.append(left)
    return bytes(octets)
