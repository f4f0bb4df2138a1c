"""LogWriter for callers without an event loop: appends cross to the loop in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookkeeper_metadata.foundation.closing import Closing
from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from spark_bookkeeper.blocking.add_future import AddFuture, Waiters
from spark_bookkeeper.blocking.append_queue import AppendQueue
from spark_bookkeeper.blocking.face import Face
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.ledger.errors import EntryTooLargeError
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.writing import writer as aio


class PositionFuture:
    """Completes exactly once, with the position of the row or the reason why it has none.

    Like :class:`~spark_bookkeeper.blocking.add_future.AddFuture` in all but its result. It cannot be
    cancelled either: the row may be stored already.
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
        """For the writer: the row is in the log. :meth:`Waiters.wake` then wakes the waiting threads."""
        self._position = position
        self._future.complete(position.entry_id, None)

    def fail(self, error: BookKeeperError) -> None:
        """For the writer: the row is not in the log, or may not be."""
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


class LogWriter(Face[aio.LogWriter], Closing):
    """The one writer of a log; safe to share between threads, not with a forked child."""

    def __init__(self, thread: LoopThread, writer: aio.LogWriter) -> None:
        super().__init__(thread, writer)
        self.log = writer.log
        self.settings = writer.settings
        self._waiters = Waiters()
        self._appends = AppendQueue(
            thread,
            "log writer",
            bytes_max=writer.settings.max_in_flight_bytes,
            push=self._push,
            closed_error=lambda: ClientClosedError("log writer"),
        )
        writer.on_release = self._appends.release

    @property
    def ledger_id(self) -> int:
        return self._aio.ledger_id

    def append(self, payload: bytes | bytearray | memoryview) -> Position:
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
        if size > self._aio.payload_size_max:
            raise EntryTooLargeError(size, self._aio.payload_size_max)
        future = PositionFuture(self._waiters)
        self._appends.put(payload, future)
        return future

    def append_many(self, payloads: Sequence[bytes]) -> list[Position]:
        return [future.result() for future in [self.append_async(each) for each in payloads]]

    def flush(self) -> None:
        self._appends.run_behind(self._aio.flush)

    def close(self) -> None:
        self._appends.check_process()
        self._appends.close()
        self._appends.run_behind(self._aio.close)

    def abandon(self, error: BookKeeperError) -> None:
        """On the loop: fail every append that is not acknowledged, and leave the log to others."""
        self._appends.close()
        self._appends.drain()
        self._aio.abandon(error)

    def _push(self, payloads: list[bytes], futures: list[PositionFuture]) -> None:
        batch = _Batch(futures, self._waiters)
        try:
            self._aio.push(payloads, batch)
        except BookKeeperError as error:
            self._appends.release(sum(map(len, payloads)))
            batch.on_failed(error)
