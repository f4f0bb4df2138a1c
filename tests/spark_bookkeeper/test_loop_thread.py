"""The loop in a thread: who may wait for it, and what ends with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import CancelledError
from contextlib import aclosing, suppress

import pytest

from bookkeeper_metadata.foundation.errors import ClientClosedError
from spark_bookkeeper.blocking.iteration import iterate
from spark_bookkeeper.blocking.loop_thread import LoopThread
from tests.patience import seconds


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    running = LoopThread("test-loop")
    yield running
    running.stop()


def test_an_iteration_collected_on_the_loop_itself_ends_without_waiting(thread: LoopThread) -> None:
    """It waited for the loop on the loop, for ever."""
    ended: list[bool] = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(10):
                yield number
        finally:
            ended.append(True)

    held = [iterate(thread, numbers())]
    assert next(held[0]) == 0

    async def forget() -> None:
        held.clear()
        await asyncio.sleep(0.01)

    asyncio.run_coroutine_threadsafe(forget(), thread.loop).result(seconds(10))
    assert ended == [True]


def test_who_depends_on_a_loop_that_stops_is_ended_once() -> None:
    ended: list[str] = []

    class Dependent:
        def __init__(self, name: str) -> None:
            self.name = name

        async def end(self) -> None:
            await asyncio.sleep(0.01)
            ended.append(self.name)

    thread, gone = LoopThread("test-loop"), Dependent("gone before")
    thread.add_dependent(gone)
    thread.add_dependent(Dependent("still there"))
    thread.remove_dependent(gone)
    thread.stop()
    thread.stop()

    assert ended == ["still there"]
    with pytest.raises(ClientClosedError):
        thread.run(asyncio.sleep(0))


def test_a_loop_can_be_used_as_soon_as_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a task's first call came before the thread had reached its loop."""
    serve = LoopThread._serve

    def serve_late(thread: LoopThread) -> None:
        threading.Event().wait(0.05)
        serve(thread)

    monkeypatch.setattr(LoopThread, "_serve", serve_late)
    thread = LoopThread("test-loop")

    async def answer() -> int:
        return 42

    assert thread.run(answer()) == 42
    thread.stop()


@pytest.mark.slow
def test_calls_and_stops_at_the_same_moment_all_end() -> None:
    """A call that was handed over as the loop ended, and the second of two stops, waited for ever."""

    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    for _ in range(100):
        running = LoopThread("test-loop")
        start = threading.Barrier(5)

        def call(running: LoopThread = running, start: threading.Barrier = start) -> None:
            start.wait()
            with suppress(ClientClosedError, CancelledError):
                while running.run(answer()) == 42:
                    pass

        def stop(running: LoopThread = running, start: threading.Barrier = start) -> None:
            start.wait()
            running.stop()

        threads = [
            threading.Thread(target=target, daemon=True)
            for target in (call, call, call, stop, stop)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(seconds(20))

        assert not any(each.is_alive() for each in threads)
        assert not running.is_usable


def test_an_iteration_that_nobody_ended_ends_with_the_loop_from_the_outermost_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All its generators were closed at once; one was left in its end, which the collector met later."""
    ended: list[str] = []

    async def numbers(
        name: str, inner: AsyncGenerator[int, None] | None
    ) -> AsyncGenerator[int, None]:
        try:
            if inner is None:
                yield 1
            else:
                async with aclosing(inner):
                    async for number in inner:
                        yield number
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            ended.append(name)

    for _ in range(10):  # which one is closed first is up to chance
        ended.clear()
        thread = LoopThread("test-loop")
        items = numbers("outer", numbers("middle", numbers("inner", None)))
        left = iterate(thread, items)
        assert next(left) == 1
        thread.stop()

        assert ended == ["inner", "middle", "outer"]
        del left, items
    assert not caplog.records
