"""LentLoop: who runs a call, and that nothing else of the loop runs meanwhile."""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pytest

from bookie_server import server
from bookie_server.lent_loop import LentLoop
from bookie_server.settings import BookieSettings
from tests.patience import seconds

T = TypeVar("T")
LONG_S = seconds(10)
"""Longer than any test takes; a loop that is not woken has nothing else to wake for."""


def run(main: Callable[[LentLoop], Coroutine[Any, Any, T]], *, debug: bool = False) -> T:
    async def on_loop() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LentLoop)
        return await main(loop)

    with asyncio.Runner(loop_factory=LentLoop, debug=debug) as runner:
        return runner.run(on_loop())


class Other:
    """Another thread, whose calls are made while the loop waits, or is busy."""

    def __init__(self, loop: LentLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(1)
        self.ran_on: list[int] = []
        self.ident: int = self._threads.submit(threading.get_ident).result()

    def noting(self, seen: asyncio.Event) -> Callable[[], None]:
        """A call that notes where it runs, and that it has run."""

        def call() -> None:
            self.ran_on.append(threading.get_ident())
            seen.set()

        return call

    def call(self, call: Callable[[], object]) -> None:
        """Have it called from the thread, once the loop can be doing nothing but to wait."""
        self._threads.submit(self._call, call)

    def _call(self, call: Callable[[], object]) -> None:
        # The loop has just been free, and has nothing to do: whenever it is not waiting yet, it is about to.
        while not self._loop._turn.acquire(blocking=False):
            pass
        self._loop._turn.release()
        self._loop.call_from_thread(call)

    def close(self) -> None:
        self._threads.shutdown()


def test_while_the_loop_waits_a_call_runs_on_the_thread_that_makes_it_as_one_of_the_loops() -> None:
    async def main(loop: LentLoop) -> None:
        other, seen = Other(loop), asyncio.Event()
        loops: list[asyncio.AbstractEventLoop] = []
        other.call(lambda: loops.append(asyncio.get_running_loop()))
        other.call(other.noting(seen))
        await asyncio.wait_for(seen.wait(), LONG_S)
        assert other.ran_on == [other.ident]
        assert loops == [loop]
        other.close()

    run(main)


def test_while_the_loop_is_busy_a_call_is_handed_to_it() -> None:
    async def main(loop: LentLoop) -> None:
        other, seen = Other(loop), asyncio.Event()
        # Within a step of the loop, which ends when the call was made.
        with ThreadPoolExecutor(1) as threads:
            threads.submit(loop.call_from_thread, other.noting(seen)).result()
        assert other.ran_on == []
        await asyncio.wait_for(seen.wait(), LONG_S)
        assert other.ran_on == [threading.get_ident()]
        other.close()

    run(main)


def _soon(loop: LentLoop, seen: Callable[[], None]) -> None:
    loop.call_soon(seen)


def _later(loop: LentLoop, seen: Callable[[], None]) -> None:
    loop.call_later(0.001, seen)


def _by_a_task(loop: LentLoop, seen: Callable[[], None]) -> None:
    async def main() -> None:
        seen()

    tasks.append(loop.create_task(main()))


def _by_a_future(loop: LentLoop, seen: Callable[[], None]) -> None:
    future: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(lambda _: seen())
    future.set_result(None)


tasks: list[asyncio.Task[None]] = []


@pytest.mark.parametrize("leave", [_soon, _later, _by_a_task, _by_a_future])
def test_what_a_call_leaves_to_do_is_done_by_the_loop_that_waited_for_long(
    leave: Callable[[LentLoop, Callable[[], None]], None],
) -> None:
    async def main(loop: LentLoop) -> None:
        other, seen = Other(loop), asyncio.Event()
        left_on: list[int] = []

        def call() -> None:
            left_on.append(threading.get_ident())
            leave(loop, other.noting(seen))

        other.call(call)
        await asyncio.wait_for(seen.wait(), LONG_S)
        assert left_on == [other.ident]
        assert other.ran_on == [threading.get_ident()]
        other.close()

    run(main)


def test_no_two_threads_ever_have_the_turn() -> None:
    async def main(loop: LentLoop) -> None:
        inside = clashes = calls = 0

        def step() -> None:
            nonlocal inside, clashes
            clashes += inside
            inside += 1
            # Here the others get to run, if ever they may.
            threading.Event().wait(0.0001)
            inside -= 1

        def make_calls() -> None:
            for _ in range(300):
                done = threading.Event()
                loop.call_from_thread(partial(count, done))
                done.wait()

        def count(done: threading.Event) -> None:
            nonlocal calls
            step()
            calls += 1
            done.set()

        threads = [threading.Thread(target=make_calls) for _ in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            step()
            await asyncio.sleep(0.0005)
        assert clashes == 0
        assert calls == 900

    run(main)


def test_a_call_that_fails_is_the_loops_to_report_and_its_thread_lives_on() -> None:
    async def main(loop: LentLoop) -> None:
        other, seen = Other(loop), asyncio.Event()
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))

        left = asyncio.Event()

        def fail() -> None:
            loop.call_soon(left.set)
            raise ZeroDivisionError

        def call_twice() -> None:
            loop.call_from_thread(fail)
            other.call(other.noting(seen))

        other.call(fail)
        await asyncio.wait_for(left.wait(), LONG_S)
        failures.clear()
        threading.Thread(target=call_twice).start()
        await asyncio.wait_for(seen.wait(), LONG_S)
        assert other.ran_on == [other.ident]
        assert [type(each) for each in failures] == [ZeroDivisionError]
        other.close()

    run(main)


