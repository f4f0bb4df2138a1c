"""LogWriter: appends values to a log, across ledgers, as long as it leads the log.

Appends queue in order. They go to the present ledger until that is full; then nothing goes anywhere
until every one of them is acknowledged, the ledger is closed and the log's head names the next
(:mod:`spark_bookkeeper.log.writing.tail`). So acknowledgements come in row order, over rolls too.

A ledger may be recovered by somebody who does not want the log: by auto-recovery, because a bookie was lost, or by
an operator. Then the head still names it, and the writer goes on in another one once that somebody has had
time to take the log over: what was in flight is acknowledged up to the end that the recovery decided, and the
rest is sent again. Whatever else ends a ledger's writer ends this one: it never guesses what became of
entries in flight, and never takes a log back that was taken from it. Its owner asks the log for a new
writer, who sees what is there. Belongs to one event loop, whose clock times the rolls by age.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from bookkeeper_metadata.foundation.closing import AsyncClosing
from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.foundation.tasks import has_failed
from spark_bookkeeper.ledger.errors import (
    EntryTooLargeError,
    LedgerFencedError,
    LedgerRecoveryError,
)
from spark_bookkeeper.log.errors import LogFencedError
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.settings import LogWriterSettings
from spark_bookkeeper.log.writing.appends import AppendListener, Batch, Many, One
from spark_bookkeeper.log.writing.leader import Leader, Patience
from spark_bookkeeper.log.writing.parts import Part, PresentLedger
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
        self._lost: list[Part] = []
        """What the present ledger's writer did not acknowledge before it was fenced, in order."""
        self._is_fenced = False
        """The present ledger is, or was, recovered by somebody else."""
        self._patience = Patience(settings.recovered_ledger_grace_ms)
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
    def _is_rolling(self) -> bool:
        return self._roll is not None

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

        Where somebody recovers the ledger with appends in flight, these go to another one first, as ever.

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
        while True:
            while self._is_rolling:
                assert self._roll is not None
                # A roll may end by beginning the next, with what is queued. How it ended stands in
                # ``_error``.
                await asyncio.wait({self._roll})
            if isinstance(self._error, LogFencedError):
                # Whoever took the log over closes our ledger and records it.
                raise self._error
            ledger = self._ledger
            ledger.stop_timer()
            failure: BookKeeperError | None = None
            try:
                # After any other error, too: what was acknowledged is recorded all the same.
                await ledger.appender.close()
            except LedgerFencedError:
                pass  # its end is another's to decide, and the resignation waits for that
            except BookKeeperError as error:
                failure = error
            # If it was fenced meanwhile, what it had in flight goes to the next, which is to be closed then.
            if ledger is self._ledger and not self._is_rolling:
                break
        if failure is not None:
            raise failure
        await self._leader.resign()

    # -- ledger after ledger ----------------------------------------------------------------------

    def _open(self, tenure: Tenure) -> PresentLedger:
        ledger = PresentLedger(tenure)
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
            part = Part(self, batch, ledger, payloads)
            try:
                ledger.appender.push(payloads, part)
            except BookKeeperError as error:
                # It may have left the queue just now, and then end() does not reach it.
                self.on_lost(part, error)
                return
            if ledger.is_full(self.settings) and self._roll is None:
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
            tenure = await self._follow(old)
            if tenure is None:
                return  # An entry in flight was not acknowledged: nothing follows it.
            again = self._settle_lost(old, tenure.first_row - old.first_row)
            # The old ledger is closed: answers of slow bookies to it are not waited for. What is sent
            # again is held on.
            let_go = old.forget_held() - again
            invariant(let_go >= 0, "what was lost is held from then on")
            self._release(let_go)
            self._is_fenced = False
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

    async def _follow(self, old: PresentLedger) -> Tenure | None:
        """The next ledger, behind the end of the old one, whoever decides that; ``None``: the writer has ended."""
        if not self._is_fenced:
            try:
                await old.appender.close()
            except LedgerFencedError:
                self._is_fenced = True
            except BookKeeperError:
                # While it was closed the fence may have come, and then its end is another's to decide.
                if not self._is_fenced:
                    raise
        if self._error is not None:
            return None
        if not self._is_fenced:
            return await self._leader.roll()
        grace_s = self._patience.next_s(asyncio.get_running_loop().time())
        _log.warning(
            "ledger fenced by somebody else. log=%s ledger_id=%d grace_s=%g",
            self.log,
            old.ledger_id,
            grace_s,
        )
        return await self._leader.regain(grace_s)

    def _settle_lost(self, old: PresentLedger, entry_count: int) -> int:
        """The old ledger has so many entries for good; returns the bytes that are sent again.

        Raises:
            LedgerRecoveryError: some that were acknowledged are not among them.
        """
        if entry_count < old.acknowledged:
            detail = (
                f"it ends behind {entry_count} entries, and {old.acknowledged} were acknowledged"
            )
            raise LedgerRecoveryError(old.ledger_id, detail)
        lost, self._lost = self._lost, []
        again = [rest for part in lost if (rest := part.settle_at(entry_count)) is not None]
        self._queue.extendleft(reversed(again))
        return sum(len(payload) for batch in again for payload in batch.payloads)

    def on_lost(self, part: Part, error: BookKeeperError) -> None:
        """For its ledgers: the rest of a part will not be acknowledged by the ledger's writer."""
        if self._error is not None or not isinstance(error, LedgerFencedError):
            part.fail(self.end(error))
            return
        self._lost.append(part)
        self._is_fenced = True
        part.ledger.retain_held()
        if self._roll is None:
            self._begin_roll()

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
            lost, self._lost = self._lost, []
            for part in lost:
                part.fail(ended)
            waiting, self._queue = self._queue, deque()
            for batch in waiting:
                batch.on_failed(ended)
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
