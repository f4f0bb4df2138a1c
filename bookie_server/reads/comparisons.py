"""Comparisons of adds with what is stored already: one task each, a few of a client at once."""

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
_COMPARISONS = "comparisons with stored entries"
"""As which clients they ask for memory: those of one client's adds as one, beside its reads."""
_LOGGER = logging.getLogger(__name__)


class Comparisons:
    """For use on one event loop."""

    def __init__(
        self,
        contents: Contents,
        fetcher: Fetcher,
        memory: MemoryBudget,
        on_compared: Callable[[Compare, Status | list[Run]], None],
    ) -> None:
        """``on_compared`` gets what :func:`compare_with_stored` found, before anybody else runs."""
        self._contents = contents
        self._fetcher = fetcher
        self._memory = memory
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
            with self._memory.room(f"{_COMPARISONS} of {client}") as room:
                return await self._fetcher.fetch_one(make_plan, room)
