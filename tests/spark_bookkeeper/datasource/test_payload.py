"""Rows to payloads and back, entries of the right size, and footers that say what is where."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_bookkeeper.datasource.errors import PayloadCorruptError, RawNullError, RowTooLargeError
from spark_bookkeeper.datasource.payload.arrow import ArrowDecoder, ArrowEncoder
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
from spark_bookkeeper.datasource.payload.footer import FooterBuilder, parse_footer
from spark_bookkeeper.datasource.payload.raw import raw_payloads
from tests.spark_bookkeeper.datasource.rows import everything, lineitem


def cut(
    batches: list[pa.RecordBatch], entry_bytes: int, compression: str = "zstd"
) -> list[CutEntry]:
    encoder = ArrowEncoder(batches[0].schema, 0, compression)
    cutter = EntryCutter(lambda batch, first: encoder.encode(batch, first, 1_000), entry_bytes)
    return [entry for batch in batches for entry in cutter.add(batch)] + list(cutter.finish())


def rows_of(entries: list[CutEntry], schema: pa.Schema) -> pa.Table:
    decoder = ArrowDecoder(schema)
    decoded = [decoder.decode(1, at, entry.payload)[1] for at, entry in enumerate(entries)]
    return pa.Table.from_batches(decoded, schema).combine_chunks()


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_every_type_survives_an_entry(compression: str) -> None:
    batch = everything(500)
    payload = ArrowEncoder(batch.schema, 7, compression).encode(batch, 40, 1_234)

    envelope, decoded = ArrowDecoder(batch.schema).decode(1, 0, memoryview(payload))

    assert decoded.equals(batch)
    assert envelope == Envelope(EntryKind.ARROW, 7, 40, 500, 1_234)


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


def test_only_the_columns_asked_for_are_decoded_in_their_order() -> None:
    batch = everything(100)
    payload = ArrowEncoder(batch.schema, 0, "zstd").encode(batch, 0, 0)

    decoded = ArrowDecoder(batch.schema, ["text", "large"]).decode(1, 0, payload)[1]

    assert decoded.equals(batch.select(["text", "large"]))


def test_no_columns_still_count_rows() -> None:
    batch = everything(100)
    payload = ArrowEncoder(batch.schema, 0, "zstd").encode(batch, 0, 0)

    decoded = ArrowDecoder(batch.schema, []).decode(1, 0, payload)[1]

    assert (decoded.num_rows, decoded.num_columns) == (100, 0)


def test_a_row_of_three_hundred_columns_survives() -> None:
    batch = pa.record_batch({f"c{n}": pa.array([n, None], pa.int64()) for n in range(300)})
    payload = ArrowEncoder(batch.schema, 0, "zstd").encode(batch, 0, 0)

    assert ArrowDecoder(batch.schema).decode(1, 0, payload)[1].equals(batch)


def test_small_batches_share_entries_and_rows_keep_their_order() -> None:
    whole = lineitem(20_000)
    batches = [whole.slice(at, 100) for at in range(0, 20_000, 100)]

    entries = cut(batches, 128 * 1024)

    assert rows_of(entries, whole.schema).to_batches()[0].equals(whole)
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
    assert rows_of(entries, whole.schema).to_batches()[0].equals(whole)


def test_rows_that_compress_to_nothing_do_not_pile_up() -> None:
    batch = pa.record_batch({"x": pa.array(["same" * 100] * 10_000)})

    entries = cut([batch] * 12, 1 << 20)

    assert len(entries) > 1
    assert all(entry.batch.nbytes <= DECODED_BYTES_TARGET_MAX for entry in entries)


def test_rows_without_bytes_are_cut_by_count() -> None:
    batch = pa.record_batch({"x": pa.nulls(ROWS_PER_ENTRY_MAX + 5)})

    entries = cut([batch], 1 << 20)

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


def test_raw_values_are_payloads_as_they_are() -> None:
    assert raw_payloads(pa.array([b"one", b"", b"two"]), 0) == [b"one", b"", b"two"]
    assert raw_payloads(pa.array(["grün"]), 0) == ["grün".encode()]


def test_raw_values_cannot_be_null_or_larger_than_an_entry() -> None:
    with pytest.raises(RawNullError, match=r"cannot store null values.*row_of_partition=6"):
        raw_payloads(pa.array([b"x", None]), 5)
    with pytest.raises(RowTooLargeError, match="row_of_partition=11"):
        raw_payloads(pa.array([b"x", bytes(PAYLOAD_BYTES_MAX + 1)]), 10)


def footer_of(batches: list[pa.RecordBatch], columns_max: int = 8) -> tuple[FooterBuilder, int]:
    builder = FooterBuilder(batches[0].schema, columns_max)
    row = 0
    for batch in batches:
        builder.add(CutEntry(b"", batch, row))
        row += batch.num_rows
    return builder, row


def test_a_footer_says_which_rows_are_in_which_entry() -> None:
    builder, rows = footer_of([everything(10), everything(30, 2), everything(5, 3)])
    payload = builder.encode(0, 9)
    assert payload is not None

    footer = parse_footer(1, 3, payload)

    assert footer is not None
    assert (footer.first_rows, footer.rows) == ([0, 10, 40], rows)
    assert footer.entries_of(0, 45) == (0, 2)
    assert footer.entries_of(10, 11) == (1, 1)
    assert footer.entries_of(9, 41) == (0, 2)
    assert footer.entries_of(39, 40) == (1, 1)


def test_a_footer_bounds_the_first_comparable_columns() -> None:
    batches = [
        pa.record_batch({"skip": pa.array([True]), "n": pa.array([5]), "s": pa.array(["m"])}),
        pa.record_batch({"skip": pa.array([True]), "n": pa.array([2]), "s": pa.array(["z"])}),
    ]
    builder, _ = footer_of(batches, columns_max=1)

    assert [(c.column, c.minimum, c.maximum) for c in builder.column_ranges()] == [("n", 2, 5)]
    payload = builder.encode(0, 0)
    assert payload is not None
    footer = parse_footer(1, 2, payload)
    assert footer is not None
    assert footer.bounds.to_pydict() == {"min_1": [5, 2], "max_1": [5, 2], "nulls_1": [0, 0]}


def test_bounds_that_are_not_known_are_not_claimed() -> None:
    batches = [
        pa.record_batch({"f": pa.array([1.0, float("nan")]), "s": pa.array(["x" * 65, "a"])}),
        pa.record_batch({"f": pa.array([2.0, 3.0]), "s": pa.array(["b", None])}),
    ]

    found = footer_of(batches)[0].column_ranges()

    assert [(c.minimum, c.maximum, c.nulls) for c in found] == [(None, None, 0), (None, None, 1)]


def test_an_entry_of_nulls_hides_no_bound_of_the_others() -> None:
    batches = [
        pa.record_batch({"n": pa.nulls(3, pa.int32())}),
        pa.record_batch({"n": pa.array([4, 9], pa.int32())}),
    ]

    found = footer_of(batches)[0].column_ranges()

    assert [(c.minimum, c.maximum, c.nulls) for c in found] == [(4, 9, 3)]


def test_bounds_keep_decimals_and_infinities_sound() -> None:
    batch = pa.record_batch(
        {
            "d": pa.array([Decimal("1.10"), Decimal("-3.00")], pa.decimal128(9, 2)),
            "f": pa.array([float("inf"), 1.0]),
        }
    )

    found = footer_of([batch])[0].column_ranges()

    assert [(c.minimum, c.maximum) for c in found] == [
        (Decimal("-3.00"), Decimal("1.10")),
        (1.0, None),
    ]


def test_rows_are_no_footer_and_a_broken_footer_is_an_error() -> None:
    batch = everything(5)
    rows = ArrowEncoder(batch.schema, 0, "zstd").encode(batch, 0, 0)
    footer = footer_of([batch])[0].encode(0, 0)
    assert footer is not None

    assert parse_footer(1, 0, rows) is None
    with pytest.raises(PayloadCorruptError, match="ledger_id=1 entry_id=1"):
        parse_footer(1, 1, footer[:-200])
