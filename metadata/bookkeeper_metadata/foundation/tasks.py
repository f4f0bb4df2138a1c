"""Ends asyncio tasks so that none is left running and no outcome is lost; completes futures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
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
