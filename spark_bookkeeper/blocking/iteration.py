"""Iteration: an asynchronous iteration for a caller in another thread, one crossing per item.

Between two crossings the loop may run ahead. A caller may be interrupted while it waits for an item:
then the loop goes on fetching that item until the iteration is ended, which cancels it first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Generic, TypeVar

from bookkeeper_metadata.foundation.tasks import end_tasks
from spark_bookkeeper.blocking.loop_thread import LoopThread

T = TypeVar("T")


class Iteration(Generic[T]):
    """One iteration; its methods run on the loop. No item is ``None``."""

    def __init__(self, thread: LoopThread, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._fetching: asyncio.Task[T | None] | None = None
        thread.note_iteration(self)

    async def next(self) -> T | None:
        """The next item; ``None`` after the last."""
        self._fetching = asyncio.current_task()
        try:
            return await anext(self._items, None)
        finally:
            self._fetching = None

    async def end(self) -> None:
        """Stop, and cancel the fetch that an interrupted caller left running. Idempotent."""
        if self._fetching is not None:
            # A generator that is running cannot be closed.
            await end_tasks([self._fetching])
        await self._items.aclose()


def iterate(thread: LoopThread, items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Iterate over ``items``; ending the returned iterator ends them too. No item is ``None``."""
    iteration = Iteration(thread, items)
    try:
        while (item := thread.run(iteration.next())) is not None:
            yield item
    finally:
        thread.finish(iteration.end())
