"""Scrubber: reads everything at rest now and then, so that damage is found while other copies are left.

What it cannot read the bookie keeps in mind, and the integrity check has it mended. It goes through the
ledgers in order, from one picked at random, so that a bookie which is often started looks at all of them
in the end, unless one alone takes longer than it runs. Source: Apache ``ScrubberStats``, ``localScrubInterval``.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random

from bookie_server.bookie import Bookie
from bookkeeper_metadata.foundation.pace import LoopPace

_LOGGER = logging.getLogger(__name__)
_FIRST_AFTER_S = 60.0
"""A bookie that was just started has other things to do."""


class Scrubber:
    """Of one bookie; for use on its event loop."""

    def __init__(self, bookie: Bookie, *, interval_ms: int, pace: LoopPace, random: Random) -> None:
        """``interval_ms``: from the end of one walk to the begin of the next."""
        self._bookie = bookie
        self._interval_s = interval_ms / 1000
        self._pace = pace
        self._random = random

    async def run(self) -> None:
        """Walk at every interval, until cancelled."""
        await asyncio.sleep(min(_FIRST_AFTER_S, self._interval_s))
        while True:
            read_bytes = await self.walk()
            _LOGGER.info(
                "everything at rest was read. bytes=%d entries_damaged=%d",
                read_bytes,
                self._bookie.verifier.damaged_count,
            )
            await asyncio.sleep(self._interval_s)

    async def walk(self) -> int:
        """Read every entry once; returns how many bytes those were."""
        ledger_ids = await asyncio.to_thread(sorted, self._bookie.held_ledgers)
        if not ledger_ids:
            return 0
        self._bookie.verifier.begin_walk()
        start = self._random.randrange(len(ledger_ids))
        read_bytes = 0
        for ledger_id in (*ledger_ids[start:], *ledger_ids[:start]):
            first: int | None = 0
            while first is not None:
                verified = await self._bookie.verifier.verify(ledger_id, first)
                read_bytes += verified.size_bytes
                self._bookie.measures.scrubbed_bytes += verified.size_bytes
                first = verified.next_entry
                await self._pace.take(verified.size_bytes)
        return read_bytes
