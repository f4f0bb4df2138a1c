"""LentLoop: an event loop whose turn another thread may take while it waits.

A thread that has an outcome to tell otherwise wakes the loop by way of a socket, and waits for it: of what a small add
costs a bookie that is a good part. While the loop waits for something to happen nothing of it runs, so whoever has
its turn may run a call as the loop would. At no time do two have it: no handler of a signal may raise, nor touch the loop
other than by ``call_soon_threadsafe``.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")


class LentLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        """Whoever holds it runs what is the loop's; free only while the loop waits."""
        self._turn.acquire()
        self._is_lent = False
        self._is_wanted = False
        """Whether a call that another thread ran left something for the loop to do."""
        self._lender = _LendingSelector(self._turn)
        super().__init__(self._lender)

    def call_from_thread(self, call: Callable[[], object]) -> None:
        """Call it as one of the loop's calls: here and now if the loop waits, else soon, on its own thread.

        It may overtake what another thread has handed over, and what the call before it has left to do.
        """
        # A loop that is debugged makes sure that all runs on its own thread.
        if self.get_debug() or not self._turn.acquire(blocking=False):
            self.call_soon_threadsafe(call)
            return
        self._is_lent, self._is_wanted = True, False
        self._lender.was_lent = True
        asyncio._set_running_loop(self)
        try:
            call()
        except Exception as error:  # noqa: BLE001 - as of any call of a loop's: its thread lives on
            context = {"message": f"call from another thread: {call!r}", "exception": error}
            self.call_exception_handler(context)
        finally:
            asyncio._set_running_loop(None)
            self._is_lent = False
            is_wanted = self._is_wanted
            self._turn.release()
            if is_wanted:
                self.call_soon_threadsafe(_wake)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As of any event loop."""
        if self._is_lent:
            self._is_wanted = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As of any event loop."""
        if self._is_lent:
            self._is_wanted = True
        return super().call_at(when, callback, *args, context=context)


class _LendingSelector(selectors.DefaultSelector):
    """Gives the turn away while it waits."""

    def __init__(self, turn: threading.Lock) -> None:
        super().__init__()
        self._turn = turn
        self.was_lent = False
        """Whether the turn was taken since it was given away last."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        self._turn.release()
        try:
            ready = super().select(timeout)
        finally:
            self._turn.acquire()
        if self.was_lent:
            self.was_lent = False
            # Descriptors may be others by now, or watched for something else; what is true of those as well comes again.
            watched = self.get_map()
            ready = [(key, events) for key, events in ready if watched.get(key.fd) is key]
        return ready


def _wake() -> None:
    """Nothing more than that the loop looks what there is to do."""
