"""LogWriter for callers without an event loop: appends cross to the loop in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookkeeper_metadata.foundation.closing import Closing
from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from spark_bookkeeper.blocking.add_future import AddFuture, Waiters
from spark_bookkeeper.blocking.hand_over import HandOver
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.ledger.errors import EntryTooLargeError
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.writing import writer as aio


class PositionFuture:
    """Completes exactly once, with the position of the row or the reason why it has none.

    An :class:`~spark_bookkeeper.blocking.add_future.AddFuture` in all but its result; it cannot be
    cancelled either, for what was handed over may be stored.
    """

    __slots__ = ("_future", "_position")

    def __init__(self, waiters: Waiters) -> None:
        self._future = AddFuture(waiters)
        self._position: Position | None = None

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Position:
        """Where the row stands, once acknowledged.

        Raises:
            TimeoutError: not known within ``timeout`` seconds; it may still be acknowledged.
            BookKeeperError: why it was not acknowledged.
        """
        self._future.result(timeout)
        assert self._position is not None
        return self._position

    def exception(self, timeout: float | None = None) -> BookKeeperError | None:
        """The reason why there is no position, ``None`` when there is one.

        Raises:
            TimeoutError: not known within ``timeout`` seconds.
        """
        return self._future.exception(timeout)

    def add_done_callback(self, callback: Callable[[PositionFuture], object]) -> None:
        """Call ``callback(self)`` once done: at once, or on the client's event loop thread."""
        self._future.add_done_callback(lambda _: callback(self))

    def complete(self, position: Position) -> None:
        """For the writer: it is in the log. Waiters are woken by :meth:`Waiters.wake`."""
        self._position = position
        self._future.complete(position.entry_id, None)

    def fail(self, error: BookKeeperError) -> None:
        """For the writer: it is not, or nobody knows."""
        self._future.complete(-1, error)


class _Batch:
    """Appends that went to the loop together; completes their futures in order."""

    def __init__(self, futures: Sequence[PositionFuture], waiters: Waiters) -> None:
        self._futures = futures
        self._waiters = waiters
        self._done = 0

    def on_acknowledged(self, positions: Sequence[Position]) -> None:
        end = self._done + len(positions)
        for future, position in zip(self._futures[self._done : end], positions, strict=True):
            future.complete(position)
        self._done = end
        self._waiters.wake()

    def on_failed(self, error: BookKeeperError) -> None:
        for future in self._futures[self._done :]:
            future.fail(error)
        self._waiters.wake()


class LogWriter(Closing):
    """The one writer of a log; safe to share between threads, not with a forked child."""

    def __init__(self, thread: LoopThread, writer: aio.LogWriter) -> None:
        self.log = writer.log
        self.settings = writer.settings
        self._writer = writer
        self._waiters = Waiters()
        self._appends = HandOver(
            thread,
            "log writer",
            bytes_max=writer.settings.max_in_flight_bytes,
            take=self._push,
            closed=lambda: ClientClosedError("log writer"),
        )
        writer.on_release = self._appends.on_released

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

    def append_async(self, payload: bytes | bytearray | memoryview) -> PositionFuture:
        """Append without waiting for the acknowledgement; futures complete in row order.

        Waits while ``max_in_flight_bytes`` are held for bookies that have not answered.

        Raises:
            EntryTooLargeError, ClientClosedError: surely not appended.
        """
        if type(payload) is not bytes:
            payload = bytes(payload)
        size = len(payload)
        if size > self._writer.payload_size_max:
            raise EntryTooLargeError(size, self._writer.payload_size_max)
        future = PositionFuture(self._waiters)
        self._appends.put(payload, future)
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
        self._appends.run_behind(self._writer.flush)

    def close(self) -> None:
        """Wait for what is in flight, close the ledger and record it in the log, which is free then.

        Idempotent; appends from now on raise ``ClientClosedError``.

        Raises:
            LogFencedError: the log was taken over; its next writer records the ledger.
            BookKeeperError: not recorded; everything acknowledged is safe.
        """
        self._appends.check_process()
        self._appends.close()
        self._appends.run_behind(self._writer.close)

    def abandon(self, error: BookKeeperError) -> None:
        """On the loop: tell everybody who waits that nothing more will be acknowledged."""
        self._appends.close()
        self._appends.drain()
        self._writer.abandon(error)

    def _push(self, payloads: list[bytes], futures: list[PositionFuture]) -> None:
        batch = _Batch(futures, self._waiters)
        try:
            self._writer.push(payloads, batch)
        except BookKeeperError as error:
            self._appends.on_released(sum(map(len, payloads)))
            batch.on_failed(error)
