"""Writes rows into one ledger: entries cut and encoded, a footer behind them, a bound on what is in flight.

Used by tasks of a write, and by those that rewrite old ledgers into new ones. Nothing is named before it
is acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_bookkeeper.blocking.add_future import AddFuture
from spark_bookkeeper.blocking.write_handle import WriteHandle
from spark_bookkeeper.datasource.payload.codec import encoder_of, ledger_marks
from spark_bookkeeper.datasource.payload.entry_cutter import CutEntry, EntryCutter
from spark_bookkeeper.datasource.payload.footer import FOOTER_KEY, FOOTER_VERSION, FooterBuilder
from spark_bookkeeper.datasource.session import PAYLOAD_KEY, SCHEMA_KEY
from spark_bookkeeper.ledger.client import LOG_MARK
from spark_bookkeeper.log.format.epoch import Epoch, LedgerWritten
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.format.raw import RAW


@dataclass(frozen=True, slots=True)
class RowForm:
    """How the rows of one ledger are stored."""

    settings: LogSettings
    schema: pa.Schema
    schema_id: int
    stats_columns: int
    """First columns of a comparable type whose bounds are recorded."""
    clock_ms: Callable[[], int]

    @property
    def is_raw(self) -> bool:
        """One entry is one row of one value."""
        return self.settings.payload_format == RAW

    def marks(self, epoch: Epoch) -> dict[str, bytes]:
        """What the ledger's custom metadata says of its entries."""
        found = {
            LOG_MARK: epoch.log.encode(),
            SCHEMA_KEY: f"{epoch.log_id}/{self.schema_id}".encode(),
            PAYLOAD_KEY: self.settings.payload_format.encode(),
            **ledger_marks(self.settings.payload_format, self.schema),
        }
        if not self.is_raw:
            found[FOOTER_KEY] = FOOTER_VERSION
        return found


def write_batches(
    batches: Iterable[pa.RecordBatch], pipeline: Pipeline, form: RowForm
) -> LedgerWritten:
    """Write batches of exactly the form's schema, and the footer; all of it is acknowledged then."""
    encoder = encoder_of(
        form.settings.payload_format, form.schema, form.schema_id, form.settings.compression
    )
    cutter = EntryCutter(
        lambda batch, first_row: encoder.encode(batch, first_row, form.clock_ms()),
        form.settings.entry_bytes,
    )
    footer = FooterBuilder(form.schema, form.stats_columns)

    def cut() -> Iterator[CutEntry]:
        for batch in batches:
            yield from cutter.add(batch)
        yield from cutter.finish()

    for entry in cut():
        footer.add(entry)
        pipeline.append(entry.payload)
    # Taken before the footer goes out, which holds no rows: the range that the log records ends
    # before it.
    entries, size_bytes = pipeline.entries, pipeline.size_bytes
    closing = footer.encode(form.schema_id, form.clock_ms())
    if closing is not None:
        pipeline.append(closing)
    # A message may only name what is acknowledged: anything else need not be there tomorrow.
    pipeline.drain()
    bounds = footer.column_ranges()
    return LedgerWritten(
        pipeline.ledger_id, entries - 1, cutter.rows, size_bytes, form.schema_id, bounds
    )


def write_values(
    values: Iterable[bytes | memoryview], pipeline: Pipeline, schema_id: int
) -> LedgerWritten:
    """Write plain values, an entry each; all of it is acknowledged then."""
    for value in values:
        pipeline.append(value)
    pipeline.drain()
    return LedgerWritten(
        pipeline.ledger_id,
        pipeline.entries - 1,
        pipeline.entries,
        pipeline.size_bytes,
        schema_id,
    )


class Pipeline:
    """Appends entries to a ledger, with a bound on the bytes not yet acknowledged."""

    def __init__(self, ledger: WriteHandle, in_flight_bytes_max: int) -> None:
        self.ledger_id = ledger.ledger_id
        self.entries = 0
        self.size_bytes = 0
        self._ledger = ledger
        self._bytes_max = in_flight_bytes_max
        self._in_flight: deque[tuple[AddFuture[int], int]] = deque()
        self._in_flight_bytes = 0

    def append(self, payload: bytes | memoryview) -> None:
        """Hand one entry over, after waiting for room.

        Raises:
            BookKeeperError: this entry or one before it was not acknowledged.
        """
        # What is done is looked at even while there is room: futures complete in entry order, so a
        # failed entry ends the task here and not after it has filled the window.
        while self._in_flight and (
            self._in_flight[0][0].done() or self._in_flight_bytes + len(payload) > self._bytes_max
        ):
            self._await_oldest()
        self._in_flight.append((self._ledger.append_async(payload), len(payload)))
        self._in_flight_bytes += len(payload)
        self.entries += 1
        self.size_bytes += len(payload)

    def drain(self) -> None:
        """Wait until everything is acknowledged; raises as :meth:`append`."""
        while self._in_flight:
            self._await_oldest()

    def _await_oldest(self) -> None:
        future, size = self._in_flight.popleft()
        future.result()
        self._in_flight_bytes -= size
