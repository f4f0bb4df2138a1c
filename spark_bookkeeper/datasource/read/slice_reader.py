"""Reads the rows of one slice out of its ledger, exactly those, or fails.

Every entry says which rows it holds; that they follow each other without a gap, begin and end where
the log says, is checked as they pass, so a read never gives fewer rows than were committed. Where a
footer was read it says which rows each entry must hold, so that entries pruned between do not look
like missing ones, and missing ones are still found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_bookkeeper.blocking.read_handle import ReadHandle
from spark_bookkeeper.datasource.errors import PayloadCorruptError, RowsMissingError
from spark_bookkeeper.datasource.payload.codec import Decoder
from spark_bookkeeper.datasource.payload.envelope import (
    EntryKind,
    Envelope,
    MalformedEnvelopeError,
    parse_envelope,
)
from spark_bookkeeper.datasource.payload.footer import (
    FOOTER_KEY,
    FOOTER_VERSION,
    Footer,
    parse_footer,
)
from spark_bookkeeper.datasource.read.bounds import Layout
from spark_bookkeeper.datasource.read.partitions import Slice
from spark_bookkeeper.datasource.read.pruning import Predicate
from spark_bookkeeper.ledger.entry import Entry

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


class Fetching:
    """How one task fetches entries: which of them the predicate needs, and how many it took."""

    def __init__(self, predicate: Predicate, schema: pa.Schema) -> None:
        self.predicate = predicate
        self.schema = schema
        """Of the stored columns: footers number them alike, for added ones come behind."""
        self.entries_planned = 0
        """Entries the slices read so far lie in."""
        self.entries_fetched = 0
        """Entries asked of bookies for them, footers included."""

    def read(self, ledger: ReadHandle, first_entry: int, last_entry: int) -> Iterator[Entry]:
        """The entries, all of them, counted."""
        # The plan saw that they are confirmed; the bookies asked now may not know it yet.
        is_known = last_entry <= ledger.last_add_confirmed
        read = ledger.read if is_known else ledger.read_unconfirmed
        for entry in read(first_entry, last_entry):
            self.entries_fetched += 1
            yield entry

    def count_planned(self, of: Slice) -> None:
        """Count the entries of a slice that is read now."""
        self.entries_planned += of.last_entry - of.first_entry + 1

    def may_spare(self, of: Slice) -> bool:
        """Whether reading the footer first could save more entries than the one it costs."""
        return bool(self.predicate.conditions) and of.last_entry > of.first_entry


def read_log(ledger: ReadHandle, of: Slice, decoder: Decoder, fetching: Fetching) -> Iterator[Rows]:
    """The slice's rows out of entries of many rows, without those the predicate rules out.

    Raises:
        PayloadCorruptError: an entry is not what the format says.
        RowsMissingError: the entries hold other rows than the log names.
    """
    fetching.count_planned(of)
    origin = _origin(ledger, of, fetching)
    layout = None
    # A whole range that one task reads without filters shows by itself whether all is there: a
    # footer would only cost. Tasks that share a range each see their own entries only.
    if not of.is_whole or of.is_part or fetching.may_spare(of):
        layout = _layout(ledger, of, origin, fetching)
    if layout is None:
        yield from _read_chained(ledger, of, decoder, origin, fetching)
        return
    yield from _read_laid_out(ledger, of, decoder, layout, fetching)


def _read_laid_out(
    ledger: ReadHandle, of: Slice, decoder: Decoder, layout: Layout, fetching: Fetching
) -> Iterator[Rows]:
    """The slice's rows, each entry checked against the footer; pruned ones unread."""
    first, last = layout.footer.entries_of(of.first_row - layout.origin, of.end_row - layout.origin)
    # A slice of a whole range wants all of its rows by number, but of entries only its own.
    first, last = max(of.first_entry, first), min(of.last_entry, last)
    for run in layout.runs(first, last, fetching.predicate, fetching.schema):
        last_read = run[0] - 1
        for entry in fetching.read(ledger, *run):
            last_read = entry.entry_id
            envelope, batch = _decode(decoder, entry, of.range.schema_id)
            position = layout.origin + envelope.first_row
            first_row, end_row = layout.rows_of(last_read)
            if position != first_row:
                raise RowsMissingError(entry.ledger_id, first_row, position)
            if position + batch.num_rows != end_row:
                raise RowsMissingError(entry.ledger_id, end_row, position + batch.num_rows)
            yield from _cut(batch, position, of, last_read)
        if last_read != run[1]:
            missing_row = layout.rows_of(last_read + 1)[0]
            raise RowsMissingError(ledger.ledger_id, layout.rows_of(run[1])[1], missing_row)


def _read_chained(
    ledger: ReadHandle, of: Slice, decoder: Decoder, origin: int, fetching: Fetching
) -> Iterator[Rows]:
    """The slice's rows where nothing but the entries themselves says which rows they hold."""
    # A slice that begins inside its range cannot know its first row: the entry before, which would
    # tell, is read by another task.
    expected = of.range.first_row if of.first_entry == of.range.first_entry else None
    for entry in fetching.read(ledger, of.first_entry, of.last_entry):
        envelope, batch = _decode(decoder, entry, of.range.schema_id)
        position = origin + envelope.first_row
        _check_start(of, expected, position)
        expected = position + batch.num_rows
        # A range ends where an entry ends, so too many rows show a wrong entry just as too few do.
        if expected > of.range.next_row:
            raise RowsMissingError(of.ledger_id, of.range.next_row, expected)
        yield from _cut(batch, position, of, entry.entry_id)
        # Slices cut by rows all name the entries of the whole range; the rest is another task's.
        if not of.is_whole and expected >= of.end_row:
            break
    if of.is_whole and of.last_entry < of.range.last_entry:
        # The task behind cannot know where this one ended, so this one looks where that begins.
        for entry in fetching.read(ledger, of.last_entry + 1, of.last_entry + 1):
            _check_start(of, expected, origin + _envelope(entry).first_row)
    elif expected is None or expected < of.end_row:
        raise RowsMissingError(of.ledger_id, of.end_row, expected or of.first_row)


