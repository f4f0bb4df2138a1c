"""LoopThread: an event loop in a daemon thread, for callers who have none."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from bookkeeper_metadata.foundation.errors import ClientClosedError

T = TypeVar("T")

_shared: list[LoopThread] = []
_shared_lock = threading.Lock()
_made: weakref.WeakSet[LoopThread] = weakref.WeakSet()
_END_S = 5.0
"""How long those who live on a loop may take to end when it stops."""


def shared_loop_thread() -> LoopThread:
    """The loop thread of this process, made on first use and stopped at exit.

    One for all clients: gRPC's asyncio core serves one event loop well and stumbles over several.
    """
    with _shared_lock:
        if not _shared or _shared[-1].is_foreign:
            _shared[:] = [LoopThread("bookkeeper-client")]
            atexit.register(_shared[-1].stop)
        return _shared[-1]


class Dependent(Protocol):
    """Somebody who lives on the loop and has something to leave in order."""

    async def end(self) -> None:
        """On the loop: the last thing that happens."""


class LoopThread:
    """Runs until stopped; belongs to the process that made it, never to a forked child."""

    def __init__(self, name: str) -> None:
        self.is_foreign = False
        """Whether this is a forked child of the process that has the thread. Asked with every append:
        an attribute costs a tenth of ``os.getpid()``."""
        _made.add(self)
        self.loop = asyncio.new_event_loop()
        self._dependents: set[Dependent] = set()
        self._unattended: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the loop; blocks until it is done.

        Raises:
            ClientClosedError: the loop was stopped, or is another process's.
        """
        if not self.is_usable:
            coroutine.close()
            raise ClientClosedError("event loop")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run what ends something. Waits for it, but on the loop's own thread, where a generator
        that nobody refers to any more may happen to be collected; nothing once the loop is gone.
        """
        if threading.current_thread() is self._thread:
            self._keep(coroutine)
        elif self.is_usable:
            self.run(coroutine)
        else:
            coroutine.close()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run without waiting; cancelled when the loop stops, nothing once it is gone."""
        if self.is_usable:
            self.loop.call_soon_threadsafe(self._keep, coroutine)
        else:
            coroutine.close()

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """On the loop: a task that nobody else holds is held until it has ended."""
        task = self.loop.create_task(coroutine)
        self._unattended.add(task)
        task.add_done_callback(self._unattended.discard)

    @property
    def is_usable(self) -> bool:
        """Whether coroutines can be run here, in this process."""
        return not self.is_foreign and self._thread.is_alive() and self.loop.is_running()

    def depends(self, dependent: Dependent) -> None:
        """Have ``dependent`` ended when the loop stops."""
        self._dependents.add(dependent)

    def forget(self, dependent: Dependent) -> None:
        """It ended by itself."""
        self._dependents.discard(dependent)

    def stop(self) -> None:
        """End what depends on the loop, cancel what still runs, and end the thread. Idempotent;
        nothing in a forked child.
        """
        if self.is_foreign or not self._thread.is_alive():
            return
        ending = asyncio.run_coroutine_threadsafe(self._end(), self.loop)
        ending.result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        ends = [asyncio.ensure_future(dependent.end()) for dependent in list(self._dependents)]
        if ends:
            await asyncio.wait(ends, timeout=_END_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


def _on_fork() -> None:
    """In a forked child: the threads of its parent are not here."""
    for thread in _made:
        thread.is_foreign = True


os.register_at_fork(after_in_child=_on_fork)
