"""What a ledger may hold that nobody should believe: refused by its place, in bounded memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo

from bookkeeper_metadata.errors import MetadataCorruptError
from spark_bookkeeper.datasource.errors import PayloadCorruptError, RowTooLargeError
from spark_bookkeeper.datasource.payload import entry_cutter
from spark_bookkeeper.datasource.payload.arrow import ArrowDecoder
from spark_bookkeeper.datasource.payload.codec import decoder_of, encoder_of
from spark_bookkeeper.datasource.payload.entry_cutter import CutEntry, EntryCutter
from spark_bookkeeper.datasource.payload.envelope import ENVELOPE_SIZE, EntryKind, Envelope
from spark_bookkeeper.datasource.payload.footer import parse_footer
from spark_bookkeeper.datasource.read.bounds import Layout
from spark_bookkeeper.datasource.read.pruning import predicate_of
from spark_bookkeeper.datasource.schema import arrow_schema
from tests.patience import seconds
from tests.spark_bookkeeper.datasource import hostile
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch, everything, payload_of
from tests.spark_bookkeeper.datasource.world import FakeSpark, foreign_ledger, many_entries, marked

Columns = list[tuple[str, pa.Array]]


@pytest.mark.slow
@pytest.mark.parametrize("cases", [500, pytest.param(5_000, marks=pytest.mark.full)])
def test_damage_never_crashes_a_reader_nor_floods_its_memory(repository: Path, cases: int) -> None:
    """A process of its own: a crash is a return code, and memory is its own."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.spark_bookkeeper.datasource.hostile"]  # fmt: skip

    ended = subprocess.run(
        [*command, str(cases)],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=seconds(1_200),
        check=False,
    )

    assert ended.returncode == 0, ended.stderr[-4_000:]
    report = json.loads(ended.stdout)
    assert report["entries"] == report["footers"] == cases
    assert report["entries_refused"] > cases // 2
    assert report["footers_refused"] > cases // 2
    assert report["reads_refused"] > cases // 10
    assert report["arrow_bytes"] < 512 << 20
    assert report["rss_bytes"] < 1 << 30


def spoilt(draw: random.Random, payload: bytes) -> bytes:
    """The entry after a few changes behind its envelope, which still says how many rows it has."""
    damages: list[hostile.Damage] = []
    for _ in range(draw.randint(1, 4)):
        at, size = draw.randrange(1 << 30), draw.randint(1, 8)
        changes: list[hostile.Damage] = [
            (hostile.flipped, at, draw.randint(1, 255)),
            (hostile.overwritten, at, draw.choice((b"\0", b"\1", b"\x7f", b"\x80", b"\xff"))),
            (hostile.inserted, at, draw.randbytes(size)),
            (hostile.deleted, at, size),
            (hostile.truncated, at),
        ]
        damages += draw.choices(changes, (4, 4, 1, 1, 1))
    return payload[:ENVELOPE_SIZE] + hostile.damaged(payload[ENVELOPE_SIZE:], damages)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zstd", "lz4", "none", "avro"])
@pytest.mark.parametrize("columns", [None, ["text", "price", "nested", "pairs"]])
def test_spoilt_rows_decode_to_as_many_or_are_refused(name: str, columns: list[str] | None) -> None:
    draw = random.Random(f"{name}{columns}")
    batch = everything(60)
    payload_format, compression = ("avro", "none") if name == "avro" else ("arrow", name)
    payload = encoder_of(payload_format, batch.schema, 0, compression).encode(batch, 0, 0)
    decoder = decoder_of(payload_format, batch.schema, columns)
    cases, refused = 1_500 if name == "avro" else 4_000, 0

    for _ in range(cases):
        try:
            decoded = decoder.decode(1, 1, spoilt(draw, payload))[1]
        except PayloadCorruptError:
            refused += 1
        else:
            decoded.validate(full=True)
            # Copies every value, as handing it to Spark does.
            assert decoded.take(pa.array(range(60))).num_rows == decoded.num_rows == 60

    assert cases // 4 < refused < cases


def footer_of(columns: Columns, rows: int, entries: int) -> bytes:
    """A footer as somebody else would forge it."""
    made = pa.RecordBatch.from_arrays([of for _, of in columns], [name for name, _ in columns])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_batch(made)
    envelope = Envelope(EntryKind.FOOTER, 0, rows, entries, 0)
    return b"".join((envelope.encode(), memoryview(sink.getvalue())))


def nested(depth: int) -> pa.Array:
    value: pa.Array = pa.array([1], pa.int64())
    for _ in range(depth):
        value = pa.StructArray.from_arrays([value], ["in"])
    return value


FIRST = pa.array([0], pa.int64())
FORGED_FOOTERS: dict[str, Columns] = {
    "nested": [("first_row", FIRST), ("min_0", nested(60))],
    "dictionary": [("first_row", FIRST), ("min_0", pa.array(["x"]).dictionary_encode())],
    "list": [("first_row", FIRST), ("min_0", pa.array([[1]]))],
    "unsigned": [("first_row", pa.array([0], pa.uint64()))],
    "headless": [("min_0", FIRST)],
    "empty": [],
    "null": [("first_row", pa.array([None], pa.int64()))],
    "elsewhere": [("first_row", pa.array([1], pa.int64()))],
    "twice": [("first_row", FIRST), ("first_row", FIRST)],
}


@pytest.mark.parametrize("columns", FORGED_FOOTERS.values(), ids=FORGED_FOOTERS)
def test_footers_of_other_columns_than_footers_have_are_refused(columns: Columns) -> None:
    with pytest.raises(PayloadCorruptError, match="ledger_id=5 entry_id=1"):
        parse_footer(5, 1, footer_of(columns, 10, 1))


