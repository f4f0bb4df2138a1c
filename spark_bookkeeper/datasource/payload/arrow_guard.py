"""Checks an Arrow message before anything of it is decompressed or believed.

Arrow decodes what a message declares: 8 KiB can unfold to 256 MiB, and bad offsets crash the
process. So the declared uncompressed size of every buffer is added up first, against a bound. Nulls
and structs without fields have no buffers, and a list of 50 million of them has 250 bytes: so the
elements of lists and maps are counted too, each as a byte at least. Whatever was decoded is validated
in full (1 ms per 24,000 ``lineitem`` rows). A crash of a Spark worker by a ledger's content is a defect
here. Never allocates by a number it read.

Messages of Arrow before 1.0 are refused: those may be compressed without saying so where it is looked for here.

Source: Arrow ``Message.fbs``, ``Schema.fbs`` and ``reader.cc`` (``GetCompressionExperimental``); a compressed buffer starts with its uncompressed length, int64
little-endian, -1 for "stored as is".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

DECODED_BYTES_MAX = 256 << 20
"""Largest decoded entry. The writer stays below 16 MiB unless a single row is larger."""
BUFFERS_MAX = 1 << 18
"""Buffers, and columns at all depths, one message may have: 2,000 nested columns have some 10,000."""
ROWS_MAX = 1 << 21
"""Rows one message may have; the writer stays below half of it."""

_RECORD_BATCH = 3
_VERSION = 4
"""``MetadataVersion.V5``, that of every Arrow since 1.0."""
_INT32, _INT64 = struct.Struct("<i"), struct.Struct("<q")
_INT16, _UINT16 = struct.Struct("<h"), struct.Struct("<H")


Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""Pairs of numbers."""


class UnsafeMessageError(ValueError):
    """A message that may not be decoded."""


def decode_message(message: pa.Buffer, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """The record batch of an encapsulated message, after its guards and fully validated.

    Raises:
        UnsafeMessageError: not a record batch of ``rows`` rows of this schema within the bounds.
    """
    check_message(message, rows)
    try:
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnsafeMessageError(f"not a valid Arrow record batch: {error}") from error
    return batch


def decode_columns(
    schema_message: bytes, message: pa.Buffer, columns: list[int], rows: int
) -> pa.RecordBatch:
    """Only the top-level columns at these positions, in the schema's order; the same guards.

    Raises:
        UnsafeMessageError: as :func:`decode_message`.
    """
    check_message(message, rows)
    try:
        # pyarrow prunes columns only while reading streams, so the message is made one: copying
        # its compressed bytes costs less than decompressing one more column.
        stream = pa.ipc.open_stream(
            b"".join((schema_message, memoryview(message))),
            options=pa.ipc.IpcReadOptions(included_fields=columns),
        )
        batch = stream.read_next_batch()
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, StopIteration) as error:
        raise UnsafeMessageError(f"not a valid Arrow record batch: {error}") from error
    return batch


def check_message(message: pa.Buffer, rows: int) -> None:
    """Refuse what is no record batch of ``rows`` rows, or would decode to too much.

    Raises:
        UnsafeMessageError: with the reason.
    """
    try:
        # Arrow verifies the flatbuffer here, so its offsets may be followed below.
        parsed = pa.ipc.read_message(message)
        metadata, body = parsed.metadata, parsed.body
        if parsed.type != "record batch":
            raise UnsafeMessageError(f"an Arrow message of type {parsed.type}, not a record batch")
        batch = _record_batch(memoryview(metadata))
        declared, size_bytes = _declared(batch, body)
        elements = _nested_elements(batch, declared)
    except (pa.ArrowException, OSError, EOFError, struct.error, ValueError, IndexError) as error:
        if isinstance(error, UnsafeMessageError):
            raise
        raise UnsafeMessageError(f"not an Arrow message: {error}") from error
    if declared != rows:
        raise UnsafeMessageError(f"{declared} rows where the envelope says {rows}")
    if rows > ROWS_MAX:
        raise UnsafeMessageError(f"{rows} rows, more than {ROWS_MAX}")
    if size_bytes > DECODED_BYTES_MAX:
        raise UnsafeMessageError(f"decodes to {size_bytes} bytes, more than {DECODED_BYTES_MAX}")
    if elements > DECODED_BYTES_MAX:
        raise UnsafeMessageError(f"{elements} nested elements, more than {DECODED_BYTES_MAX}")


