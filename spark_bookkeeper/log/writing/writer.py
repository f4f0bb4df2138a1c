"""LogWriter: appends values to a log, across ledgers, as long as it leads the log.

Appends queue in order. They go to the present ledger until that is full; then nothing goes anywhere
until every one of them is acknowledged, the ledger is closed and the log's head names the next
(:mod:`spark_bookkeeper.log.writing.tail`). So acknowledgements come in row order, over rolls too.

Whatever ends a ledger's writer ends this one: it never guesses what became of entries in flight, and
never takes a log back that was taken from it. Its owner asks the log for a new writer, who sees what
is there. Belongs to one event loop, whose clock times the rolls by age.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from bookkeeper_metadata.foundation.closing import AsyncClosing
from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from bookkeeper_metadata.foundation.tasks import has_failed
from spark_bookkeeper.ledger.errors import EntryTooLargeError, LedgerFencedError
from spark_bookkeeper.log.errors import LogFencedError
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.settings import LogWriterSettings
from spark_bookkeeper.log.writing.appends import AppendListener, Batch, Many, One
from spark_bookkeeper.log.writing.leader import Leader
from spark_bookkeeper.log.writing.tail import Tenure

_log = logging.getLogger(__name__)


class LogWriter(AsyncClosing):
    """The one writer of a log; made by :meth:`spark_bookkeeper.log.handle.Log.writer`."""

    def __init__(self, leader: Leader, tenure: Tenure, settings: LogWriterSettings) -> None:
        self.log = leader.log
        self.settings = settings
        self._leader = leader
        self._queue: deque[Batch] = deque()
        self._unacknowledged = 0
        self._held_bytes = 0
        self._error: BookKeeperError | None = None
        self._roll: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._settled.set()
        self._room = asyncio.Event()
        self._room.set()
        self.on_release: Callable[[int], None] | None = None
        """Called with how many payload bytes are no longer held; the synchronous face counts by it."""
        self._ledger = self._open(tenure)

    # -- what it writes to ------------------------------------------------------------------------

    @property
    def ledger_id(self) -> int:
        """The ledger appends go to now."""
        return self._ledger.ledger_id

    @property
    def first_row(self) -> int:
        """Row of the log that the present ledger begins with."""
        return self._ledger.first_row

    @property
    def payload_size_max(self) -> int:
        """Bytes of the largest payload."""
        return self._ledger.appender.payload_size_max

    # -- appending --------------------------------------------------------------------------------

    async def append(self, payload: bytes) -> Position:
        """Append one row; returns where it stands when it is acknowledged.

        Raises:
            EntryTooLargeError, ClientClosedError: it was not appended.
            LogFencedError: the log was taken over before it was acknowledged.
            BookKeeperError: why the writer ended; it may have been appended.
        """
        await self._wait_for_room()
        return await self.append_async(payload)

    def append_async(self, payload: bytes) -> asyncio.Future[Position]:
        """Append without waiting; futures complete in row order."""
        listener = One(asyncio.get_running_loop().create_future())
        self.push([payload], listener)
        return listener.future

    async def append_many(self, payloads: Sequence[bytes]) -> list[Position]:
        """Append all, pipelined and in order; returns when the last one is acknowledged.

        Raises: as :meth:`append`; a prefix may have been acknowledged all the same.
        """
        if not payloads:
            return []
        await self._wait_for_room()
        listener = Many(len(payloads), asyncio.get_running_loop().create_future())
        self.push(payloads, listener)
        return await listener.future

    def push(self, payloads: Sequence[bytes], listener: AppendListener) -> None:
        """Append ``payloads`` behind all that was pushed before; ``listener`` gets the outcome.

        Raises:
            EntryTooLargeError, ClientClosedError: none of them was appended.
            BookKeeperError: why this writer ended earlier.
        """
        if self._error is not None:
            raise self._error
        if self._closing is not None:
            raise ClientClosedError("log writer")
        for payload in payloads:
            # A payload may wait for a later ledger, but all have the log's settings, so one limit.
            if len(payload) > self.payload_size_max:
                raise EntryTooLargeError(len(payload), self.payload_size_max)
        if not payloads:
            return
        self._held_bytes += sum(map(len, payloads))
        if self._held_bytes >= self.settings.max_in_flight_bytes:
            self._room.clear()
        self._unacknowledged += len(payloads)
        self._settled.clear()
        self._queue.append(Batch(payloads, listener))
        self._pump()

    async def flush(self) -> None:
        """Wait until every append made so far is acknowledged.

        Raises:
            BookKeeperError: why some never will be.
        """
        await self._settled.wait()
        if self._error is not None:
            raise self._error

    # -- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Wait for what is in flight, close the ledger and record it in the log, which is free then.

        Idempotent, and tried again after it failed; appends from now on raise ``ClientClosedError``.

        Raises:
            LogFencedError: the log was taken over; its next writer records the ledger.
            BookKeeperError: not recorded; everything acknowledged is safe, and the next writer of
                the log, or ``recover``, records it.
        """
        closing = self._closing
        if closing is None or has_failed(closing):
            closing = self._closing = asyncio.create_task(self._close(), name="close-log-writer")
        # A caller that gives up waiting must not stop a close that others wait for.
        await asyncio.shield(closing)

    def abandon(self, error: BookKeeperError) -> None:
        """Fail what is not acknowledged and leave the log as after a crash: its client goes away.

        Nothing is left to do where the writer was closed.
        """
        if self._closing is not None and self._closing.done() and not has_failed(self._closing):
            return
        if self._roll is not None:
            # Cut off in the middle, a roll may leave an empty ledger that the head names: one more
            # to recover for the next writer, and nothing lost.
            self._roll.cancel()
        self._ledger.appender.abandon(error)
        self.end(error)

    async def _close(self) -> None:
        while self._roll is not None:
            # A roll may end by beginning the next, with what is queued. How it ended stands in
            # ``_error``.
            await asyncio.wait({self._roll})
        if isinstance(self._error, LogFencedError):
            # Whoever took the log over closes our ledger and records it.
            raise self._error
        self._ledger.stop_timer()
        try:
            # After any other error, too: what was acknowledged is recorded all the same.
            await self._ledger.appender.close()
        except LedgerFencedError as fenced:
            raise self._fenced(fenced) from fenced
        await self._leader.resign()

    # -- ledger after ledger ----------------------------------------------------------------------

    def _open(self, tenure: Tenure) -> _Ledger:
        ledger = _Ledger(tenure)
        tenure.appender.on_release = ledger.release_callback(self._release)
        if self.settings.roll_interval_ms:
            ledger.start_timer(self.settings.roll_interval_ms, self._on_age_reached)
        return ledger

    def _pump(self) -> None:
        """Push queued payloads to the present ledger until it is full."""
        while self._queue and self._roll is None and self._error is None:
            batch, ledger = self._queue[0], self._ledger
            payloads = ledger.take(batch, self.settings)
            if batch.is_sent:
                self._queue.popleft()
            try:
                ledger.appender.push(payloads, _Part(self, batch, ledger, len(payloads)))
            except BookKeeperError as error:
                # It may have left the queue just now, and then end() does not reach it.
                batch.fail(self.end(error))
                return
            if ledger.is_full(self.settings):
                self._begin_roll()

    def _on_age_reached(self) -> None:
        if self._roll is not None or self._closing is not None or self._error is not None:
            return
        if self._ledger.entries:
            self._begin_roll()
        else:
            # An empty ledger would only be exchanged for another empty one.
            self._ledger.start_timer(self.settings.roll_interval_ms, self._on_age_reached)

    def _begin_roll(self) -> None:
        self._roll = asyncio.create_task(self._run_roll(), name=f"roll-{self.log}")

    async def _run_roll(self) -> None:
        old = self._ledger
        old.stop_timer()
        try:
            await old.appender.close()
            if self._error is not None:
                return  # An entry in flight was not acknowledged: nothing follows it.
            tenure = await self._leader.roll()
            # The old ledger is closed: answers of slow bookies to it are not waited for.
            self._release(old.forget_held())
            self._ledger = self._open(tenure)
            _log.info(
                "log rolled. log=%s ledger_id=%d row=%d", self.log, self.ledger_id, self.first_row
            )
        except BookKeeperError as error:
            self.end(error)
        finally:
            self._roll = None
            if self._ledger is old and self._error is None:
                self.end(ClientClosedError("log writer"))  # cancelled; never leave appends waiting
        self._pump()

    def settle(self, count: int) -> None:
        """For its ledgers: note that ``count`` more entries are acknowledged."""
        self._unacknowledged -= count
        if not self._unacknowledged:
            self._settled.set()

    def end(self, error: BookKeeperError) -> BookKeeperError:
        """For its ledgers: end this writer, failing queued appends. Returns the error users get."""
        if self._error is None:
            ended = self._fenced(error) if isinstance(error, LedgerFencedError) else error
            self._error = ended
            self._ledger.stop_timer()
            waiting, self._queue = self._queue, deque()
            for batch in waiting:
                batch.fail(ended)
            # Whoever waits for room or in flush wakes, and finds the error.
            self._release(self._held_bytes)
            self._settled.set()
            _log.warning("log writer ended. log=%s error=%s", self.log, ended)
        return self._error

    def _fenced(self, error: LedgerFencedError) -> LogFencedError:
        if isinstance(error, LogFencedError):
            return error
        return LogFencedError(error.ledger_id, self.log)

    # -- memory -----------------------------------------------------------------------------------

    async def _wait_for_room(self) -> None:
        # All who wait wake at once, and the first of them may fill the room again.
        while not self._room.is_set():
            await self._room.wait()

    def _release(self, size_bytes: int) -> None:
        # At its end the writer let go of everything; bookies that answer later must not count
        # twice.
        size_bytes = min(size_bytes, self._held_bytes)
        self._held_bytes -= size_bytes
        if self._held_bytes < self.settings.max_in_flight_bytes:
            self._room.set()
        if size_bytes and self.on_release is not None:
            self.on_release(size_bytes)


