"""The ledger that a log's writer appends to now, and the parts of batches that went to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.settings import LogWriterSettings
from spark_bookkeeper.log.writing.appends import Batch
from spark_bookkeeper.log.writing.tail import Tenure


class PresentLedger:
    """The present ledger: how full it is, and what is held for it."""

    def __init__(self, tenure: Tenure) -> None:
        self.appender = tenure.appender
        self.ledger_id = tenure.appender.ledger_id
        self.first_row = tenure.first_row
        self.entries = 0
        self.acknowledged = 0
        """So many of them."""
        self._size_bytes = 0
        self._held_bytes = 0
        self._is_retained = False
        self._timer: asyncio.TimerHandle | None = None

    def take(self, batch: Batch, settings: LogWriterSettings) -> Sequence[bytes]:
        """The next of the batch's payloads that go to this ledger; at least one."""
        first = batch.sent
        while not batch.is_sent and not self.is_full(settings):
            size_bytes = len(batch.payloads[batch.sent])
            self.entries += 1
            self._size_bytes += size_bytes
            self._held_bytes += size_bytes
            batch.sent += 1
        # A batch mostly goes whole to one ledger: its list need not be copied then.
        whole = batch.sent - first == len(batch.payloads)
        return batch.payloads if whole else batch.payloads[first : batch.sent]

    def is_full(self, settings: LogWriterSettings) -> bool:
        """Whether the next payload goes to another ledger."""
        return bool(
            (settings.roll_entries and self.entries >= settings.roll_entries)
            or (settings.roll_bytes and self._size_bytes >= settings.roll_bytes)
        )

    def release_callback(self, release: Callable[[int], None]) -> Callable[[int], None]:
        """The appender's ``on_release``: passes released bytes on, until :meth:`forget_held`."""

        def on_release(size_bytes: int) -> None:
            if self._is_retained:
                return
            size_bytes = min(size_bytes, self._held_bytes)
            self._held_bytes -= size_bytes
            release(size_bytes)

        return on_release

    def retain_held(self) -> None:
        """Keep counting what the appender lets go of from now on: it may have to be sent again."""
        self._is_retained = True

    def forget_held(self) -> int:
        """Stop counting for this ledger; returns the bytes its appender has not released."""
        held, self._held_bytes = self._held_bytes, 0
        return held

    def start_timer(self, interval_ms: int, on_reached: Callable[[], None]) -> None:
        """Call ``on_reached`` after so long, unless it is stopped."""
        self._timer = asyncio.get_running_loop().call_later(interval_ms / 1000, on_reached)

    def stop_timer(self) -> None:
        """Call nothing any more."""
        if self._timer is not None:
            self._timer.cancel()


class PartListener(Protocol):
    """The writer, as its parts see it."""

    def settle(self, count: int) -> None:
        """So many more entries are acknowledged."""

    def on_lost(self, part: Part, error: BookKeeperError) -> None:
        """The rest of the part will not be acknowledged by the ledger's own writer."""


class Part:
    """The part of a batch that went to one ledger; called by the ledger's writer with its outcome."""

    def __init__(
        self, writer: PartListener, batch: Batch, ledger: PresentLedger, payloads: Sequence[bytes]
    ) -> None:
        """``payloads`` were taken from the batch last."""
        self._writer = writer
        self._batch = batch
        self.ledger = ledger
        self._payloads = payloads
        self._first = self._next = ledger.entries - len(payloads)
        self._end = ledger.entries

    def __call__(self, acknowledged: int, error: BookKeeperError | None) -> bool:
        if error is not None:
            self._writer.on_lost(self, error)
            return True
        self._acknowledge(min(self._end, acknowledged + 1))
        return self._next == self._end

    def settle_at(self, entry_count: int) -> Batch | None:
        """The ledger has so many entries for good: acknowledge those; the others are to be sent again."""
        self._acknowledge(min(self._end, entry_count))
        if self._next == self._end:
            return None
        return Batch(self._payloads[self._next - self._first :], self._batch)

    def fail(self, error: BookKeeperError) -> None:
        """What is not acknowledged never will be."""
        self._batch.on_failed(error)

    def _acknowledge(self, end: int) -> None:
        if end > self._next:
            ledger, entries = self.ledger, range(self._next, end)
            self._next = ledger.acknowledged = end
            self._batch.on_acknowledged(
                [Position(ledger.first_row + each, ledger.ledger_id, each) for each in entries]
            )
            self._writer.settle(len(entries))
