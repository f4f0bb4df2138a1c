"""Rows to ``arrow`` payloads and back: an envelope, then one Arrow message.

The message is an encapsulated Arrow IPC record batch without its schema, which the log keeps once.
No per-row Python. Cutting rows into entries is ``entry_cutter``'s; reading the clock is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_bookkeeper.datasource.errors import PayloadCorruptError
from spark_bookkeeper.datasource.payload.arrow_guard import (
    UnsafeMessageError,
    decode_columns,
    decode_message,
)
from spark_bookkeeper.datasource.payload.envelope import (
    ENVELOPE_SIZE,
    EntryKind,
    Envelope,
    MalformedEnvelopeError,
    parse_envelope,
)


class ArrowEncoder:
    """Encodes record batches of one schema, one entry each."""

    def __init__(self, schema: pa.Schema, schema_id: int, compression: str) -> None:
        self._schema = schema
        self._schema_id = schema_id
        # A Spark task owns one core: compressing on Arrow's pool would take its neighbours'.
        self._options = pa.ipc.IpcWriteOptions(
            compression=None if compression == "none" else compression, use_threads=False
        )
        self._schema_size = len(schema.serialize())

    def encode(self, batch: pa.RecordBatch, first_row: int, time_ms: int) -> bytes:
        """The payload of one entry. ``first_row`` counts in the ledger."""
        sink = pa.BufferOutputStream()
        writer = pa.ipc.new_stream(sink, self._schema, options=self._options)
        # Never closed: that would put an end-of-stream mark behind the only message that is kept.
        writer.write_batch(batch)
        # The stream begins with the schema's message, always of the same size; the batch follows.
        message = memoryview(sink.getvalue())[self._schema_size :]
        envelope = Envelope(EntryKind.ARROW, self._schema_id, first_row, batch.num_rows, time_ms)
        return b"".join((envelope.encode(), message))


class ArrowDecoder:
    """Decodes entries of one schema; ``columns`` limits what is decompressed, and orders it."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str] | None = None) -> None:
        self._schema = schema
        self._names = list(schema.names if columns is None else columns)
        wanted = sorted({schema.get_field_index(name) for name in self._names})
        # All columns, in whatever order, are decoded whole: picking some copies the message.
        self._wanted = wanted if len(wanted) < len(schema) else None
        self._schema_message = schema.serialize().to_pybytes()

    def decode(
        self, ledger_id: int, entry_id: int, payload: bytes | memoryview
    ) -> tuple[Envelope, pa.RecordBatch]:
        """The envelope and the rows; the batch may share the payload's memory.

        Raises:
            PayloadCorruptError: the bytes are not what the format says.
        """
        try:
            envelope = parse_envelope(payload)
            if envelope.kind is not EntryKind.ARROW:
                raise MalformedEnvelopeError(f"an entry of kind {envelope.kind.name} among rows")
            message = pa.py_buffer(payload).slice(ENVELOPE_SIZE)
            return envelope, self._batch(message, envelope.rows)
        except (MalformedEnvelopeError, UnsafeMessageError) as error:
            raise PayloadCorruptError(ledger_id, entry_id, str(error)) from error

    def _batch(self, message: pa.Buffer, rows: int) -> pa.RecordBatch:
        if self._wanted is None:
            batch = decode_message(message, self._schema, rows)
        elif self._wanted:
            batch = decode_columns(self._schema_message, message, self._wanted, rows)
        else:  # no columns, as for a count: the rows still have to be there
            batch = decode_message(message, self._schema, rows).select([])
        return batch if batch.schema.names == self._names else batch.select(self._names)
