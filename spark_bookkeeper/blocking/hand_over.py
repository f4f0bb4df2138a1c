"""HandOver: how appends get from callers' threads to the event loop.

Callers' threads put payloads in a list and wake the loop only when it is not coming anyway; the
loop takes all that is there. That costs a fraction of a microsecond per entry where a hand-over
per entry costs eleven. Bytes are held from the call until the bookies let go of them, and callers
wait while too many are.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from spark_bookkeeper.blocking.loop_thread import LoopThread

F = TypeVar("F")


class HandOver(Generic[F]):
    """One writer's queue; ``take`` gets payloads and their futures, on the loop, in order."""

    def __init__(
        self,
        thread: LoopThread,
        what: str,
        *,
        bytes_max: int,
        take: Callable[[list[bytes], list[F]], None],
        closed: Callable[[], BookKeeperError],
    ) -> None:
        """``what`` names the writer to whoever uses it in a forked child; ``closed`` makes the error
        for whoever comes late.
        """
        self._thread = thread
        self._what = what
        self._bytes_max = bytes_max
        self._take = take
        self._closed = closed
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
        """Take room for appends that go another way; raises as :meth:`put`."""
        self.check_process()
        with self._lock:
            self._wait_for_room()
            self._held_bytes += size_bytes

    def close(self) -> None:
        """Let nobody in any more, and nobody wait for room. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._has_room.notify_all()

    def drain(self) -> None:
        """On the loop: hand over everything that waits, as one event."""
        with self._lock:
            batch, self._queue = self._queue, []
            self._is_drain_due = False
        if batch:
            self._take([payload for payload, _ in batch], [future for _, future in batch])

    def run_behind(self, act: Callable[[], Awaitable[None]]) -> None:
        """Run ``act`` on the loop, behind everything that was put before; blocks until it is done.

        Raises:
            ClientClosedError: in a forked child, or the loop was stopped.
        """
        self.check_process()
        self._thread.run(self._behind(act))

    def on_released(self, size_bytes: int) -> None:
        """On the loop: nobody holds these bytes any more."""
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
            raise self._closed()