def test_the_turn_is_free_only_while_the_loop_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, free = LentLoop(), list[bool]()

    def select(*_: object) -> list[tuple[selectors.SelectorKey, int]]:
        free.append(not loop._turn.locked())
        if len(free) == 3:
            raise ZeroDivisionError
        return []

    try:
        monkeypatch.setattr(selectors.DefaultSelector, "select", select)
        for timeout_s in (0, 1):
            loop._lender.select(timeout_s)
        with pytest.raises(ZeroDivisionError):
            loop._lender.select(1)
        assert free == [False, True, True]
        assert loop._turn.locked()
    finally:
        loop.close()


def test_a_descriptor_that_is_watched_anew_meanwhile_is_heard_of() -> None:
    """What the loop had heard of it was for a reader that is gone, and with that it forgot the new one."""

    async def main(loop: LentLoop) -> None:
        other, seen = Other(loop), asyncio.Event()
        read_end, write_end = os.pipe()
        loop.add_reader(read_end, lambda: None)

        def call() -> None:
            # The loop hears of it at once, and then waits for its turn.
            os.write(write_end, b"x")
            threading.Event().wait(0.05)
            loop.remove_reader(read_end)
            loop.add_reader(read_end, seen.set)

        other.call(call)
        await asyncio.wait_for(seen.wait(), seconds(10))
        loop.remove_reader(read_end)
        os.close(read_end)
        os.close(write_end)
        other.close()

    run(main)


def test_a_loop_that_is_debugged_runs_everything_itself() -> None:
    async def main(loop: LentLoop) -> None:
        other, seen = Other(loop), asyncio.Event()
        other.call(other.noting(seen))
        await asyncio.wait_for(seen.wait(), LONG_S)
        assert other.ran_on == [threading.get_ident()]
        other.close()

    run(main, debug=True)


def test_a_bookie_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve(*_: object) -> int:
        loops.append(asyncio.get_running_loop())
        return 0

    monkeypatch.setattr(server, "_trim_and_serve", serve)
    assert server.run(BookieSettings(), server.Start()) == 0
    assert [type(each) for each in loops] == [LentLoop]
