"""How long to wait before trying again: longer each time, never in step with others.

Jitter breaks the lock-step in which equal clients would cancel each other's attempts again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

Pause = Callable[[int], Awaitable[None]]
"""Waits before retry number n, counted from 1; the first attempt is number 0 and starts at once."""

BACKOFF_MS_MIN = 10
BACKOFF_MS_MAX = 1_000


def backoff_ms(retry: int, random: Random) -> int:
    """Full jitter below a bound that doubles from ``BACKOFF_MS_MIN`` to ``BACKOFF_MS_MAX``."""
    # The shift is bounded because retries are not: some loops try for as long as they must.
    return random.randint(0, min(BACKOFF_MS_MAX, BACKOFF_MS_MIN << min(retry - 1, 16)))


async def back_off(attempt: int, random: Random) -> None:
    """Sleep before attempt number ``attempt``, on the running loop's clock; the first is 0."""
    if attempt > 0:
        await asyncio.sleep(backoff_ms(attempt, random) / 1000)


def jittered_pause(random: Random) -> Pause:
    """:func:`back_off` for code that takes its pause from outside."""

    async def pause(retry: int) -> None:
        await back_off(retry, random)

    return pause
