"""Runs and ends asyncio tasks so that none is left running and no outcome is lost; completes futures."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def end_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel all tasks and wait until they have ended, with or without an error."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.gather(*ending, return_exceptions=True)


def settle(future: asyncio.Future[T], result: T) -> None:
    """Complete a future that a timer, a cancellation or a close may have completed before."""
    if not future.done():
        future.set_result(result)


def has_failed(task: asyncio.Task[None]) -> bool:
    """Whether the task was cancelled or raised; its exception counts as retrieved then."""
    return task.done() and (task.cancelled() or task.exception() is not None)


async def run_together(**coroutines: Coroutine[Any, Any, Any]) -> None:
    """Run them, each under its name, until all have ended, one has failed, or this is cancelled; none is left behind.

    Raises:
        Exception: what the first of them failed with.
    """
    tasks = [asyncio.create_task(each, name=name) for name, each in coroutines.items()]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end_tasks(tasks)
