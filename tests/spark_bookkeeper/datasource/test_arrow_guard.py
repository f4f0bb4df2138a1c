"""No ledger's content crashes or floods a reader: it decodes to the rows written, or is refused."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest

from spark_bookkeeper.datasource.errors import PayloadCorruptError, RowTooLargeError
from spark_bookkeeper.datasource.payload import arrow_guard, entry_cutter
from spark_bookkeeper.datasource.payload.arrow import ArrowDecoder
from spark_bookkeeper.datasource.payload.arrow_guard import DECODED_BYTES_MAX, ROWS_MAX
from spark_bookkeeper.datasource.payload.entry_cutter import EntryCutter
from spark_bookkeeper.datasource.payload.envelope import EntryKind, Envelope
from tests.spark_bookkeeper.datasource.rows import everything, payload_of


def test_a_bomb_is_refused_before_it_unfolds() -> None:
    zeros = pa.record_batch({"x": pa.array([bytes(DECODED_BYTES_MAX // 2)] * 2 + [b"x" * 4096])})
    payload = payload_of(zeros)
    assert len(payload) < 1 << 20
    held = pa.total_allocated_bytes()

    with pytest.raises(PayloadCorruptError, match="decodes to 2684"):
        ArrowDecoder(zeros.schema).decode(3, 4, payload)

    assert pa.total_allocated_bytes() <= held


def test_a_message_of_an_old_arrow_is_refused_for_it_may_hide_a_bomb() -> None:
    """It is decompressed by what its custom metadata say, of which the guard knew nothing: 20 KB unfolded to 600 MiB."""
    zeros = bytes(1 << 20)
    compressed = struct.pack("<q", len(zeros)) + pa.Codec("zstd").compress(zeros, asbytes=True)
    padding = -(len(compressed) + 8) % 8
    # A frame that Zstandard skips.
    compressed += struct.pack("<II", 0x184D2A50, padding) + bytes(padding)
    batch = pa.record_batch({"x": pa.array(np.frombuffer(compressed, "<i8"))})
    old = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=old) as writer:
        marks = {"ARROW:experimental_compression": "zstd"}
        writer.write_batch(batch, custom_metadata=pa.KeyValueMetadata(marks))
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    message = messages.read_next_message().serialize()
    assert pa.ipc.read_record_batch(message, batch.schema).get_total_buffer_size() >= len(zeros)

    envelope = Envelope(EntryKind.ARROW, 0, 0, len(batch), 5)
    with pytest.raises(PayloadCorruptError, match="version 3 of Arrow's messages"):
        ArrowDecoder(batch.schema).decode(3, 4, envelope.encode() + message.to_pybytes())


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


def list_of(values: pa.Array, lengths: Sequence[int]) -> pa.RecordBatch:
    """One column of lists, one behind the other."""
    offsets = [0, *accumulate(lengths)]
    return pa.record_batch({"x": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)})


def structs(count: int) -> pa.StructArray:
    """Of no fields and no nulls, so of no bytes."""
    return pa.StructArray.from_buffers(pa.struct([]), count, [None])


@pytest.mark.parametrize(
    "values", [pa.nulls(DECODED_BYTES_MAX + 9), structs(DECODED_BYTES_MAX + 9)]
)
def test_elements_that_cost_no_bytes_are_counted(values: pa.Array) -> None:
    bomb = list_of(values, [len(values)])
    payload = payload_of(bomb)
    assert len(payload) < 300

    with pytest.raises(PayloadCorruptError, match=f"{DECODED_BYTES_MAX + 8} nested elements"):
        ArrowDecoder(bomb.schema).decode(3, 4, payload)


def test_rows_that_cost_no_bytes_are_counted() -> None:
    bomb = pa.record_batch({"x": pa.nulls(ROWS_MAX + 1)})

    with pytest.raises(PayloadCorruptError, match=f"{ROWS_MAX + 1} rows, more than"):
        ArrowDecoder(bomb.schema).decode(3, 4, payload_of(bomb))


def test_a_negative_count_of_elements_is_refused() -> None:
    batch = list_of(pa.nulls(77_777), [77_777])
    payload = payload_of(batch, "none")
    counted = struct.pack("<qq", 77_777, 77_777)
    assert payload.count(counted) == 1

    with pytest.raises(PayloadCorruptError, match="negative"):
        ArrowDecoder(batch.schema).decode(3, 4, payload.replace(counted, struct.pack("<qq", -1, 0)))


@pytest.mark.parametrize("values", [pa.nulls(2_001), structs(2_001)])
@pytest.mark.parametrize("first", [0, 1])
def test_a_writer_counts_elements_as_a_reader_does(
    values: pa.Array, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nothing becomes unreadable that could be written."""
    monkeypatch.setattr(entry_cutter, "DECODED_BYTES_MAX", 1_000)
    monkeypatch.setattr(arrow_guard, "DECODED_BYTES_MAX", 1_000)
    rows = list_of(values, [700, 300, 300, 300, 300, 101])
    maps = pa.MapArray.from_arrays(
        pa.array([0, 100, 200], pa.int32()), pa.array(range(200)), pa.nulls(200)
    )
    nested = pa.record_batch({"x": pa.StructArray.from_arrays([maps], names=["map"])})

    for batch in (rows.slice(first, 5), nested):
        cutter = EntryCutter(lambda rows, at: payload_of(rows, first_row=at), 1 << 20)
        entries = [*cutter.add(batch), *cutter.finish()]
        decoder = ArrowDecoder(batch.schema)
        found = [decoder.decode(1, at, entry.payload)[1] for at, entry in enumerate(entries)]

        assert len(found) > 1
        assert pa.concat_batches(found).equals(batch)


def test_pairs_keys_and_values_within_a_struct_count_as_they_do_for_readers() -> None:
    maps = pa.MapArray.from_arrays(
        pa.array([0, 1_000, 2_000], pa.int32()), pa.array([1] * 2_000, pa.int8()), pa.nulls(2_000)
    )
    batch = pa.record_batch({"x": pa.StructArray.from_arrays([maps], names=["map"])})
    metadata = memoryview(pa.ipc.read_message(batch.serialize()).metadata)

    read = arrow_guard._nested_elements(arrow_guard._record_batch(metadata), 2)

    assert entry_cutter.decoded_size(batch) == read == 3 * 1_998


def test_a_row_of_more_elements_than_a_reader_takes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entry_cutter, "DECODED_BYTES_MAX", 1_000)
    cutter = EntryCutter(lambda rows, first: payload_of(rows, first_row=first), 1 << 20)

    with pytest.raises(RowTooLargeError, match="size_bytes=2000 size_bytes_max=1000"):
        [*cutter.add(list_of(pa.nulls(2_003), [2, 2_001])), *cutter.finish()]


def test_rows_that_wait_never_outgrow_the_offsets_of_a_list() -> None:
    """Of two batches of two billion elements each no single one can be made."""
    huge = list_of(pa.nulls(2**31 - 1), [10, *[2**27 - 20] * 15])
    cutter = EntryCutter(lambda rows, first: payload_of(rows, first_row=first), 1 << 20)

    entries = [*cutter.add(huge), *cutter.add(huge), *cutter.finish()]

    decoder = ArrowDecoder(huge.schema)
    found = [decoder.decode(1, at, entry.payload)[1] for at, entry in enumerate(entries)]
    assert sum(batch.num_rows for batch in found) == 2 * huge.num_rows


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
