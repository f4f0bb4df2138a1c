"""LogWriter for callers without an event loop: appends cross to the loop in batches.

As :mod:`spark_bookkeeper.blocking.write_handle` does for one ledger: callers' threads queue, and wake
the loop only when it is not coming anyway.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from metadata.errors import BookKeeperError, ClientClosedError, EntryTooLargeError
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.log import writer as aio
from spark_bookkeeper.log.position import Position


class _Batch:
    """Appends that went to the loop together; completes their futures in order."""

    def __init__(self, futures: Sequence[Future[Position]]) -> None:
        self._futures = futures
        self._done = 0

    def acknowledged(self, positions: Sequence[Position]) -> None:
        for position in positions:
            self._futures[self._done].set_result(position)
            self._done += 1

    def failed(self, error: BookKeeperError) -> None:
        for future in self._futures[self._done :]:
            future.set_exception(error)


class LogWriter:
    """The one writer of a log; safe to share between threads, not with a forked child."""

    def __init__(self, thread: LoopThread, writer: aio.LogWriter) -> None:
        self.log = writer.log
        self.settings = writer.settings
        self._thread = thread
        self._writer = writer
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._queue: list[tuple[bytes, Future[Position]]] = []
        self._is_drain_due = False
        self._held_bytes = 0
        self._is_closed = False
        writer.on_release = self._released
        thread.loop.call_soon_threadsafe(thread.depends, self)

    @property
    def ledger_id(self) -> int:
        """The ledger appends go to now."""
        return self._writer.ledger_id

    def append(self, payload: bytes | bytearray | memoryview) -> Position:
        """Append one row; returns where it stands when it is acknowledged.

        Raises: as :meth:`append_async`, and from waiting
            LogFencedError: the log was taken over before it was acknowledged.
            BookKeeperError: why the writer ended; it may have been appended.
        """
        return self.append_async(payload).result()

    def append_async(self, payload: bytes | bytearray | memoryview) -> Future[Position]:
        """Append without waiting for the acknowledgement; futures complete in row order.

        Waits while ``max_in_flight_bytes`` are held for bookies that have not answered. A future
        cannot be cancelled: what was handed over may be stored.

        Raises:
            EntryTooLargeError, ClientClosedError: surely not appended.
        """
        if type(payload) is not bytes:
            payload = bytes(payload)
        size = len(payload)
        if size > self._writer.payload_size_max:
            raise EntryTooLargeError(size, self._writer.payload_size_max)
        self._check_process()
        future: Future[Position] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._enter(size)
            self._queue.append((payload, future))
            if self._is_drain_due:
                return future
            self._is_drain_due = True
        self._thread.loop.call_soon_threadsafe(self._drain)
        return future

    def append_many(self, payloads: Sequence[bytes]) -> list[Position]:
        """Append all, pipelined and in order; returns when the last one is acknowledged.

        Raises: as :meth:`append`; a prefix may have been acknowledged all the same.
        """
        return [future.result() for future in [self.append_async(each) for each in payloads]]

    def flush(self) -> None:
        """Wait until every append made so far is acknowledged.

        Raises:
            BookKeeperError: why some never will be.
        """
        self._check_process()
        self._thread.run(self._flush())

    def close(self) -> None:
        """Wait for what is in flight, close the ledger and record it in the log, which is free then.

        Idempotent; appends from now on raise ``ClientClosedError``.

        Raises:
            LogFencedError: the log was taken over; its next writer records the ledger.
            BookKeeperError: not recorded; everything acknowledged is safe.
        """
        self._check_process()
        with self._lock:
            self._is_closed = True
        self._thread.run(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def abandon(self, error: BookKeeperError) -> None:
        """On the loop: tell everybody who waits that nothing more will be acknowledged."""
        with self._lock:
            self._is_closed = True
        self._drain()
        self._writer.abandon(error)

    def _enter(self, size_bytes: int) -> None:
        """Under the lock: wait for room and take it."""
        if self._held_bytes >= self.settings.max_in_flight_bytes:
            self._has_room.wait_for(
                lambda: self._held_bytes < self.settings.max_in_flight_bytes or self._is_closed
            )
        if self._is_closed:
            raise ClientClosedError("log writer")
        self._held_bytes += size_bytes

    async def _flush(self) -> None:
        self._drain()
        await self._writer.flush()

    async def _close(self) -> None:
        self._drain()
        await self._writer.close()

    def _drain(self) -> None:
        """On the loop: take everything that waits, as one event."""
        with self._lock:
            queued, self._queue = self._queue, []
            self._is_drain_due = False
        if not queued:
            return
        batch = _Batch([future for _, future in queued])
        payloads = [payload for payload, _ in queued]
        try:
            self._writer.push(payloads, batch)
        except BookKeeperError as error:
            self._released(sum(map(len, payloads)))
            batch.failed(error)

    def _released(self, size_bytes: int) -> None:
        with self._lock:
            self._held_bytes -= size_bytes
            if self._held_bytes < self.settings.max_in_flight_bytes:
                self._has_room.notify_all()

    def _check_process(self) -> None:
        if self._thread.pid != os.getpid():
            raise ClientClosedError("a log writer opened before fork")
