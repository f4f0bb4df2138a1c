"""Cuts a stream of record batches into entries of about the wanted encoded size.

How well rows compress is learned from the entries before, so an entry is encoded once, rarely
twice. An entry is cut at its encoded size, at 16 MiB decoded, or at a million rows, whichever comes
first: the last two bound memory where rows compress to almost nothing. The elements of lists and maps
count as a byte each at least, as they do for readers. Pure: the encoder is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from bookie_server.wire.limits import ENTRY_SIZE_MAX
from spark_bookkeeper.datasource.errors import RowTooLargeError

PAYLOAD_BYTES_MAX = ENTRY_SIZE_MAX - 64
"""Largest payload: an entry less its header and the longest digest, rounded."""
DECODED_BYTES_TARGET_MAX = 16 << 20
DECODED_BYTES_MAX = 128 << 20
"""Largest entry before it is encoded: half of what a reader decodes, whatever it compresses to."""
ROWS_PER_ENTRY_MAX = 1 << 20

_FIRST_GUESS = 1.0
"""Encoded by decoded size before the first entry taught better: it comes out small, not large."""
_RATIO_MIN, _RATIO_MAX = 1 / 1024, 4.0


@dataclass(frozen=True, slots=True)
class CutEntry:
    """An encoded entry and the rows in it."""

    payload: bytes
    batch: pa.RecordBatch
    first_row: int


class EntryCutter:
    """State of one ledger's cutting; owns the rows that wait for company."""

    def __init__(
        self,
        encode: Callable[[pa.RecordBatch, int], bytes],
        entry_bytes: int,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
    ) -> None:
        self._encode = encode
        self._entry_bytes = entry_bytes
        self._payload_bytes_max = payload_bytes_max
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._ratio = _FIRST_GUESS
        self.rows = 0
        """Rows in entries cut so far."""

    def add(self, batch: pa.RecordBatch) -> Iterator[CutEntry]:
        """Take rows, give the entries that became full."""
        while batch.num_rows:
            part = batch.slice(0, self._fitting(batch))
            size = decoded_size(part)
            # What has two billion elements could not be joined with what waits.
            if self._pending_bytes + size > DECODED_BYTES_MAX:
                yield from self.finish()
            self._pending.append(part)
            self._pending_rows += part.num_rows
            self._pending_bytes += size
            batch = batch.slice(part.num_rows)
            # Rows left over did not fit, so what waits is as full as it gets.
            if batch.num_rows or self._is_full():
                yield from self.finish()

    def finish(self) -> Iterator[CutEntry]:
        """Give what waits as an entry, or as several if it compressed worse than expected."""
        if not self._pending_rows:
            return
        whole = self._pending[0] if len(self._pending) == 1 else pa.concat_batches(self._pending)
        self._pending, self._pending_bytes, self._pending_rows = [], 0, 0
        yield from self._cut(whole)

    def _cut(self, batch: pa.RecordBatch) -> Iterator[CutEntry]:
        decoded = decoded_size(batch)
        if decoded > DECODED_BYTES_MAX:
            yield from self._halve(batch, decoded, DECODED_BYTES_MAX)
            return
        payload = self._encode(batch, self.rows)
        # Bounded, because an entry of a few bytes is nearly all envelope and would make the next
        # one small too.
        self._ratio = min(_RATIO_MAX, max(_RATIO_MIN, len(payload) / max(1, decoded)))
        if len(payload) <= self._payload_bytes_max:
            yield CutEntry(payload, batch, self.rows)
            self.rows += batch.num_rows
        else:
            yield from self._halve(batch, len(payload), self._payload_bytes_max)

    def _halve(self, batch: pa.RecordBatch, size_bytes: int, size_max: int) -> Iterator[CutEntry]:
        """Two entries of one that is too large by one of its sizes.

        Raises:
            RowTooLargeError: it is a single row.
        """
        if batch.num_rows == 1:
            raise RowTooLargeError(self.rows, size_bytes, size_max)
        # Halves, because rows can be of very different sizes: no number of them surely fits.
        half = batch.num_rows // 2
        yield from self._cut(batch.slice(0, half))
        yield from self._cut(batch.slice(half))

    def _room_bytes(self) -> float:
        target = min(DECODED_BYTES_TARGET_MAX, self._entry_bytes / self._ratio)
        return target - self._pending_bytes

    def _fitting(self, batch: pa.RecordBatch) -> int:
        """How many of the batch's rows the entry being filled still takes, at least one."""
        fitting: int = batch.num_rows
        size = decoded_size(batch)
        if size > self._room_bytes():
            fitting = int(fitting * self._room_bytes() / size)
        rows_max: int = batch.num_rows
        # One row at least: a row larger than any room has to go somewhere, if only to be refused.
        return max(1, min(fitting, rows_max, ROWS_PER_ENTRY_MAX - self._pending_rows))

    def _is_full(self) -> bool:
        return self._room_bytes() <= 0 or self._pending_rows >= ROWS_PER_ENTRY_MAX


def decoded_size(batch: pa.RecordBatch) -> int:
    """What the batch counts for before it is encoded: its bytes, or its elements where those are more.

    Readers count the elements beyond the rows, so of each column those of lists and maps.
    """
    elements: int = sum(
        max(0, length - batch.num_rows)
        for column in batch.columns
        for length in _nested_lengths(column)
    )
    return max(int(batch.nbytes), elements)


def _nested_lengths(array: pa.Array) -> Iterator[int]:
    """The length of every array within this one, as far as this one reaches into it."""
    if pa.types.is_struct(array.type):
        children = [array.field(index) for index in range(array.type.num_fields)]
    elif pa.types.is_list(array.type) or pa.types.is_map(array.type):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        if pa.types.is_map(array.type):
            yield last - first  # of its pairs
            children = [array.keys, array.items]
        else:
            children = [array.values]
        children = [child.slice(first, last - first) for child in children]
    else:
        return
    for child in children:
        yield len(child)
        yield from _nested_lengths(child)
