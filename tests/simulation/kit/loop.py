"""SimLoop: an asyncio event loop without a clock, sockets or threads; and whose task is whose.

Time is an integer of microseconds and jumps to the next timer when nothing else is left to do.
What is due at the same time runs in the order it was asked for, so a run is a pure function of what
its tasks do. Work for an executor is done at once, on the spot.

An :class:`Owner` is a process of the simulated world. Tasks belong to the owner in whose context
they are created, so that a process can be killed: all its tasks end, and nothing it still says
reaches anybody.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("OWNER", default=None)


STEPS_MAX = 400_000
"""Callbacks of one run; the usual run has some thousands. Beyond it something spins."""


class NothingLeftError(Exception):
    """No end can come any more: every task waits and no timer is set, or something spins."""


class Owner:
    """One process: its name, its tasks, and whether it still runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = name.partition("#")[0]
        """The machine's name: what comes before the number of the incarnation."""
        self.is_dead = False
        self.paused_until_us = 0
        self._held: deque[Callable[[], object]] = deque()
        """What came while it was paused, in the order it came."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.at_end: list[Callable[[], None]] = []
        """What its machine does when it is killed."""
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine as this process."""
        loop = asyncio.get_running_loop()
        return self.context.run(loop.create_task, coroutine, name=name)

    def run(self, act: Callable[[], object]) -> None:
        """Do it as this process: not at all once it is dead, not yet while it is paused."""
        if self.is_dead:
            return
        if self._held:  # behind what came before, however often the pause was made longer
            self._held.append(act)
        elif self._is_paused():
            self._held.append(act)
            self._go_on()
        else:
            self.context.run(act)

    def pause(self, until_us: int) -> None:
        """It does nothing until then; of two pauses the longer counts."""
        self.paused_until_us = max(self.paused_until_us, until_us)

    def resume(self) -> None:
        """A pause is over."""
        self.paused_until_us = 0
        _loop().after(0, self._go_on)

    def kill(self) -> None:
        """End the process: what its ``finally`` blocks still do reaches nobody."""
        self.is_dead = True
        for task in self.tasks:
            task.cancel()
        self.tasks.clear()
        for act in self.at_end:
            act()
        self.at_end.clear()

    def _go_on(self) -> None:
        """Do what is held, once no pause is left."""
        while self._held and not self.is_dead:
            if self._is_paused():
                _loop().after(self.paused_until_us - _loop().now_us, self._go_on)
                return
            self.context.run(self._held.popleft())

    def _is_paused(self) -> bool:
        return self.paused_until_us > _loop().now_us


class SimLoop(asyncio.BaseEventLoop):
    """See the module. Made for one simulated run."""

    def __init__(self) -> None:
        super().__init__()
        self.now_us = 0
        self.steps = 0
        """Callbacks run so far."""
        self.steps_max = STEPS_MAX
        self.failures: list[str] = []
        """What escaped from callbacks: defects of whoever scheduled them."""
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self.set_task_factory(_make_task)  # type: ignore[arg-type]
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        return self.now_us / 1_000_000

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        when_us = math.ceil(when * 1_000_000)
        if when_us / 1_000_000 < when:  # never early: whoever is would wait for the same time again
            when_us += 1
        return self._schedule(when_us, callback, args, context)

    def after(
        self, delay_us: int, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Call ``callback`` in ``delay_us``."""
        return self._schedule(self.now_us + delay_us, callback, args, None)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to whoever waits
            future.set_exception(error)
        return future

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _schedule(
        self,
        when_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        when_us = max(when_us, self.now_us)
        handle = asyncio.TimerHandle(when_us / 1_000_000, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when_us, self._timer_count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers stay in the heap until they are due."""

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: no file descriptor is ever watched."""

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if not ready:
            timers = self._timers
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise NothingLeftError(f"nothing left to do at {self.now_us} us")
            self.now_us = timers[0][0]
            while timers and timers[0][0] == self.now_us:
                ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
                self.steps += 1
        if self.steps > self.steps_max:
            raise NothingLeftError(f"still busy after {self.steps} steps, at {self.now_us} us")

    def _note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A task or future nobody asked is reported when it is collected, which is not our time.
        message = str(context.get("message"))
        if "never retrieved" not in message and "was destroyed" not in message:
            self.failures.append(f"{message}: {context.get('exception')!r}")


def _loop() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any],
    context: contextvars.Context | None = None,
) -> asyncio.Task[Any]:
    task = asyncio.Task(coroutine, loop=loop, context=context)
    owner = OWNER.get() if context is None else context.get(OWNER)
    if owner is not None:
        if owner.is_dead:
            task.cancel()  # a process that was killed starts nothing any more
        else:
            owner.tasks.append(task)
    return task
