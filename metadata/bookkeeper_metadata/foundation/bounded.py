"""Runs coroutines side by side, and lets none of them outlive the call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, cast

from bookkeeper_metadata.foundation.tasks import end_tasks

T = TypeVar("T")
R = TypeVar("R")


async def both(first: Awaitable[T], second: Awaitable[R]) -> tuple[T, R]:
    """Wait for two things at once; if both fail, the error of the first is raised."""
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return cast("tuple[T, R]", tuple(outcomes))


async def each(
    run: Callable[[T], Awaitable[R]], items: Iterable[T], *, concurrency_max: int
) -> list[R]:
    """Run ``run`` for every item, at most ``concurrency_max`` at a time; results in item order.

    The first failure cancels the rest, waits until they ended, and is raised as it is.
    """
    todo = list(items)
    results: dict[int, R] = {}
    waiting = iter(enumerate(todo))

    async def work() -> None:
        # All workers draw from one iterator, so none is idle while there is work; nothing is
        # awaited between two draws, so none draws what another has.
        for index, item in waiting:
            results[index] = await run(item)

    workers = [asyncio.ensure_future(work()) for _ in range(min(concurrency_max, len(todo)))]
    try:
        await asyncio.gather(*workers)
    finally:
        await end_tasks(workers)
    return [results[index] for index in range(len(todo))]
