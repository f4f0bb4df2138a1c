"""LogWriter for callers without an event loop: appends cross to the loop in batches."""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper_metadata.foundation.closing import Closing
from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from spark_bookkeeper.blocking.add_future import AddFuture, Waiters
from spark_bookkeeper.blocking.append_queue import AppendQueue
from spark_bookkeeper.blocking.face import Face
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.writing import writer as aio


class _Batch:
    """Appends that went to the loop together; completes their futures in order."""

    def __init__(self, futures: Sequence[AddFuture[Position]], waiters: Waiters) -> None:
        self._futures = futures
        self._waiters = waiters
        self._done = 0

    def on_acknowledged(self, positions: Sequence[Position]) -> None:
        end = self._done + len(positions)
        for future, position in zip(self._futures[self._done : end], positions, strict=True):
            future.complete(position, None)
        self._done = end
        self._waiters.wake()

    def on_failed(self, error: BookKeeperError) -> None:
        for future in self._futures[self._done :]:
            future.complete(None, error)
        self._waiters.wake()


class LogWriter(Face[aio.LogWriter], Closing):
    """The one writer of a log; safe to share between threads, not with a forked child."""

    def __init__(self, thread: LoopThread, writer: aio.LogWriter) -> None:
        super().__init__(thread, writer)
        self.log = writer.log
        self.settings = writer.settings
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

    def append_async(self, payload: bytes | bytearray | memoryview) -> AddFuture[Position]:
        """Append without waiting for the acknowledgement; futures complete in row order.

        Waits while ``max_in_flight_bytes`` are held for bookies that have not answered.

        Raises:
            EntryTooLargeError, ClientClosedError: it was not appended.
        """
        return self._appends.append(payload, self._aio.payload_size_max)

    def append_many(self, payloads: Sequence[bytes]) -> list[Position]:
        return [future.result() for future in [self.append_async(each) for each in payloads]]

    def flush(self) -> None:
        self._appends.run_behind(self._aio.flush)

    def close(self) -> None:
        self._appends.close(self._aio.close)

    def abandon(self, error: BookKeeperError) -> None:
        """On the loop: fail every append that is not acknowledged, and leave the log to others."""
        self._appends.abandon()
        self._aio.abandon(error)

    def _push(self, payloads: list[bytes], futures: list[AddFuture[Position]]) -> None:
        self._aio.push(payloads, _Batch(futures, self._appends.waiters))
