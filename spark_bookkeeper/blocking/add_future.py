"""AddFuture: the outcome of one asynchronous append, as light as it can be.

``concurrent.futures.Future`` costs a condition per entry, which halves the rate of small appends
(docs/performance.md). This one shares a condition with all futures of its handle and is
completed together with the rest of its frame.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from bookkeeper_metadata.foundation.errors import BookKeeperError

R = TypeVar("R")

_LOGGER = logging.getLogger(__name__)


class Waiters:
    """The threads that wait for any future of one handle; woken once per acknowledged frame."""

    __slots__ = ("condition", "count")

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.count = 0

    def wake(self) -> None:
        """Let each waiting thread check whether its future is done."""
        # Without the lock: the futures are done before this is asked, and a waiter is counted
        # before it looks at its future, so one of the two sees the other.
        if self.count:
            with self.condition:
                self.condition.notify_all()


class AddFuture(Generic[R]):
    """Completes exactly once, with an entry id or a log position, or the error that prevented it.

    The methods are ``concurrent.futures.Future``'s. It cannot be cancelled: the entry may be
    stored already.
    """

    __slots__ = ("_callbacks", "_error", "_is_done", "_result", "_waiters")

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self._is_done = False
        self._result: R | None = None
        self._error: BookKeeperError | None = None
        self._callbacks: list[Callable[[AddFuture[R]], object]] | None = None

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._is_done

    def result(self, timeout: float | None = None) -> R:
        """The entry id or position, once acknowledged.

        Raises:
            TimeoutError: not known within ``timeout`` seconds; it may still be acknowledged.
            BookKeeperError: why it was not acknowledged.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._result is not None
        return self._result

    def exception(self, timeout: float | None = None) -> BookKeeperError | None:
        """Why the append failed; ``None`` if it was acknowledged.

        Raises:
            TimeoutError: not known within ``timeout`` seconds.
        """
        if not self._is_done:
            self._wait(timeout)
        return self._error

    def add_done_callback(self, callback: Callable[[AddFuture[R]], object]) -> None:
        """Call ``callback(self)`` once done: at once, or on the client's event loop thread.

        What it raises is logged.
        """
        if self._callbacks is None:
            self._callbacks = []
        # Registered first and looked at afterwards; complete() does both the other way round, so no
        # callback falls between.
        self._callbacks.append(callback)
        if self._is_done:
            self._call_back()

    def complete(self, result: R | None, error: BookKeeperError | None) -> None:
        """For the writer: set the outcome. :meth:`Waiters.wake` then wakes the waiting threads."""
        self._result = result
        self._error = error
        # Last: threads look at this without a lock, and then at the outcome.
        self._is_done = True
        if self._callbacks:
            self._call_back()

    def _call_back(self) -> None:
        # ``pop`` is atomic: the thread that completes the future and one that registers a callback
        # late never both call it.
        callbacks = self._callbacks
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:
                return
            try:
                callback(self)
            except Exception:
                # The writer that completes this future has others to complete, and work to do.
                _LOGGER.exception("callback of an append failed")

    def _wait(self, timeout: float | None) -> None:
        deadline = None if timeout is None else monotonic() + timeout
        waiters = self._waiters
        with waiters.condition:
            waiters.count += 1
            try:
                while not self._is_done:
                    left = None if deadline is None else deadline - monotonic()
                    if left is not None and left <= 0:
                        raise TimeoutError("not acknowledged yet")
                    waiters.condition.wait(left)
            finally:
                waiters.count -= 1
