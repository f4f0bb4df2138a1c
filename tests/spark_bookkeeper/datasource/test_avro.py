"""Avro payloads: every type, readable with any Avro library, refused where the bytes are none."""

from __future__ import annotations

import io
import json
import random
import struct
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from spark_bookkeeper.datasource.errors import (
    OptionsError,
    PayloadCorruptError,
    UnsupportedTypeError,
)
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
from spark_bookkeeper.datasource.schema import log_schema_of
from spark_bookkeeper.log.errors import NoSuchLogError
from tests.spark_bookkeeper.datasource.rows import everything
from tests.spark_bookkeeper.datasource.world import FakeSpark

SCHEMA = StructType([StructField("id", LongType()), StructField("name", StringType())])


def survived(batch: pa.RecordBatch) -> pa.RecordBatch:
    payload = AvroEncoder(batch.schema, 0).encode(batch, 0, 0)
    return AvroDecoder(batch.schema).decode(1, 0, memoryview(payload))[1]


def rows_outside_spark(payload: bytes, schema: bytes) -> list[object]:
    """What a consumer sees who has fastavro and the ledger's custom metadata."""
    parsed = fastavro.parse_schema(json.loads(schema))
    source, found = io.BytesIO(payload[ENVELOPE_SIZE:]), []
    while source.tell() < len(payload) - ENVELOPE_SIZE:
        found.append(fastavro.schemaless_reader(source, parsed, None))
    return list(found)


def test_every_type_survives_an_entry() -> None:
    batch = everything(500)
    payload = AvroEncoder(batch.schema, 7).encode(batch, 40, 1_234)

    envelope, decoded = AvroDecoder(batch.schema).decode(1, 0, memoryview(payload))

    assert decoded.equals(batch)
    assert decoded.schema.equals(batch.schema)
    assert envelope == Envelope(EntryKind.AVRO, 7, 40, 500, 1_234)


def test_a_slice_of_a_batch_is_encoded_as_just_its_rows() -> None:
    batch = everything(300)

    assert survived(batch.slice(7, 100)).equals(batch.slice(7, 100))


def test_only_the_columns_asked_for_are_decoded_in_their_order() -> None:
    batch = everything(100)
    payload = AvroEncoder(batch.schema, 0).encode(batch, 0, 0)

    some = AvroDecoder(batch.schema, ["nested", "large"]).decode(1, 0, payload)[1]
    none = AvroDecoder(batch.schema, []).decode(1, 0, payload)[1]

    assert some.equals(batch.select(["nested", "large"]))
    assert (none.num_rows, none.num_columns) == (100, 0)


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
    payload = AvroEncoder(batch.schema, 0).encode(batch, 0, 0)

    found = rows_outside_spark(payload, avro_json(batch.schema))

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


def test_what_avro_cannot_express_is_refused_by_column_before_anything_exists(
    world: FakeSpark,
) -> None:
    schema = StructType(
        [
            StructField("fine", LongType()),
            StructField("pairs", MapType(LongType(), StringType())),
            StructField("deep", StructType([StructField("m", MapType(LongType(), LongType()))])),
        ]
    )

    with pytest.raises(UnsupportedTypeError, match=r"pairs \(keys of an Avro map.*deep\.m \(keys"):
        world.plan(schema, payloadformat="avro")

    with pytest.raises(NoSuchLogError):
        world.nodes()


def test_a_log_of_avro_rows_is_read_like_any_other(world: FakeSpark) -> None:
    batch = everything(4_000)
    schema = log_schema_of(_spark_schema())
    world.write(
        [[batch.slice(0, 1_000)], [batch.slice(1_000)]],
        schema.spark,
        payloadformat="avro",
        entrybytes="16k",
    )

    found = world.read()
    middle = world.read(startingoffsets=_at(world, 990), endingoffsets=_at(world, 1_010))
    one = world.read(columns="text", includemetadata="true")
    by_id = world.read(ledger="0,1")

    assert len(world.client.ledgers[1].payloads) > 10
    assert found.combine_chunks().to_batches()[0].equals(batch)
    assert middle.combine_chunks().to_batches()[0].equals(batch.slice(990, 20))
    assert one.column("text").combine_chunks().equals(batch.column("text"))
    assert by_id.num_rows == 4_000


def test_the_payload_format_of_a_log_stays(world: FakeSpark) -> None:
    world.write([[]], SCHEMA, payloadformat="avro")

    with pytest.raises(OptionsError, match="payloadFormat: the log has avro, not arrow"):
        world.plan(SCHEMA, payloadformat="arrow")


def test_rows_that_the_bytes_cannot_hold_are_refused_before_they_are_made() -> None:
    batch = everything(20)
    payload = bytearray(AvroEncoder(batch.schema, 0).encode(batch, 0, 0))
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


@pytest.mark.slow
def test_spoilt_bytes_decode_to_rows_of_the_schema_or_are_refused() -> None:
    draw = random.Random(11)
    batch = everything(30)
    payload = AvroEncoder(batch.schema, 0).encode(batch, 0, 0)
    decoders = [AvroDecoder(batch.schema), AvroDecoder(batch.schema, ["price", "nested"])]
    refused = 0
    for case in range(3_000):
        spoilt = bytearray(payload)
        at = draw.randrange(ENVELOPE_SIZE, len(payload))
        change = draw.choice(("flip", "cut", "insert"))
        if change == "flip":
            spoilt[at] ^= 1 << draw.randrange(8)
        elif change == "cut":
            del spoilt[at : at + draw.randrange(1, 9)]
        else:
            spoilt[at:at] = draw.randbytes(draw.randrange(1, 9))
        try:
            found = decoders[case % 2].decode(1, 1, bytes(spoilt))[1]
        except PayloadCorruptError:
            refused += 1
            continue
        found.validate(full=True)
        assert found.num_rows == 30
    assert refused > 1_000


def _at(world: FakeSpark, row: int) -> str:
    return json.dumps({"log": world.nodes().log_id, "row": row})


def _spark_schema() -> StructType:
    kinds = {
        "flag": "boolean", "tiny": "byte", "small": "short", "medium": "integer", "large": "long",
        "single": "float", "double": "double", "price": "decimal(12,2)", "day": "date",
        "at": "timestamp", "local": "timestamp_ntz", "text": "string", "octets": "binary",
        "nothing": "void",
        "items": {"type": "array", "elementType": "integer", "containsNull": True},
        "pairs": {"type": "map", "keyType": "string", "valueType": "long",
                  "valueContainsNull": True},
    }  # fmt: skip
    inner = {"type": "struct", "fields": [_field("c", "string")]}
    nested = [
        _field("a", "integer"),
        _field("b", {"type": "array", "elementType": inner, "containsNull": True}),
    ]
    fields = [_field(name, kind) for name, kind in kinds.items()]
    fields.append(_field("nested", {"type": "struct", "fields": nested}))
    return StructType.fromJson({"type": "struct", "fields": fields})


def _field(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}
