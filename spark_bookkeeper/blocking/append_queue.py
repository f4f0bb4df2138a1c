"""AppendQueue: takes appends from callers' threads to the event loop, many at a time.

A caller's thread puts its payload in a list, and wakes the loop only if no earlier append has done so
already; the loop takes the whole list. That costs a fraction of a microsecond per entry; waking the
loop for each entry costs eleven. Bytes count as held from the call until no bookie needs them any
more, and callers wait while too many are held.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from spark_bookkeeper.blocking.add_future import AddFuture, Waiters
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.ledger.errors import EntryTooLargeError

R = TypeVar("R")


class AppendQueue(Generic[R]):
    """The appends of one writer that its event loop has not taken yet, in order."""

    def __init__(
        self,
        thread: LoopThread,
        what: str,
        *,
        bytes_max: int,
        push: Callable[[list[bytes], list[AddFuture[R]]], None],
        closed_error: Callable[[], BookKeeperError],
    ) -> None:
        """``push`` is called on the loop, with payloads and the futures it has to complete; if it
        raises, it appended none of them. ``what`` names the writer in the error raised in a forked
        child; ``closed_error`` makes the error of an append after :meth:`close`.
        """
        self.waiters = Waiters()
        self._thread = thread
        self._what = what
        self._bytes_max = bytes_max
        self._push = push
        self._closed_error = closed_error
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._queue: list[bytes | AddFuture[R]] = []
        """Each payload, and its future behind it: a pair would be one more object for the garbage collector to look at."""
        self._is_drain_due = False
        self._held_bytes = 0
        self._is_closed = False

    def check_process(self) -> None:
        """Raises ClientClosedError in a forked child: the loop lives in the parent."""
        if self._thread.is_foreign:
            raise ClientClosedError(f"a {self._what} opened before fork")

    def append(self, payload: bytes | bytearray | memoryview, size_max: int) -> AddFuture[R]:
        """Queue one append, once there is room.

        Raises:
            EntryTooLargeError: the payload has more than ``size_max`` bytes.
            ClientClosedError: in a forked child.
            BookKeeperError: the writer was closed; nothing was queued.
        """
        # A copy: the caller may fill its buffer anew as soon as this returns.
        if type(payload) is not bytes:
            payload = bytes(payload)
        if len(payload) > size_max:
            raise EntryTooLargeError(len(payload), size_max)
        future: AddFuture[R] = AddFuture(self.waiters)
        if self._thread.is_foreign:
            self.check_process()
        with self._lock:
            if self._is_closed or self._held_bytes >= self._bytes_max:
                self._wait_for_room()
            self._held_bytes += len(payload)
            # In one step: between two a signal may raise, and each future behind it would be another payload's.
            self._queue.extend((payload, future))
            if self._is_drain_due:
                return future
            self._is_drain_due = True
        # Outside the lock, for the loop that wakes up asks for it first of all.
        self._thread.loop.call_soon_threadsafe(self.drain)
        return future

    def hold(self, size_bytes: int) -> None:
        """Count bytes of appends that do not go through the queue; waits and raises as :meth:`append`."""
        self.check_process()
        with self._lock:
            self._wait_for_room()
            self._held_bytes += size_bytes

    def refuse_appends(self) -> None:
        """Refuse all appends from now on, including those waiting for room. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._has_room.notify_all()

    def close(self, act: Callable[[], Awaitable[None]]) -> None:
        """Refuse appends from now on, push what is queued, then run ``act``; see :meth:`run_behind`."""
        self.check_process()
        self.refuse_appends()
        self.run_behind(act)

    def abandon(self) -> None:
        """On the loop: refuse appends from now on and push what is queued."""
        self.refuse_appends()
        self.drain()

    def drain(self) -> None:
        """On the loop: push everything that is queued, at once."""
        with self._lock:
            queue, self._queue = self._queue, []
            # In one step with taking the list: whoever appends after this wakes the loop again.
            self._is_drain_due = False
        if not queue:
            return
        payloads = cast("list[bytes]", queue[::2])
        futures = cast("list[AddFuture[R]]", queue[1::2])
        try:
            self._push(payloads, futures)
        except BookKeeperError as error:
            # The writer never had them, so it will not release them.
            self.release(sum(map(len, payloads)))
            for future in futures:
                future.complete(None, error)
            self.waiters.wake()

    def run_behind(self, act: Callable[[], Awaitable[None]]) -> None:
        """Push what is queued, then run ``act``, both on the loop; blocks until it is done.

        Raises:
            ClientClosedError: in a forked child, or the loop was stopped.
        """
        self.check_process()
        self._thread.run(self._behind(act))

    def release(self, size_bytes: int) -> None:
        """On the loop: stop counting these bytes as held."""
        with self._lock:
            self._held_bytes -= size_bytes
            if self._held_bytes < self._bytes_max:
                # All of them: how many find room depends on how large their payloads are.
                self._has_room.notify_all()

    async def _behind(self, act: Callable[[], Awaitable[None]]) -> None:
        # What woke the loop for earlier appends may stand behind this in its queue.
        self.drain()
        await act()

    def _wait_for_room(self) -> None:
        # Below the bound is room for a payload of any size: one larger than the bound itself would
        # wait for ever otherwise.
        if self._held_bytes >= self._bytes_max:
            self._has_room.wait_for(lambda: self._is_closed or self._held_bytes < self._bytes_max)
        if self._is_closed:
            raise self._closed_error()