def _decode(decoder: Decoder, entry: Entry, schema_id: int) -> tuple[Envelope, pa.RecordBatch]:
    """The entry's rows.

    Raises:
        PayloadCorruptError: it is damaged, foreign, or of another schema than its range.
    """
    envelope, batch = decoder.decode(entry.ledger_id, entry.entry_id, entry.payload)
    if envelope.schema_id != schema_id:
        detail = f"it has schema {envelope.schema_id}, its range schema {schema_id}"
        raise PayloadCorruptError(entry.ledger_id, entry.entry_id, detail)
    return envelope, batch


def _cut(batch: pa.RecordBatch, position: int, of: Slice, entry_id: int) -> Iterator[Rows]:
    """The rows that the slice wants of an entry's, which begin at ``position``; if there are any."""
    skipped = max(0, of.first_row - position)
    kept = min(position + batch.num_rows, of.end_row) - position - skipped
    if kept > 0:
        yield Rows(batch.slice(skipped, kept), of.ledger_id, entry_id, position + skipped)


def _check_start(of: Slice, expected: int | None, position: int) -> None:
    """Fail unless an entry begins where the last one ended, the first one at or before ``first_row``."""
    if expected is None:
        if of.is_whole or position <= of.first_row:
            return
        expected = of.first_row
    if position != expected:
        raise RowsMissingError(of.ledger_id, expected, position)


def read_ledger(
    ledger: ReadHandle, of: Slice, decoder: Decoder, fetching: Fetching
) -> Iterator[Rows]:
    """All rows of a ledger read by id, where no log says which there should be.

    Raises:
        PayloadCorruptError: an entry is not what the format says.
        RowsMissingError: an entry holds other rows than the ledger's footer says.
    """
    fetching.count_planned(of)
    footer = _footer(ledger, fetching) if fetching.may_spare(of) else None
    if footer is not None and len(footer.first_rows) == ledger.last_add_confirmed:
        # The slice counts an entry as a row, and wants all rows that its entries hold.
        every = replace(of, first_row=0, end_row=footer.rows)
        yield from _read_laid_out(ledger, every, decoder, Layout(footer, 0), fetching)
        return
    for entry in fetching.read(ledger, of.first_entry, of.last_entry):
        # No range says where the rows end, so the footer comes along with them.
        if _envelope(entry).kind is EntryKind.FOOTER:
            continue
        envelope, batch = _decode(decoder, entry, of.range.schema_id)
        yield Rows(batch, of.ledger_id, entry.entry_id, envelope.first_row)


def read_raw(
    ledger: ReadHandle, of: Slice, schema: pa.Schema, fetching: Fetching
) -> Iterator[Rows]:
    """One row per entry, in batches.

    Raises:
        PayloadCorruptError: a value of a text column is no UTF-8.
    """
    fetching.count_planned(of)
    payloads: list[memoryview] = []
    size = 0
    first_entry = of.first_entry
    for entry in fetching.read(ledger, of.first_entry, of.last_entry):
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
        # The cast checks UTF-8, which whoever wrote a raw log outside Spark need not have done.
        batch = pa.record_batch([values.cast(schema.field(0).type)], schema=schema)
    except pa.ArrowException as error:
        raise PayloadCorruptError(of.ledger_id, first_entry, str(error)) from error
    position = of.range.first_row + first_entry - of.range.first_entry
    return Rows(batch, of.ledger_id, first_entry, position)


def _origin(ledger: ReadHandle, of: Slice, fetching: Fetching) -> int:
    """Row number in the log of what the ledger counts as its row 0."""
    if of.range.first_entry == 0:
        return of.range.first_row
    # The range begins inside its ledger: only the entry there knows how many rows lie before.
    for entry in fetching.read(ledger, of.range.first_entry, of.range.first_entry):
        return of.range.first_row - _envelope(entry).first_row
    raise RowsMissingError(of.ledger_id, of.range.rows, 0)


def _layout(ledger: ReadHandle, of: Slice, origin: int, fetching: Fetching) -> Layout | None:
    """Where the range's rows lie, if the ledger has a footer behind them that agrees with the log.

    One that does not is ignored: the entries themselves will show what is wrong.
    """
    if ledger.last_add_confirmed <= of.range.last_entry:
        return None
    footer = _footer(ledger, fetching)
    layout = None if footer is None else Layout(footer, origin)
    return layout if layout is not None and layout.holds(of.range) else None


def _footer(ledger: ReadHandle, fetching: Fetching) -> Footer | None:
    if ledger.metadata.custom_metadata.get(FOOTER_KEY) != FOOTER_VERSION:
        return None  # No footer, or one of a later version: the ledger is read without it.
    last_entry = ledger.last_add_confirmed
    # The mark promises nothing: a footer too large for an entry was left out, and a ledger that is
    # still open has none yet.
    for entry in fetching.read(ledger, last_entry, last_entry):
        return parse_footer(entry.ledger_id, entry.entry_id, entry.payload)
    return None


def _envelope(entry: Entry) -> Envelope:
    try:
        return parse_envelope(entry.payload)
    except MalformedEnvelopeError as error:
        raise PayloadCorruptError(entry.ledger_id, entry.entry_id, str(error)) from error
