"""AppendQueue: takes appends from callers' threads to the event loop, many at a time.

A caller's thread puts its payload in a list, and wakes the loop only if no earlier append has done so
already; the loop takes the whole list. That costs a fraction of a microsecond per entry; waking the
loop for each entry costs eleven. Bytes count as held from the call until no bookie needs them any
more, and callers wait while too many are held.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from spark_bookkeeper.blocking.loop_thread import LoopThread

F = TypeVar("F")


class AppendQueue(Generic[F]):
    """The appends of one writer that its event loop has not taken yet, in order."""

    def __init__(
        self,
        thread: LoopThread,
        what: str,
        *,
        bytes_max: int,
        push: Callable[[list[bytes], list[F]], None],
        closed_error: Callable[[], BookKeeperError],
    ) -> None:
        """``push`` gets payloads and their futures, on the loop. ``what`` names the writer in the
        error of a forked child; ``closed_error`` makes that of an append after :meth:`close`.
        """
        self._thread = thread
        self._what = what
        self._bytes_max = bytes_max
        self._push = push
        self._closed_error = closed_error
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._queue: list[tuple[bytes, F]] = []
        self._is_drain_due = False
        self._held_bytes = 0
        self._is_closed = False

    def check_process(self) -> None:
        """Raises ClientClosedError in a forked child: the loop lives in the parent."""
        if self._thread.is_foreign:
            raise ClientClosedError(f"a {self._what} opened before fork")

    def put(self, payload: bytes, future: F) -> None:
        """Queue one append, once there is room.

        Raises:
            ClientClosedError: in a forked child.
            BookKeeperError: the writer was closed; nothing was queued.
        """
        if self._thread.is_foreign:
            self.check_process()
        with self._lock:
            if self._is_closed or self._held_bytes >= self._bytes_max:
                self._wait_for_room()
            self._held_bytes += len(payload)
            self._queue.append((payload, future))
            if self._is_drain_due:
                return
            self._is_drain_due = True
        self._thread.loop.call_soon_threadsafe(self.drain)

    def hold(self, size_bytes: int) -> None:
        """Count bytes of appends that do not go through the queue; waits and raises as :meth:`put`."""
        self.check_process()
        with self._lock:
            self._wait_for_room()
            self._held_bytes += size_bytes

    def close(self) -> None:
        """Refuse all appends from now on, those that wait for room too. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._has_room.notify_all()

    def drain(self) -> None:
        """On the loop: push everything that is queued, at once."""
        with self._lock:
            batch, self._queue = self._queue, []
            self._is_drain_due = False
        if batch:
            self._push([payload for payload, _ in batch], [future for _, future in batch])

    def run_behind(self, act: Callable[[], Awaitable[None]]) -> None:
        """Push what is queued, then run ``act``, both on the loop; blocks until it is done.

        Raises:
            ClientClosedError: in a forked child, or the loop was stopped.
        """
        self.check_process()
        self._thread.run(self._behind(act))

    def release(self, size_bytes: int) -> None:
        """On the loop: these bytes are not held any more."""
        with self._lock:
            self._held_bytes -= size_bytes
            if self._held_bytes < self._bytes_max:
                self._has_room.notify_all()

    async def _behind(self, act: Callable[[], Awaitable[None]]) -> None:
        self.drain()
        await act()

    def _wait_for_room(self) -> None:
        if self._held_bytes >= self._bytes_max:
            self._has_room.wait_for(lambda: self._is_closed or self._held_bytes < self._bytes_max)
        if self._is_closed:
            raise self._closed_error()
