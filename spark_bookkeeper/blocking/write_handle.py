"""WriteHandle for callers without an event loop: appends cross to the loop in batches."""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper_metadata.foundation.closing import Closing
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.blocking.add_future import AddFuture, Waiters
from spark_bookkeeper.blocking.append_queue import AppendQueue
from spark_bookkeeper.blocking.face import Face
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.ledger import write_handle as aio
from spark_bookkeeper.ledger.errors import LedgerClosedError


class _Batch:
    """Appends that went to the loop together; completes them as their entries are acknowledged."""

    __slots__ = ("_done", "_first_entry", "_futures", "_waiters")

    def __init__(self, first_entry: int, futures: list[AddFuture[int]], waiters: Waiters) -> None:
        self._first_entry = first_entry
        self._futures = futures
        self._waiters = waiters
        self._done = 0

    def __call__(self, acknowledged: int, error: BookKeeperError | None) -> bool:
        count = len(self._futures)
        if error is None:
            # Never negative: a batch is asked only once all that was appended before it is
            # acknowledged.
            count = min(count, acknowledged - self._first_entry + 1)
        entry_id = self._first_entry + self._done
        for future in self._futures[self._done : count]:
            future.complete(entry_id, error)
            entry_id += 1
        self._done = max(self._done, count)
        self._waiters.wake()
        return self._done == len(self._futures)


class WriteHandle(Face[aio.WriteHandle], Closing):
    """The single writer of one ledger; safe to share between threads, not with a forked child."""

    def __init__(self, thread: LoopThread, handle: aio.WriteHandle, bytes_max: int) -> None:
        super().__init__(thread, handle)
        self.ledger_id = handle.ledger_id
        self._appends = AppendQueue(
            thread,
            "write handle",
            bytes_max=bytes_max,
            push=self._push,
            closed_error=lambda: LedgerClosedError(self.ledger_id),
        )
        handle.on_release = self._appends.release

    @property
    def metadata(self) -> LedgerMetadata:
        return self._aio.metadata

    @property
    def last_add_pushed(self) -> int:
        return self._aio.last_add_pushed

    @property
    def last_add_confirmed(self) -> int:
        return self._aio.last_add_confirmed

    @property
    def length(self) -> int:
        return self._aio.length

    @property
    def bookies_missed(self) -> frozenset[str]:
        return self._aio.bookies_missed

    def append(self, payload: bytes | bytearray | memoryview) -> int:
        return self.append_async(payload).result()

    def append_async(self, payload: bytes | bytearray | memoryview) -> AddFuture[int]:
        """Append without waiting for the acknowledgement; futures complete in entry order.

        Waits while ``max_in_flight_bytes`` are held for bookies that have not answered.

        Raises:
            EntryTooLargeError, LedgerClosedError, ClientClosedError: it was not appended.
        """
        return self._appends.append(payload, self._aio.payload_size_max)

    def append_many(self, payloads: Sequence[bytes]) -> range:
        self._appends.hold(sum(map(len, payloads)))
        return self._thread.run(self._append_many(payloads))

    def flush(self) -> None:
        self._appends.run_behind(self._aio.flush)

    def close(self) -> None:
        self._appends.close(self._aio.close)

    def abandon(self, error: BookKeeperError) -> None:
        """On the loop: fail every append that is not acknowledged, and leave the ledger open."""
        self._appends.abandon()
        self._aio.abandon(error)

    async def _append_many(self, payloads: Sequence[bytes]) -> range:
        self._appends.drain()  # what other calls appended before comes first
        first_entry = self._aio.last_add_pushed + 1
        try:
            return await self._aio.append_many(payloads)
        finally:
            if self._aio.last_add_pushed < first_entry:  # refused as a whole
                self._appends.release(sum(map(len, payloads)))

    def _push(self, payloads: list[bytes], futures: list[AddFuture[int]]) -> None:
        first_entry = self._aio.last_add_pushed + 1
        self._aio.push(payloads, _Batch(first_entry, futures, self._appends.waiters))
