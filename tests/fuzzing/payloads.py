"""Decoders of what entries of a log hold: envelopes, Arrow and Avro rows, footers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pyarrow as pa

from spark_bookkeeper.datasource.errors import PayloadCorruptError
from spark_bookkeeper.datasource.payload import arrow_guard
from spark_bookkeeper.datasource.payload.arrow import ArrowDecoder, ArrowEncoder
from spark_bookkeeper.datasource.payload.avro import AvroDecoder, AvroEncoder
from spark_bookkeeper.datasource.payload.entry_cutter import CutEntry
from spark_bookkeeper.datasource.payload.envelope import (
    ENVELOPE_SIZE,
    MalformedEnvelopeError,
    parse_envelope,
)
from spark_bookkeeper.datasource.payload.footer import FooterBuilder, parse_footer
from tests.fuzzing.decoder import Bound, Decoder
from tests.sources import REPOSITORY

_AT = "spark_bookkeeper.datasource.payload"
_GOLDEN = REPOSITORY / "tests" / "golden" / "v1" / "payload"
_ENTRIES = 3
"""Of the ledger whose footer it is."""
_ROOM = Bound(2 * arrow_guard.DECODED_BYTES_MAX, 1_024)
"""What an entry decodes to is bounded, and not by its size."""


@cache
def _batch() -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": pa.array([1, None, 3], pa.int64()),
            "name": pa.array(["a", "bcd", None]),
            "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
            "of": pa.array([{"n": 1, "f": 0.5}, None, {"n": None, "f": -1.0}]),
            "counts": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "nothing": pa.nulls(3),
        }
    )


def _arrow() -> list[bytes]:
    made = [
        ArrowEncoder(_batch().schema, 0, kind).encode(_batch(), 0, 5)
        for kind in ("none", "lz4", "zstd")
    ]
    return [*made, ArrowEncoder(_batch().schema, 0, "zstd").encode(_batch().slice(0, 0), 9, 5)]


def _avro() -> list[bytes]:
    encoder = AvroEncoder(_batch().schema, 0)
    return [encoder.encode(batch, 0, 5) for batch in (_batch(), _batch().slice(0, 0))]


def _footers() -> list[bytes]:
    builder = FooterBuilder(_batch().schema, 8)
    for at in range(_ENTRIES):
        builder.add(CutEntry(b"", _batch(), at * 3))
    footer = builder.encode(0, 5)
    return [footer] if footer else []


@cache
def _decoder(kind: str) -> ArrowDecoder | AvroDecoder:
    schema = _batch().schema
    columns = ["tags", "id"] if kind.endswith("columns") else None
    if kind.startswith("avro"):
        return AvroDecoder(schema, columns)
    return ArrowDecoder(schema, columns)


def _rows(kind: str, content: bytes) -> object:
    return _decoder(kind).decode(3, 4, content)


def _message(content: bytes) -> pa.RecordBatch:
    """The guard by itself, without an envelope that could refuse."""
    return arrow_guard.decode_message(pa.py_buffer(content), _batch().schema, _batch().num_rows)


def _columns(content: bytes) -> pa.RecordBatch:
    schema = _batch().schema
    return arrow_guard.decode_columns(
        schema.serialize().to_pybytes(), pa.py_buffer(content), [0, 2], _batch().num_rows
    )


def _messages() -> list[bytes]:
    return [payload[ENVELOPE_SIZE:] for payload in _arrow()[:3]]


_Row = Callable[..., Decoder]
_payload: _Row = partial(Decoder, errors=(PayloadCorruptError,), memory=_ROOM)

DECODERS: tuple[Decoder, ...] = (
    Decoder(
        name="envelope",
        decode=parse_envelope,
        encode=lambda found: found.encode(),
        errors=(MalformedEnvelopeError,),
        seeds=lambda: [payload[:ENVELOPE_SIZE] for payload in (*_arrow(), *_footers())],
        covers=(f"{_AT}.envelope.parse_envelope",),
    ),
    _payload(
        name="arrow-rows",
        decode=partial(_rows, "arrow"),
        seeds=_arrow,
        covers=(f"{_AT}.arrow.ArrowDecoder.decode",),
    ),
    _payload(
        name="arrow-columns",
        decode=partial(_rows, "arrow columns"),
        seeds=_arrow,
        covers=(f"{_AT}.arrow.ArrowDecoder.decode",),
    ),
    _payload(
        name="arrow-message",
        decode=_message,
        errors=(arrow_guard.UnsafeMessageError,),
        seeds=_messages,
        covers=(f"{_AT}.arrow_guard.decode_message", f"{_AT}.arrow_guard.check_message"),
    ),
    _payload(
        name="arrow-message-columns",
        decode=_columns,
        errors=(arrow_guard.UnsafeMessageError,),
        seeds=_messages,
        covers=(f"{_AT}.arrow_guard.decode_columns",),
    ),
    _payload(
        name="avro-rows",
        decode=partial(_rows, "avro"),
        seeds=_avro,
        covers=(f"{_AT}.avro.AvroDecoder.decode",),
        steps=Bound(20_000, 100),
    ),
    _payload(
        name="avro-columns",
        decode=partial(_rows, "avro columns"),
        seeds=_avro,
        covers=(f"{_AT}.avro.AvroDecoder.decode",),
        steps=Bound(20_000, 100),
    ),
    _payload(
        name="footer",
        decode=lambda content: parse_footer(7, _ENTRIES, content),
        seeds=lambda: [*_footers(), *_arrow()[:1]],
        covers=(f"{_AT}.footer.parse_footer",),
        steps=Bound(4_000, 32),
    ),
)
