"""Ending asyncio tasks: nobody is left running, and no outcome goes unheard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def end_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel all of them and wait until they have ended, whatever came of them."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.gather(*ending, return_exceptions=True)


def has_failed(task: asyncio.Task[None]) -> bool:
    """Whether it ended, and not by doing its work; its exception counts as heard then."""
    return task.done() and (task.cancelled() or task.exception() is not None)
