"""The answer to a question that many ask at about the same time, none of whom needs it to be of this very moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Asks anew when the last answer is older than ``age_s``; one question at a time. For one event loop."""

    def __init__(self, ask: Callable[[], Awaitable[T]], age_s: float) -> None:
        self._ask = ask
        self._age_s = age_s
        self._asking = asyncio.Lock()
        self._last: tuple[float, T] | None = None

    async def get(self) -> T:
        """The answer, which was true when it was given; raises what the question raises."""
        async with self._asking:
            # By when it was asked, not answered: it may have been true no longer than that.
            now_s = asyncio.get_running_loop().time()
            if self._last is None or now_s - self._last[0] > self._age_s:
                self._last = now_s, await self._ask()
            return self._last[1]

    def forget(self) -> None:
        """Have the next one ask anew."""
        self._last = None
