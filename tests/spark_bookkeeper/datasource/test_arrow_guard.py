"""No ledger's content crashes or floods a reader: it decodes to the rows written, or is refused."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from spark_bookkeeper.datasource.errors import PayloadCorruptError
from spark_bookkeeper.datasource.payload.arrow import ArrowDecoder
from spark_bookkeeper.datasource.payload.arrow_guard import DECODED_BYTES_MAX
from tests.spark_bookkeeper.datasource.rows import everything, payload_of


def test_a_bomb_is_refused_before_it_unfolds() -> None:
    zeros = pa.record_batch({"x": pa.array([bytes(DECODED_BYTES_MAX // 2)] * 2 + [b"x" * 4096])})
    payload = payload_of(zeros)
    assert len(payload) < 1 << 20
    held = pa.total_allocated_bytes()

    with pytest.raises(PayloadCorruptError, match="decodes to 2684"):
        ArrowDecoder(zeros.schema).decode(3, 4, payload)

    assert pa.total_allocated_bytes() <= held


def test_lengths_that_would_wrap_around_are_refused() -> None:
    batch = pa.record_batch({"x": pa.array(list(range(1000))), "y": pa.array(list(range(1000)))})
    payload = payload_of(batch)
    true_length = struct.pack("<q", 8000)
    assert payload.count(true_length) >= 2
    forged = payload.replace(true_length, struct.pack("<q", (1 << 63) - 1))

    with pytest.raises(PayloadCorruptError, match="decodes to 9223372036854775807"):
        ArrowDecoder(batch.schema).decode(1, 1, forged)


def test_other_rows_than_the_envelope_says_are_refused() -> None:
    batch = everything(10)
    payload = bytearray(payload_of(batch))
    payload[20:24] = struct.pack(">I", 11)

    with pytest.raises(PayloadCorruptError, match="10 rows where the envelope says 11"):
        ArrowDecoder(batch.schema).decode(1, 1, bytes(payload))


TEXTS = pa.record_batch({"x": ["abcdefgh"] * 3})


@pytest.mark.parametrize(
    ("schema", "payload", "message"),
    [
        # Texts that are no UTF-8.
        (TEXTS.schema, payload_of(TEXTS, "none").replace(b"abcdefgh", b"\xff\xfe\xfd\xfc" * 2),
         "not a valid Arrow record batch"),
        (pa.schema([("x", pa.string()), ("y", pa.int64())]),
         payload_of(pa.record_batch({"x": [1, 2, 3]})), "not a valid Arrow record batch"),
        (TEXTS.schema, b"any other entry" * 10, "not written by this connector"),
    ],
)  # fmt: skip
def test_what_holds_no_rows_of_the_schema_is_refused_by_its_place(
    schema: pa.Schema, payload: bytes, message: str
) -> None:
    with pytest.raises(PayloadCorruptError, match=f"{message}.*ledger_id=12 entry_id=34"):
        ArrowDecoder(schema).decode(12, 34, payload)
