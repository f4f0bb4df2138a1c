"""Rows to payloads and back, entries of the right size, and footers that say what is where."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_bookkeeper.datasource.errors import PayloadCorruptError, RawNullError, RowTooLargeError
from spark_bookkeeper.datasource.payload.arrow import ArrowDecoder
from spark_bookkeeper.datasource.payload.codec import decoder_of, encoder_of
from spark_bookkeeper.datasource.payload.entry_cutter import (
    DECODED_BYTES_TARGET_MAX,
    PAYLOAD_BYTES_MAX,
    ROWS_PER_ENTRY_MAX,
    CutEntry,
    EntryCutter,
)
from spark_bookkeeper.datasource.payload.envelope import (
    ENVELOPE_SIZE,
    EntryKind,
    Envelope,
    MalformedEnvelopeError,
    parse_envelope,
)
from spark_bookkeeper.datasource.payload.footer import Footer, FooterBuilder, parse_footer
from spark_bookkeeper.datasource.payload.raw import raw_payloads
from tests.spark_bookkeeper.datasource.rows import everything, lineitem, payload_of


def cut(batches: list[pa.RecordBatch], entry_bytes: int) -> list[CutEntry]:
    cutter = EntryCutter(lambda batch, first: payload_of(batch, first_row=first), entry_bytes)
    return [entry for batch in batches for entry in cutter.add(batch)] + list(cutter.finish())


def rows_of(entries: list[CutEntry], schema: pa.Schema) -> pa.RecordBatch:
    decoder = ArrowDecoder(schema)
    decoded = [decoder.decode(1, at, entry.payload)[1] for at, entry in enumerate(entries)]
    return pa.concat_batches(decoded)


@pytest.mark.parametrize(
    ("payload_format", "compression"),
    [("arrow", "zstd"), ("arrow", "lz4"), ("arrow", "none"), ("avro", "none")],
)
def test_every_type_survives_an_entry(payload_format: str, compression: str) -> None:
    batch = everything(500)
    encoder = encoder_of(payload_format, batch.schema, 7, compression)
    payload = memoryview(encoder.encode(batch, 40, 1_234))

    envelope, decoded = decoder_of(payload_format, batch.schema).decode(1, 0, payload)

    assert decoded.equals(batch)
    assert decoded.schema.equals(batch.schema)
    assert envelope == Envelope(EntryKind[payload_format.upper()], 7, 40, 500, 1_234)


def test_an_envelope_has_a_fixed_layout() -> None:
    octets = Envelope(EntryKind.ARROW, 2, 3, 4, 5).encode()

    assert octets.hex() == (
        "5370424b" "01" "01" "0000" "00000002" "0000000000000003" "00000004" "0000000000000005"
    )  # fmt: skip
    assert len(octets) == ENVELOPE_SIZE


@pytest.mark.parametrize(
    ("octets", "message"),
    [
        (b"short", "hold no envelope"),
        (b"X" * 32, "not written by this connector"),
        (b"SpBK\x02\x01" + bytes(26), "version 2"),
        (b"SpBK\x01\x09" + bytes(26), "unknown kind of entry 9"),
        (b"SpBK\x01\x01" + bytes(6) + b"\xff" * 20, "impossible rows"),
    ],
)
def test_what_is_no_envelope_is_refused(octets: bytes, message: str) -> None:
    with pytest.raises(MalformedEnvelopeError, match=message):
        parse_envelope(octets)


@pytest.mark.parametrize("payload_format", ["arrow", "avro"])
def test_only_the_columns_asked_for_are_decoded_in_their_order(payload_format: str) -> None:
    batch = everything(100)
    payload = encoder_of(payload_format, batch.schema, 0, "zstd").encode(batch, 0, 0)

    for names in (["text", "large"], ["nested", "large"], []):
        decoded = decoder_of(payload_format, batch.schema, names).decode(1, 0, payload)[1]
        assert decoded.schema.names == names
        assert decoded.equals(batch.select(names))
        assert decoded.num_rows == 100


def test_a_row_of_three_hundred_columns_survives() -> None:
    batch = pa.record_batch({f"c{n}": pa.array([n, None], pa.int64()) for n in range(300)})

    assert ArrowDecoder(batch.schema).decode(1, 0, payload_of(batch))[1].equals(batch)


def test_small_batches_share_entries_and_rows_keep_their_order() -> None:
    whole = lineitem(20_000)
    batches = [whole.slice(at, 100) for at in range(0, 20_000, 100)]

    entries = cut(batches, 128 * 1024)

    assert rows_of(entries, whole.schema).equals(whole)
    assert [entry.first_row for entry in entries] == [
        sum(before.batch.num_rows for before in entries[:at]) for at in range(len(entries))
    ]
    # The first is cut before anything is known of compression, the last is what was left.
    sizes = [len(entry.payload) for entry in entries[1:-1]]
    assert all(64 * 1024 < size < 192 * 1024 for size in sizes)


def test_a_large_batch_is_split() -> None:
    whole = lineitem(50_000)
    entries = cut([whole], 64 * 1024)

    assert len(entries) > 20
    assert rows_of(entries, whole.schema).equals(whole)


def test_rows_that_compress_to_nothing_do_not_pile_up() -> None:
    entries = cut([pa.record_batch({"x": ["same" * 100] * 10_000})] * 12, 1 << 20)

    assert len(entries) > 1
    assert all(entry.batch.nbytes <= DECODED_BYTES_TARGET_MAX for entry in entries)


def test_rows_without_bytes_are_cut_by_count() -> None:
    entries = cut([pa.record_batch({"x": pa.nulls(ROWS_PER_ENTRY_MAX + 5)})], 1 << 20)

    assert [entry.batch.num_rows for entry in entries] == [ROWS_PER_ENTRY_MAX, 5]


def test_no_entry_exceeds_what_a_bookie_takes() -> None:
    easy = pa.record_batch({"x": pa.array([b"\0" * 100_000] * 200)})
    draw = random.Random(5)
    hard = pa.record_batch({"x": pa.array([draw.randbytes(1_000_000) for _ in range(14)])})

    # Zeros teach a ratio that random bytes then break by far.
    entries = cut([easy, hard], 4 << 20)

    assert all(len(entry.payload) <= PAYLOAD_BYTES_MAX for entry in entries)
    assert sum(entry.batch.num_rows for entry in entries) == 214


def test_a_row_larger_than_an_entry_is_refused_by_its_number() -> None:
    draw = random.Random(5)
    batch = pa.record_batch({"x": pa.array([b"small", b"small", draw.randbytes(6_000_000)])})

    with pytest.raises(RowTooLargeError, match="row_of_partition=2"):
        cut([batch], 1 << 20)


def test_raw_values_are_payloads_as_they_are_neither_null_nor_larger_than_an_entry() -> None:
    assert raw_payloads(pa.array([b"one", b"", b"two"]), 0) == [b"one", b"", b"two"]
    assert raw_payloads(pa.array(["grün"]), 0) == ["grün".encode()]
    with pytest.raises(RawNullError, match=r"cannot store null values.*row_of_partition=6"):
        raw_payloads(pa.array([b"x", None]), 5)
    with pytest.raises(RowTooLargeError, match="row_of_partition=11"):
        raw_payloads(pa.array([b"x", bytes(PAYLOAD_BYTES_MAX + 1)]), 10)


def footer_of(*batches: pa.RecordBatch, columns_max: int = 8) -> FooterBuilder:
    builder = FooterBuilder(batches[0].schema, columns_max)
    row = 0
    for batch in batches:
        builder.add(CutEntry(b"", batch, row))
        row += batch.num_rows
    return builder


def parsed(builder: FooterBuilder, entries: int) -> Footer:
    payload = builder.encode(0, 9)
    assert payload is not None
    footer = parse_footer(1, entries, payload)
    assert footer is not None
    return footer


def test_a_footer_says_which_rows_are_in_which_entry() -> None:
    footer = parsed(footer_of(everything(10), everything(30, 2), everything(5, 3)), 3)

    assert (footer.first_rows, footer.rows) == ([0, 10, 40], 45)
    assert footer.entries_of(0, 45) == (0, 2)
    assert footer.entries_of(10, 11) == (1, 1)
    assert footer.entries_of(9, 41) == (0, 2)
    assert footer.entries_of(39, 40) == (1, 1)


def test_a_footer_bounds_the_first_comparable_columns() -> None:
    builder = footer_of(
        pa.record_batch({"skip": pa.array([True]), "n": pa.array([5]), "s": pa.array(["m"])}),
        pa.record_batch({"skip": pa.array([True]), "n": pa.array([2]), "s": pa.array(["z"])}),
        columns_max=1,
    )

    assert [(c.column, c.minimum, c.maximum) for c in builder.column_ranges()] == [("n", 2, 5)]
    bounds = parsed(builder, 2).bounds.to_pydict()
    assert bounds == {"min_1": [5, 2], "max_1": [5, 2], "nulls_1": [0, 0]}


@pytest.mark.parametrize(
    ("entries", "bounds"),
    [
        # NaN, and a text that is too long, bound nothing.
        ([pa.array([1.0, float("nan")]), pa.array([2.0, 3.0])], (None, None, 0)),
        ([pa.array(["x" * 65, "a"]), pa.array(["b", None])], (None, None, 1)),
        # An entry of nulls hides no bound of the others.
        ([pa.nulls(3, pa.int32()), pa.array([4, 9], pa.int32())], (4, 9, 3)),
        ([pa.array([Decimal("1.10"), Decimal("-3.00")])], (Decimal("-3.00"), Decimal("1.10"), 0)),
        # An infinity bounds nothing that the column's order does not.
        ([pa.array([float("inf"), 1.0])], (1.0, None, 0)),
    ],
)
def test_bounds_of_a_ledger_are_those_of_its_entries_where_they_are_known(
    entries: list[pa.Array], bounds: tuple[Any, Any, int]
) -> None:
    (found,) = footer_of(*[pa.record_batch({"c": of}) for of in entries]).column_ranges()

    assert (found.minimum, found.maximum, found.nulls) == bounds


def test_rows_are_no_footer_and_a_broken_footer_is_an_error() -> None:
    batch = everything(5)
    footer = footer_of(batch).encode(0, 0)
    assert footer is not None

    assert parse_footer(1, 0, payload_of(batch)) is None
    with pytest.raises(PayloadCorruptError, match="ledger_id=1 entry_id=1"):
        parse_footer(1, 1, footer[:-200])
