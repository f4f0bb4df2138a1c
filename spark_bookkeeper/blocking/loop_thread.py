"""LoopThread: an event loop in a daemon thread, for callers who have none."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol, TypeVar

from bookkeeper_metadata.foundation.errors import ClientClosedError

T = TypeVar("T")

_shared: list[LoopThread] = []
_shared_lock = threading.Lock()
_made: weakref.WeakSet[LoopThread] = weakref.WeakSet()
_END_S = 5.0
"""How long dependents of a loop may take to end when the loop stops."""


def shared_loop_thread() -> LoopThread:
    """The loop thread of this process, made on first use and stopped at exit.

    One for all clients: gRPC's asyncio core serves one event loop well and stumbles over several.
    """
    with _shared_lock:
        if not _shared or _shared[-1].is_foreign:
            # A forked child has the object and not the thread; the parent's is left alone.
            _shared[:] = [LoopThread("bookkeeper-client")]
            atexit.register(_shared[-1].stop)
        return _shared[-1]


class Dependent(Protocol):
    """Lives on the loop, and has to be ended before the loop stops."""

    async def end(self) -> None:
        """Leave everything in order; runs on the loop."""


class LoopThread:
    """Runs until stopped; belongs to the process that made it, never to a forked child."""

    def __init__(self, name: str) -> None:
        self.is_foreign = False
        """Whether this is a forked child of the process that has the thread. Asked with every append:
        an attribute costs a tenth of ``os.getpid()``."""
        _made.add(self)
        self.loop = asyncio.new_event_loop()
        self._is_stopping = False
        self._lock = threading.RLock()
        """Held while a call is handed to the loop. Reentrant: the garbage collector may hand over the
        end of a generator in the middle of it."""
        self._dependents: set[Dependent] = set()
        self._iterations: weakref.WeakSet[Dependent] = weakref.WeakSet()
        self._unattended: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        is_running = threading.Event()
        self.loop.call_soon(is_running.set)
        self._thread.start()
        # A thread that has started may not have come to its loop yet: on a busy machine the first
        # call would take it for one that was stopped.
        is_running.wait()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the loop; blocks until it is done.

        Raises:
            ClientClosedError: the loop was stopped, or is another process's.
        """
        with self._calling():
            if self.is_usable:
                called = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
            else:
                # Else Python warns of a coroutine that was never awaited.
                coroutine.close()
                raise ClientClosedError("event loop")
        return called.result()

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a clean-up and wait for it; once the loop is gone, do nothing.

        On the loop's own thread, where the garbage collector may close a generator, it is started
        and not waited for, because the loop cannot wait for itself.
        """
        if threading.current_thread() is self._thread:
            self._hold(coroutine)
        else:
            with suppress(ClientClosedError):
                self.run(coroutine)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run without waiting; cancelled when the loop stops. Once the loop is gone, do nothing."""
        with self._calling():
            if self.is_usable:
                self.loop.call_soon_threadsafe(self._hold, coroutine)
            else:
                coroutine.close()

    def _hold(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """On the loop: hold the task until it has ended, for the loop itself does not."""
        task = self.loop.create_task(coroutine)
        self._unattended.add(task)
        task.add_done_callback(self._unattended.discard)

    @property
    def is_usable(self) -> bool:
        """Whether coroutines can be run here, in this process."""
        return (
            not self.is_foreign
            and not self._is_stopping
            and self._thread.is_alive()
            and self.loop.is_running()
        )

    def _calling(self) -> AbstractContextManager[object]:
        # A forked child's copy of the lock may be held by a thread that it does not have.
        return nullcontext() if self.is_foreign else self._lock

    def add_dependent(self, dependent: Dependent) -> None:
        """End ``dependent`` when the loop stops."""
        self._dependents.add(dependent)

    def remove_dependent(self, dependent: Dependent) -> None:
        """Leave ``dependent`` alone when the loop stops: it has ended."""
        self._dependents.discard(dependent)

    def note_iteration(self, iteration: Dependent) -> None:
        """End ``iteration`` when the loop stops, if it is held by anybody still."""
        with self._calling():
            self._iterations.add(iteration)

    def stop(self) -> None:
        """End what depends on the loop, cancel what still runs, and end the thread. Idempotent; in a
        forked child it does nothing.
        """
        if self.is_foreign:
            return
        # Either of them: it was stopped before, or another thread does so meanwhile.
        with suppress(ClientClosedError, CancelledError):
            self.run(self._end())
        with self._lock:
            if self.is_usable:
                # From here on no call is taken: behind the loop's end it would wait for ever.
                self._is_stopping = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        # With a time limit, because the interpreter's exit waits for this: a cluster that is away
        # must not hold it up.
        ends = [asyncio.ensure_future(dependent.end()) for dependent in list(self._dependents)]
        if ends:
            await asyncio.wait(ends, timeout=_END_S)

    async def _end_iterations(self) -> None:
        # From the outermost generator inwards. ``shutdown_asyncgens`` closes all at once: each then
        # meets an inner one that is being closed already, and is left in the middle of its end.
        with self._calling():
            iterations = list(self._iterations)
        await asyncio.gather(*(each.end() for each in iterations), return_exceptions=True)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            # Run to their ends, or what they hold would not be released and their callers would
            # wait on.
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self._end_iterations())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


def _on_fork() -> None:
    """In a forked child: mark all loop threads as the parent's, for none of them runs here."""
    for thread in _made:
        thread.is_foreign = True


os.register_at_fork(after_in_child=_on_fork)
