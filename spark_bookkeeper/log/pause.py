"""How long to wait before trying again: longer each time, never in step with others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

Pause = Callable[[int], Awaitable[None]]
"""Waits before the retry of that number, counted from 1."""

PAUSE_FIRST_MS = 5
PAUSE_MAX_MS = 1_000


def pause_ms(retry: int, random: Random) -> int:
    """Full jitter below a bound that doubles from ``PAUSE_FIRST_MS`` to ``PAUSE_MAX_MS``."""
    return random.randint(0, min(PAUSE_MAX_MS, PAUSE_FIRST_MS << min(retry - 1, 16)))


def jittered_pause(random: Random) -> Pause:
    """A pause of :func:`pause_ms` on the running loop's clock."""

    async def pause(retry: int) -> None:
        await asyncio.sleep(pause_ms(retry, random) / 1000)

    return pause
