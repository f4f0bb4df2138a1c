"""Comparisons of adds with what is stored already: one task each, a few of a client at once.

They have a budget of memory of their own, whose room is held while a disk is read and never while a client is waited for.
In that of reads they would wait for readers who take no replies, and meanwhile their frames would keep everybody's adds waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from bookie_server.core.effects import Compare
from bookie_server.memory.budget import MemoryBudget
from bookie_server.memory.slots import Slots
from bookie_server.reads.duplicates import compare_with_stored
from bookie_server.reads.fetching import Fetcher
from bookie_server.storage.contents import Contents
from bookie_server.storage.read_outcome import ReadOutcome
from bookie_server.storage.read_plan import ReadPlan
from bookie_server.wire.messages import Status
from bookie_server.wire.record import Run

COMPARISONS_AT_ONCE = 64
"""Of one client. To wait for room takes memory, too: thousands of small adds may be sent again in one frame."""
MEMORY_BYTES_MAX = 8 * 1024 * 1024
"""Memory of stored entries that adds are compared with, all clients together; an entry that needs more takes all of it."""
_LOOK_S = 10.0
"""Nothing of that budget is lent to anybody, so there is nothing to look for."""
_LOGGER = logging.getLogger(__name__)


class Comparisons:
    """For use on one event loop."""

    def __init__(
        self,
        contents: Contents,
        fetcher: Fetcher,
        on_compared: Callable[[Compare, Status | list[Run]], None],
    ) -> None:
        """``on_compared`` gets what :func:`compare_with_stored` found, before anybody else runs."""
        self._contents = contents
        self._fetcher = fetcher
        self.memory = MemoryBudget(MEMORY_BYTES_MAX, patience_s=_LOOK_S)
        self._on_compared = on_compared
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = Slots(COMPARISONS_AT_ONCE)

    def begin(self, effect: Compare) -> None:
        """Answer an add some of whose entries were stored already, whatever becomes of the look."""
        task = asyncio.create_task(self._compare(effect), name="compare-duplicate")
        # The loop itself holds its tasks weakly only.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compare(self, effect: Compare) -> None:
        try:
            fetch = partial(self._fetch, effect.client)
            found = await compare_with_stored(effect, self._contents.plan_read, fetch)
        except Exception:
            _LOGGER.exception("comparison with stored entries. ledger_id=%d", effect.run.ledger_id)
            effect.to(Status.UNKNOWN)
        else:
            self._on_compared(effect, found)

    async def _fetch(self, client: str, make_plan: Callable[[], ReadPlan]) -> ReadOutcome:
        # It is compared before anybody else runs, so the room may be given back here.
        async with self._slots.of(client):
            with self.memory.room(client) as room:
                return await self._fetcher.fetch_one(make_plan, room)
