"""Avro payloads: every type, readable with any Avro library, refused where the bytes are none."""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from spark_bookkeeper.datasource.errors import PayloadCorruptError
from spark_bookkeeper.datasource.payload.avro import AvroDecoder, AvroEncoder
from spark_bookkeeper.datasource.payload.avro_schema import (
    AVRO_SCHEMA_KEY,
    avro_json,
    avro_name,
    avro_schema_of,
    decimal_width,
)
from spark_bookkeeper.datasource.payload.envelope import (
    ENVELOPE_SIZE,
    ROWS_MAX,
    EntryKind,
    Envelope,
)
from tests.spark_bookkeeper.datasource.rows import SCHEMA, everything
from tests.spark_bookkeeper.datasource.world import FakeSpark


def payload_of(batch: pa.RecordBatch) -> bytes:
    return AvroEncoder(batch.schema, 0).encode(batch, 0, 0)


def survived(batch: pa.RecordBatch) -> pa.RecordBatch:
    return AvroDecoder(batch.schema).decode(1, 0, memoryview(payload_of(batch)))[1]


def rows_outside_spark(payload: bytes, schema: bytes) -> list[object]:
    """What a consumer sees who has fastavro and the ledger's custom metadata."""
    parsed = fastavro.parse_schema(json.loads(schema))
    source, found = io.BytesIO(payload[ENVELOPE_SIZE:]), []
    while source.tell() < len(payload) - ENVELOPE_SIZE:
        found.append(fastavro.schemaless_reader(source, parsed, None))
    return list(found)


def test_a_slice_of_a_batch_is_encoded_as_just_its_rows() -> None:
    batch = everything(300)

    assert survived(batch.slice(7, 100)).equals(batch.slice(7, 100))


def test_values_beyond_pythons_own_survive() -> None:
    far = [-(2**63), 2**63 - 1, None]
    batch = pa.record_batch(
        {
            "day": pa.array([-(2**31), 2**31 - 1, None], pa.int32()).view(pa.date32()),
            "at": pa.array(far, pa.int64()).view(pa.timestamp("us", "UTC")),
            "local": pa.array(far, pa.int64()).view(pa.timestamp("us")),
            "span": pa.array(far, pa.int64()).view(pa.duration("us")),
            "clock": pa.array([0, 86_399_999_999_999, None], pa.int64()).view(pa.time64("ns")),
            "price": pa.array([Decimal(-(10**38) + 1), Decimal(10**38 - 1), None], pa.decimal128(38, 0)),
            "float": pa.array([float("-inf"), 1.5, None], pa.float32()),
        }
    )  # fmt: skip

    assert survived(batch).equals(batch)


@pytest.mark.parametrize("precision", range(1, 39))
def test_decimals_of_every_precision_survive(precision: int) -> None:
    most = 10**precision - 1
    values = [Decimal(most), Decimal(-most), Decimal(0), Decimal(-1), None]
    batch = pa.record_batch({"d": pa.array(values, pa.decimal128(precision, 0))})

    assert survived(batch).equals(batch)
    assert 2 ** (8 * decimal_width(precision) - 1) > most


def test_any_avro_library_reads_the_rows_by_the_ledgers_metadata(world: FakeSpark) -> None:
    rows = pa.record_batch({"id": [1, 2], "name": ["one", None]})
    world.write([[rows]], SCHEMA, payloadformat="avro")
    (ledger,) = world.client.ledgers.values()

    found = rows_outside_spark(ledger.payloads[0], ledger.metadata.custom_metadata[AVRO_SCHEMA_KEY])

    assert found == [{"id": 1, "name": "one"}, {"id": 2, "name": None}]


def test_logical_types_mean_the_same_outside_spark() -> None:
    batch = everything(50).drop_columns(["nothing"])

    found = rows_outside_spark(payload_of(batch), avro_json(batch.schema))

    assert found == batch.to_pylist(maps_as_pydicts="strict")


def test_names_avro_forbids_are_escaped_and_kept() -> None:
    names = ["a b", "a_b", "é", "1x", "_u20_", "a_u20_b", "", "x.y", "A", "a"]
    batch = pa.record_batch([pa.array([n]) for n in range(len(names))], names)

    record = avro_schema_of(batch.schema)

    assert survived(batch).equals(batch)
    fastavro.parse_schema(record)
    assert len({field["name"] for field in record["fields"]}) == len(names)
    assert [field.get("sparkName", field["name"]) for field in record["fields"]] == names
    assert avro_name("plain_Name1") == "plain_Name1"


def test_a_log_of_avro_rows_is_read_like_any_other(world: FakeSpark) -> None:
    batch = everything(4_000)
    world.write(
        [[batch.slice(0, 1_000)], [batch.slice(1_000)]],
        from_arrow_schema(batch.schema),
        payloadformat="avro",
        entrybytes="16k",
    )

    found = world.read()
    middle = world.read(startingoffsets='{"row":990}', endingoffsets='{"row":1010}')
    one = world.read(columns="text", includemetadata="true")
    by_id = world.read(ledger="0,1")

    assert len(world.client.ledgers[1].payloads) > 10
    assert found.combine_chunks().to_batches()[0].equals(batch)
    assert middle.combine_chunks().to_batches()[0].equals(batch.slice(990, 20))
    assert one.column("text").combine_chunks().equals(batch.column("text"))
    assert by_id.num_rows == 4_000


def test_rows_that_the_bytes_cannot_hold_are_refused_before_they_are_made() -> None:
    batch = everything(20)
    payload = bytearray(payload_of(batch))
    for rows in (ROWS_MAX, 21, 19, 0):
        payload[20:24] = struct.pack(">I", rows)

        with pytest.raises(PayloadCorruptError, match="ledger_id=3 entry_id=4"):
            AvroDecoder(batch.schema).decode(3, 4, bytes(payload))


def test_counts_and_lengths_that_bytes_cannot_hold_are_refused() -> None:
    schema = pa.schema([("list", pa.list_(pa.null())), ("text", pa.string())])
    envelope = Envelope(EntryKind.AVRO, 0, 0, 1, 0).encode()
    huge = bytes([0xFE] + [0xFF] * 8 + [0x01])
    negative = bytes([0xFF] * 9 + [0x01])
    for list_head, text_head in ((huge, b"\0"), (b"\0", huge), (negative, huge), (b"\0", negative)):
        payload = envelope + b"\2" + list_head + b"\2" + text_head

        with pytest.raises(PayloadCorruptError):
            AvroDecoder(schema).decode(1, 1, payload)
        with pytest.raises(PayloadCorruptError):
            AvroDecoder(schema, ["text"]).decode(1, 1, payload)