def test_a_footer_that_begins_with_a_message_of_no_type_is_refused() -> None:
    payload = bytearray(footer_of([("first_row", FIRST)], 10, 1))
    assert payload[61] == 1  # a schema
    payload[61] = 0

    with pytest.raises(PayloadCorruptError, match="ledger_id=5 entry_id=1"):
        parse_footer(5, 1, bytes(payload))


@pytest.mark.parametrize(
    "columns",
    [
        [("min_0", pa.array([90])), ("max_0", pa.array([99]))],
        [("min_0", pa.array([90])), ("max_0", pa.array([99])), ("nulls_0", pa.array(["0"]))],
        [("min_0", pa.array(["z"])), ("max_0", pa.array(["z"])), ("nulls_0", pa.array([0]))],
        [("min_7", pa.array([90])), ("max_7", pa.array([99])), ("nulls_7", pa.array([0]))],
    ],
)
def test_bounds_of_other_types_than_their_columns_prune_nothing(columns: Columns) -> None:
    footer = parse_footer(5, 1, footer_of([("first_row", FIRST), *columns], 10, 1))
    predicate = predicate_of([EqualTo(("id",), 5)], SCHEMA, {"id"})

    assert footer is not None
    assert Layout(footer, 0).runs(0, 0, predicate, arrow_schema(SCHEMA)) == [(0, 0)]


def test_a_footer_that_claims_more_entries_than_lie_before_it_is_refused() -> None:
    many = pa.array(range(1 << 20), pa.int64())

    with pytest.raises(PayloadCorruptError, match="describes 1048576 entries where 3 lie before"):
        parse_footer(5, 3, footer_of([("first_row", many)], 1 << 21, 1 << 20))


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_body_that_unfolds_to_more_than_it_declares_is_refused(compression: str) -> None:
    values = pa.record_batch({"x": pa.array(range(100_000), pa.int64())})
    payload = payload_of(values, compression)
    declared = (800_000).to_bytes(8, "little")
    assert payload.count(declared) == 1

    for claimed in (8, 799_999, 800_008, 100 << 30):
        forged = payload.replace(declared, claimed.to_bytes(8, "little"))
        with pytest.raises(PayloadCorruptError):
            ArrowDecoder(values.schema).decode(1, 1, forged)

    assert pa.default_memory_pool().bytes_allocated() < 16 << 20


def test_rows_of_no_bytes_are_bounded_by_what_an_envelope_may_claim() -> None:
    nothing = pa.record_batch({"x": pa.nulls(10)})
    payload = bytearray(payload_of(nothing, "none"))
    payload[20:24] = ((1 << 32) - 1).to_bytes(4, "big")

    with pytest.raises(PayloadCorruptError, match="impossible rows"):
        ArrowDecoder(nothing.schema).decode(1, 1, bytes(payload))


def test_an_entry_of_another_schema_than_its_range_is_refused_by_its_place(
    world: FakeSpark,
) -> None:
    many_entries(world, partitions=1).payloads[0] = payload_of(batch(0, 10), schema_id=7)

    with pytest.raises(PayloadCorruptError, match=r"schema 7, its range schema 0.*entry_id=0"):
        world.read()
    with pytest.raises(PayloadCorruptError, match="schema 7"):
        world.read(ledger="0")


@pytest.mark.parametrize("kind", [EntryKind.FOOTER, EntryKind.AVRO])
def test_an_entry_of_another_kind_among_rows_is_refused(world: FakeSpark, kind: EntryKind) -> None:
    payloads = many_entries(world, partitions=1).payloads
    payloads[2] = Envelope(kind, 0, 0, 1, 0).encode() + payloads[2][ENVELOPE_SIZE:]

    with pytest.raises(PayloadCorruptError, match=f"{kind.name} among rows.*entry_id=2"):
        world.read()


@pytest.mark.parametrize(
    "marks",
    [
        {"sparkSchema": b"\xff/0", "sparkPayload": b"arrow"},
        {"sparkSchema": b"1", "sparkPayload": b"arrow"},
        {"sparkSchema": b"1/0", "sparkPayload": b"parquet"},
        {"sparkSchema": b"1/0", "sparkPayload": b"\xff"},
    ],
)
def test_a_ledger_with_marks_of_no_log_is_refused_by_its_id(
    world: FakeSpark, marks: dict[str, bytes]
) -> None:
    marked(foreign_ledger(world, 70, b"x"), marks)

    with pytest.raises(MetadataCorruptError, match="path=ledger 70"):
        world.read(ledger="70")


def cut(*sizes: int) -> list[CutEntry]:
    """The entries made of one batch of texts of these sizes."""
    texts = pa.record_batch({"x": pa.array(["a" * size for size in sizes])})
    cutter = EntryCutter(lambda rows, first: payload_of(rows, first_row=first), 1 << 20)
    return [*cutter.add(texts), *cutter.finish()]


def test_an_entry_decodes_to_what_readers_take_whatever_it_compresses_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entry_cutter, "DECODED_BYTES_MAX", 10_000)

    entries = cut(4_000, 4_000, 4_000, 4_000, 1)
    assert [entry.batch.num_rows for entry in entries] == [2, 3]
    with pytest.raises(RowTooLargeError, match=r"size_bytes=\d+ size_bytes_max=10000"):
        cut(1, 10_001)


@pytest.mark.slow
def test_the_largest_row_a_writer_takes_is_one_that_a_reader_takes() -> None:
    (entry,) = cut(entry_cutter.DECODED_BYTES_MAX - 64)

    assert ArrowDecoder(entry.batch.schema).decode(1, 0, entry.payload)[1].equals(entry.batch)
