"""No ledger's content crashes or floods a reader: it decodes to the rows written, or is refused."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest

from spark_bookkeeper.datasource.errors import PayloadCorruptError
from spark_bookkeeper.datasource.payload.arrow import ArrowDecoder, ArrowEncoder
from spark_bookkeeper.datasource.payload.arrow_guard import DECODED_BYTES_MAX
from spark_bookkeeper.datasource.payload.envelope import ENVELOPE_SIZE
from tests.spark_bookkeeper.datasource.rows import everything


def payload_of(batch: pa.RecordBatch, compression: str = "zstd") -> bytes:
    return ArrowEncoder(batch.schema, 0, compression).encode(batch, 0, 0)


def test_a_bomb_is_refused_before_it_unfolds() -> None:
    zeros = pa.record_batch({"x": pa.array([bytes(DECODED_BYTES_MAX // 2)] * 2 + [b"x" * 4096])})
    payload = payload_of(zeros)
    assert len(payload) < 1 << 20
    held = pa.total_allocated_bytes()
    peak = pa.default_memory_pool()

    with pytest.raises(PayloadCorruptError, match="decodes to 2684"):
        ArrowDecoder(zeros.schema).decode(3, 4, payload)

    assert pa.total_allocated_bytes() <= held
    assert peak.bytes_allocated() <= held


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


def test_text_that_is_no_utf8_is_refused() -> None:
    batch = pa.record_batch({"x": pa.array(["abcdefgh"] * 3)})
    payload = payload_of(batch, "none").replace(b"abcdefgh", b"\xff\xfe\xfd\xfc\xff\xff\xff\xff")

    with pytest.raises(PayloadCorruptError, match="not a valid Arrow record batch"):
        ArrowDecoder(batch.schema).decode(1, 1, payload)


def test_another_schema_is_refused() -> None:
    payload = payload_of(pa.record_batch({"x": pa.array([1, 2, 3])}))

    with pytest.raises(PayloadCorruptError):
        ArrowDecoder(pa.schema([("x", pa.string()), ("y", pa.int64())])).decode(1, 1, payload)


def test_an_entry_that_is_not_ours_is_refused_by_its_place() -> None:
    with pytest.raises(PayloadCorruptError, match="ledger_id=12 entry_id=34"):
        ArrowDecoder(pa.schema([("x", pa.int64())])).decode(12, 34, b"any other entry" * 10)


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
@pytest.mark.parametrize("columns", [None, ["text", "nested", "pairs"]])
def test_damaged_entries_never_crash_the_reader(
    compression: str, columns: list[str] | None
) -> None:
    draw = random.Random(f"{compression}{columns}")
    batch = everything(60)
    payload = payload_of(batch, compression)
    decoder = ArrowDecoder(batch.schema, columns)
    refused = 0

    for _ in range(4_000):
        damaged = bytearray(payload)
        for _ in range(draw.randint(1, 4)):
            # Most of the harm is in the metadata: half of the damage goes there.
            end = len(damaged) if draw.random() < 0.5 else min(2_500, len(damaged))
            at = draw.randrange(ENVELOPE_SIZE, end)
            damaged[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        cut = draw.randrange(len(damaged)) if draw.random() < 0.1 else len(damaged)
        try:
            decoded = decoder.decode(1, 1, bytes(damaged[:cut]))[1]
        except PayloadCorruptError:
            refused += 1
        else:
            # Copies every value, as handing it to Spark does.
            assert decoded.take(pa.array(range(60))).num_rows == 60

    assert refused > 1_000
