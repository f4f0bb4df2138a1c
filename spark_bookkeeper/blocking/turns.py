"""Turns: what an iteration on the event loop is to another thread, one hop per item.

Between hops the loop may run ahead. A caller may be interrupted while it waits for an item: then the
loop still works on that, and whoever ends the iteration stops it first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Generic, TypeVar

from bookkeeper_metadata.foundation.tasks import end_tasks
from spark_bookkeeper.blocking.loop_thread import LoopThread

T = TypeVar("T")


class Turns(Generic[T]):
    """One iteration; its methods run on the loop. No item is ``None``."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._turn: asyncio.Task[T | None] | None = None

    async def next(self) -> T | None:
        """The next item; ``None``: that was all."""
        self._turn = asyncio.current_task()
        try:
            return await anext(self._items, None)
        finally:
            self._turn = None

    async def end(self) -> None:
        """Stop, also what an interrupted caller left going. Idempotent."""
        if self._turn is not None:
            await end_tasks([self._turn])
        await self._items.aclose()


def iterate(thread: LoopThread, items: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items, one hop each; ends their iteration when the caller ends his. No item is ``None``."""
    turns = Turns(items)
    try:
        while (item := thread.run(turns.next())) is not None:
            yield item
    finally:
        thread.finish(turns.end())