@dataclass(frozen=True, slots=True)
class _RecordBatch:
    """The table of that name in a message's metadata."""

    metadata: memoryview
    at: int

    def vector(self, field: int) -> Table:
        """A vector of pairs of int64; empty when it is left out."""
        at = _field(self.metadata, self.at, field)
        if not at:
            return np.empty((0, 2), "<i8")
        vector = at + _INT32.unpack_from(self.metadata, at)[0]
        count = _INT32.unpack_from(self.metadata, vector)[0]
        if not 0 <= count <= BUFFERS_MAX:
            raise UnsafeMessageError(f"{count} buffers or columns, more than {BUFFERS_MAX}")
        return np.frombuffer(self.metadata, "<i8", 2 * count, vector + 4).reshape(count, 2)


def _record_batch(metadata: memoryview) -> _RecordBatch:
    # Fields by their numbers in Message.fbs. Of Message: 0 version, 1 the header's type, 2 the header.
    # Of RecordBatch: 0 length, 1 nodes, 2 buffers, 3 compression.
    root = _INT32.unpack_from(metadata, 0)[0]
    version_at = _field(metadata, root, 0)
    version = _INT16.unpack_from(metadata, version_at)[0] if version_at else 0
    if version != _VERSION:
        raise UnsafeMessageError(f"version {version} of Arrow's messages, not {_VERSION}")
    if metadata[_field(metadata, root, 1)] != _RECORD_BATCH:
        raise UnsafeMessageError("not a record batch")
    at = _field(metadata, root, 2)
    return _RecordBatch(metadata, at + _INT32.unpack_from(metadata, at)[0])


def _nested_elements(batch: _RecordBatch, rows: int) -> int:
    """How many more elements than rows the columns claim to have, at all depths."""
    lengths = batch.vector(1)[:, 0]
    if (lengths < 0).any():
        raise UnsafeMessageError("a column of negative length")
    # As in :func:`_uncompressed`: a sum must not wrap around.
    if (lengths > DECODED_BYTES_MAX + rows).any():
        return int(lengths.max()) - rows
    return int(np.maximum(lengths - rows, 0).sum())


def _declared(batch: _RecordBatch, body: pa.Buffer | None) -> tuple[int, int]:
    """Rows the batch claims, and bytes its buffers claim to decode to."""
    length = _field(batch.metadata, batch.at, 0)
    rows = _INT64.unpack_from(batch.metadata, length)[0] if length else 0
    table = batch.vector(2)
    starts, sizes = table[:, 0], table[:, 1]
    body_size = body.size if body is not None else 0
    # Compared by a difference: the sum of two numbers that anybody wrote could wrap around.
    if (starts < 0).any() or (sizes < 0).any() or (starts > body_size - sizes).any():
        raise UnsafeMessageError("a buffer lies outside the message")
    if not _field(batch.metadata, batch.at, 3):
        return rows, int(sizes.sum())
    return rows, _uncompressed(body, starts, sizes)


def _uncompressed(
    body: pa.Buffer | None,
    starts: np.ndarray[tuple[int], np.dtype[np.int64]],
    sizes: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> int:
    filled = sizes > 0
    if body is None or not filled.any():
        return 0
    if (sizes[filled] < 8).any():
        raise UnsafeMessageError("a compressed buffer without its length")
    octets = np.frombuffer(body, np.uint8)
    prefixes = octets[starts[filled][:, None] + np.arange(8)]
    lengths = np.ascontiguousarray(prefixes).view("<i8")[:, 0]
    if (lengths < -1).any():
        raise UnsafeMessageError("a compressed buffer of negative length")
    # Added as Python integers where it matters: 2^18 lengths of 2^63 must not wrap around.
    if (lengths > DECODED_BYTES_MAX).any():
        return int(lengths.max())
    return int(np.where(lengths < 0, sizes[filled], lengths).sum())


def _field(metadata: memoryview, table: int, index: int) -> int:
    """Where field ``index`` of a flatbuffer table lies; 0 when it is left out."""
    # A vtable ends with the last field that was set; fields behind its end have their defaults.
    vtable = table - _INT32.unpack_from(metadata, table)[0]
    if 4 + 2 * index >= _UINT16.unpack_from(metadata, vtable)[0]:
        return 0
    offset = _UINT16.unpack_from(metadata, vtable + 4 + 2 * index)[0]
    return table + offset if offset else 0
