"""The loop in a thread: who may wait for it, and what ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

import pytest

from metadata.errors import BookKeeperError, ClientClosedError
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.blocking.read_handle import iterate


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

    asyncio.run_coroutine_threadsafe(forget(), thread.loop).result(10)
    assert ended == [True]


def test_who_depends_on_a_loop_that_stops_is_told_once() -> None:
    told: list[BookKeeperError] = []

    class Waiting:
        def abandon(self, error: BookKeeperError) -> None:
            told.append(error)

    thread, waiting = LoopThread("test-loop"), Waiting()
    thread.loop.call_soon_threadsafe(thread.depends, waiting)
    thread.stop()
    thread.stop()

    assert [type(error) for error in told] == [ClientClosedError]
    with pytest.raises(ClientClosedError):
        thread.run(asyncio.sleep(0))
