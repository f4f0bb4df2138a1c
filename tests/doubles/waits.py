"""Waiting for what has no event of its own; a limit says that it never comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.patience import seconds

T = TypeVar("T")
LIMIT_S = 20.0
"""Generous: a machine may be busy, and a real service takes its time."""


async def until(holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Let everything else run until ``holds``.

    Raises:
        TimeoutError: it did not within ``limit_s``, more under load.
    """
    async with asyncio.timeout(seconds(limit_s)):
        while not holds():  # noqa: ASYNC110 - another process or a timer is waited for
            await asyncio.sleep(0.001)


async def until_read(read: Callable[[], Awaitable[T]], accept: Callable[[T], bool]) -> T:
    """Read until what is read is accepted, and return it."""
    async with asyncio.timeout(seconds(LIMIT_S)):
        while True:
            if accept(found := await read()):
                return found
            await asyncio.sleep(0.005)


async def pass_turns(count: int) -> None:
    """Let everything that is ready run, ``count`` times over."""
    for _ in range(count):
        await asyncio.sleep(0)
