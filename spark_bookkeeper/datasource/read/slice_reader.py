"""Reads the rows of one slice out of its ledger, exactly those, or fails.

Every entry says which rows it holds; that they follow each other without a gap, begin and end where
the log says, is checked as they pass, so a read never gives fewer rows than were committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_bookkeeper.datasource.errors import PayloadCorruptError, RowsMissingError
from spark_bookkeeper.datasource.payload.codec import Decoder
from spark_bookkeeper.datasource.payload.envelope import (
    EntryKind,
    MalformedEnvelopeError,
    parse_envelope,
)
from spark_bookkeeper.datasource.payload.footer import FOOTER_KEY, Footer, parse_footer
from spark_bookkeeper.datasource.read.partitions import Slice
from spark_bookkeeper.datasource.session import LedgerReader

RAW_BATCH_ROWS_MAX = 10_000
RAW_BATCH_BYTES_MAX = 4 << 20
"""A batch of raw values ends at either bound: Spark's own batches have 10,000 rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of one ledger."""

    batch: pa.RecordBatch
    """The stored columns that were asked for."""
    ledger_id: int
    entry_id: int
    """The entry of the first row; of raw rows each one has an entry of its own."""
    position: int
    """Row number of the first row in the log, or in a ledger read by id."""


def read_log(ledger: LedgerReader, of: Slice, decoder: Decoder) -> Iterator[Rows]:
    """The slice's rows out of entries of many rows.

    Raises:
        PayloadCorruptError: an entry is not what the format says.
        RowsMissingError: the entries hold other rows than the log names.
    """
    origin = _origin(ledger, of)
    first_entry, last_entry = _entries(ledger, of, origin)
    expected = of.range.first_row if first_entry == of.range.first_entry else None
    for entry in ledger.read(first_entry, last_entry):
        envelope, batch = decoder.decode(of.ledger_id, entry.entry_id, entry.payload)
        position = origin + envelope.first_row
        _check_start(of, expected, position)
        expected = position + batch.num_rows
        if expected > of.range.next_row:
            raise RowsMissingError(of.ledger_id, of.range.next_row, expected)
        skipped = max(0, of.first_row - position)
        kept = min(expected, of.end_row) - position - skipped
        if kept > 0:
            yield Rows(batch.slice(skipped, kept), of.ledger_id, entry.entry_id, position + skipped)
        if not of.is_whole and expected >= of.end_row:
            break
    _check_end(of, last_entry, expected)


def _check_start(of: Slice, expected: int | None, position: int) -> None:
    """An entry begins where the one before ended; the first one read, not behind the rows wanted."""
    if expected is None:
        if of.is_whole or position <= of.first_row:
            return
        expected = of.first_row
    if position != expected:
        raise RowsMissingError(of.ledger_id, expected, position)


def _check_end(of: Slice, last_entry: int, reached: int | None) -> None:
    """The last row wanted was there; of a part of a whole range only its last entry can tell."""
    if of.is_whole and last_entry < of.range.last_entry:
        return
    if reached is None or reached < of.end_row:
        raise RowsMissingError(of.ledger_id, of.end_row, reached or of.first_row)


def read_ledger(ledger: LedgerReader, of: Slice, decoder: Decoder) -> Iterator[Rows]:
    """All rows of a ledger read by id, where no log says which there should be.

    Raises:
        PayloadCorruptError: an entry is not what the format says.
    """
    for entry in ledger.read(of.first_entry, of.last_entry):
        if _kind(of.ledger_id, entry.entry_id, entry.payload) is EntryKind.FOOTER:
            continue
        envelope, batch = decoder.decode(of.ledger_id, entry.entry_id, entry.payload)
        yield Rows(batch, of.ledger_id, entry.entry_id, envelope.first_row)


def read_raw(ledger: LedgerReader, of: Slice, schema: pa.Schema) -> Iterator[Rows]:
    """One row per entry, in batches.

    Raises:
        PayloadCorruptError: a value of a text column is no UTF-8.
    """
    payloads: list[memoryview] = []
    size = 0
    first_entry = of.first_entry
    for entry in ledger.read(of.first_entry, of.last_entry):
        payloads.append(entry.payload)
        size += len(entry.payload)
        if len(payloads) >= RAW_BATCH_ROWS_MAX or size >= RAW_BATCH_BYTES_MAX:
            yield _raw_rows(payloads, of, first_entry, schema)
            first_entry, payloads, size = entry.entry_id + 1, [], 0
    if payloads:
        yield _raw_rows(payloads, of, first_entry, schema)


def _raw_rows(payloads: list[memoryview], of: Slice, first_entry: int, schema: pa.Schema) -> Rows:
    values = pa.array(payloads, pa.binary())
    try:
        batch = pa.record_batch([values.cast(schema.field(0).type)], schema=schema)
    except pa.ArrowException as error:
        raise PayloadCorruptError(of.ledger_id, first_entry, str(error)) from error
    position = of.range.first_row + first_entry - of.range.first_entry
    return Rows(batch, of.ledger_id, first_entry, position)


def _origin(ledger: LedgerReader, of: Slice) -> int:
    """Row number in the log of what the ledger counts as its row 0."""
    if of.range.first_entry == 0:
        return of.range.first_row
    # The range begins inside its ledger: only the entry there knows how many rows lie before.
    for entry in ledger.read(of.range.first_entry, of.range.first_entry):
        try:
            return of.range.first_row - parse_envelope(entry.payload).first_row
        except MalformedEnvelopeError as error:
            raise PayloadCorruptError(of.ledger_id, entry.entry_id, str(error)) from error
    raise RowsMissingError(of.ledger_id, of.range.rows, 0)


def _entries(ledger: LedgerReader, of: Slice, origin: int) -> tuple[int, int]:
    """Which entries to read: the slice's own, or fewer where the footer knows the rows."""
    if of.is_whole:
        return of.first_entry, of.last_entry
    footer = _footer(ledger, of)
    if footer is None:
        return of.first_entry, of.last_entry
    first, last = footer.entries_of(of.first_row - origin, of.end_row - origin)
    return max(of.first_entry, first), min(of.last_entry, last)


def _footer(ledger: LedgerReader, of: Slice) -> Footer | None:
    announced = FOOTER_KEY in ledger.metadata.custom_metadata
    last_entry = ledger.last_add_confirmed
    if not announced or last_entry <= of.range.last_entry:
        return None
    for entry in ledger.read(last_entry, last_entry):
        return parse_footer(of.ledger_id, entry.entry_id, entry.payload)
    return None


def _kind(ledger_id: int, entry_id: int, payload: memoryview) -> EntryKind:
    try:
        return parse_envelope(payload).kind
    except MalformedEnvelopeError as error:
        raise PayloadCorruptError(ledger_id, entry_id, str(error)) from error