class _Ledger:
    """The present ledger: how full it is, and what is held for it."""

    def __init__(self, tenure: Tenure) -> None:
        self.appender = tenure.appender
        self.ledger_id = tenure.appender.ledger_id
        self.first_row = tenure.first_row
        self.entries = 0
        self._size_bytes = 0
        self._held_bytes = 0
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
        return bool(
            (settings.roll_entries and self.entries >= settings.roll_entries)
            or (settings.roll_bytes and self._size_bytes >= settings.roll_bytes)
        )

    def release_callback(self, release: Callable[[int], None]) -> Callable[[int], None]:
        """The appender's ``on_release``: passes released bytes on, until :meth:`forget_held`."""

        def on_release(size_bytes: int) -> None:
            size_bytes = min(size_bytes, self._held_bytes)
            self._held_bytes -= size_bytes
            release(size_bytes)

        return on_release

    def forget_held(self) -> int:
        """Stop counting for this ledger; returns the bytes its appender has not released."""
        held, self._held_bytes = self._held_bytes, 0
        return held

    def start_timer(self, interval_ms: int, on_reached: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(interval_ms / 1000, on_reached)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Part:
    """The part of a batch that went to one ledger; called by the ledger's writer with its outcome."""

    def __init__(self, writer: LogWriter, batch: Batch, ledger: _Ledger, count: int) -> None:
        self._writer = writer
        self._batch = batch
        self._ledger = ledger
        self._next = ledger.entries - count
        self._end = ledger.entries

    def __call__(self, acknowledged: int, error: BookKeeperError | None) -> bool:
        if error is not None:
            self._batch.fail(self._writer.end(error))
            return True
        end = min(self._end, acknowledged + 1)
        if end > self._next:
            ledger, entries = self._ledger, range(self._next, end)
            self._next = end
            self._batch.acknowledge(
                [Position(ledger.first_row + each, ledger.ledger_id, each) for each in entries]
            )
            self._writer.settle(len(entries))
        return self._next == self._end
