"""Waiting for bookies: until the registrations change, or for so long.

Whoever waits looks again by itself, for a watch may be late, and of a bookie that is restarted before
its session expired it may see nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from random import Random
from typing import Self

from bookkeeper_metadata.bookies import BookieRegistry

_SPREAD_S = 0.25


class WaitForBookies:
    """One wait, from its first look to its last; the watch ends with it."""

    def __init__(self, registry: BookieRegistry, random: Random) -> None:
        self._registry = registry
        self._random = random
        self._stack = ExitStack()
        self._has_changed = asyncio.Event()
        self.is_watching = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stack.close()

    async def watch(self) -> None:
        """Watch the registrations from now on; raises MetadataUnavailableError."""
        self._stack.callback(await self._registry.watch(lambda *_: self._has_changed.set()))
        self.is_watching = True
        self._has_changed.clear()  # it has only told how they stand

    async def until_changed(self, seconds_max: float) -> None:
        """Wait until a bookie comes or goes, but no longer than this."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_changed.wait(), seconds_max)
            # A thousand tasks may wait for the same bookie: they do not all ask in one moment.
            await asyncio.sleep(self._random.uniform(0, min(seconds_max, _SPREAD_S)))
        self._has_changed.clear()
