"""IntegrityCheck: has what a bookie lacks copied back to it, and ends limbo where nothing is lacking any more.

A bookie may lack entries because its directories were lost (the ledgers are in limbo) or because a block of
theirs cannot be read. As long as there is an auditor it marks such ledgers as under-replicated, as that would,
and whoever mends marked ledgers sends it what it lacks. A ledger leaves limbo once

* metadata that was read through a sync behind the durable limbo says CLOSED, so no add is to come and no recovery asks;
* every entry that any of its fragments assigns to this bookie was read from the disk just now.

From then on it is fenced here: a fence may be among what was lost, and a closed ledger has no writer. A
ledger that is not closed stays in limbo, for nobody recovers one only for that. What no other bookie can
serve is never sent, and so keeps its ledger in limbo. Source: Apache ``DataIntegrityCheckImpl``, which recovers
the ledgers that are open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from bookie_server.bookie import Bookie
from bookie_server.core.shares import Share, shares_of
from bookkeeper_metadata.errors import MetadataCorruptError, NoSuchLedgerError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.underreplication import Underreplication

_LOGGER = logging.getLogger(__name__)
_LEDGERS_AT_ONCE = 16
_REST = 4
"""A look is followed by so many times its duration, however short the interval: many ledgers may wait for long."""


class IntegrityCheck:
    """Of one bookie; for use on its event loop."""

    def __init__(
        self,
        bookie: Bookie,
        bookie_id: str,
        ledgers: LedgerStore,
        marks: Underreplication,
        *,
        interval_ms: int,
        pace: LoopPace,
        clock_ms: Callable[[], int],
    ) -> None:
        """``pace`` is of the bytes that are read to verify them."""
        self._bookie = bookie
        self._bookie_id = bookie_id
        self._ledgers = ledgers
        self._marks = marks
        self._interval_s = interval_ms / 1000
        self._pace = pace
        self._clock_ms = clock_ms
        # Limbo begins before a bookie answers anybody, and never later.
        self._limbo = set(bookie.ledgers_in_limbo())

    @property
    def limbo_count(self) -> int:
        """How many ledgers are in limbo."""
        return len(self._limbo)

    async def run(self) -> None:
        """Look at every interval, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            begun_s = loop.time()
            try:
                ended = await self.look()
            except BookKeeperError as error:
                _LOGGER.warning("integrity is not checked now. detail=%s", error)
            else:
                if ended:
                    _LOGGER.info(
                        "limbo ended: every entry is held. ledgers=%d left=%d",
                        ended,
                        len(self._limbo),
                    )
            await asyncio.sleep(max(self._interval_s, _REST * (loop.time() - begun_s)))

    async def look(self) -> int:
        """Look at every ledger that may lack entries; returns for how many limbo ended.

        Raises:
            MetadataUnavailableError: what some of them should hold is not known.
        """
        suspects = sorted(self._limbo.union(self._bookie.verifier.damaged_ledgers))
        if not suspects:
            return 0
        await self._ledgers.sync()
        may_mark = await self._marks.is_attended()

        async def look_at(ledger_id: int) -> bool:
            return await self._look_at(ledger_id, may_mark=may_mark)

        return sum(await each(look_at, suspects, concurrency_max=_LEDGERS_AT_ONCE))

    async def _look_at(self, ledger_id: int, *, may_mark: bool) -> bool:
        """Whether the ledger's limbo ended."""
        if self._bookie.is_deleted(ledger_id):
            self._forget(ledger_id)
            return False
        try:
            metadata = (await self._ledgers.read(ledger_id)).metadata
            mark = await self._marks.read(ledger_id)
        except (NoSuchLedgerError, MetadataCorruptError):
            # The collector deletes it; or it is an operator's to mend, and nothing can be said until then.
            return False
        if mark is not None and self._bookie_id in mark.bookie_ids:
            return False  # it is being mended
        own = [share for share in shares_of(metadata) if share.bookie_id == self._bookie_id]
        is_limbo = ledger_id in self._limbo
        is_whole = await (
            self._holds(ledger_id, own) if is_limbo else self._is_sound(ledger_id, own)
        )
        if not is_whole:
            if may_mark:
                await self._mark(ledger_id)
            return False
        return is_limbo and self._end_limbo(ledger_id, metadata)

    async def _holds(self, ledger_id: int, shares: Iterable[Share]) -> bool:
        """Whether all of these entries can be read from the disk."""
        for share in shares:
            first: int | None = share.fragment.first_entry
            while not share.is_empty and first is not None:
                verified = await self._bookie.verifier.verify(
                    ledger_id, first, share.last_entry, share.stripe
                )
                if not verified.is_sound:
                    return False
                first = verified.next_entry
                await self._pace.take(verified.size_bytes)
        return True

    async def _is_sound(self, ledger_id: int, shares: Iterable[Share]) -> bool:
        """Whether none of these entries is damaged, as far as that is known."""
        damaged = await self._bookie.verifier.look_again(ledger_id)
        if not damaged:
            return True
        _LOGGER.warning(
            "entries cannot be read here. ledger_id=%d first=%d count=%d",
            ledger_id,
            damaged[0],
            len(damaged),
        )
        wanted = set(damaged)
        # Those of an open fragment are its writer's, or its recovery's, until it is complete.
        return not any(
            wanted.intersection(share.entry_ids(damaged[0], damaged[-1])) for share in shares
        )

    async def _mark(self, ledger_id: int) -> None:
        await self._marks.mark(ledger_id, [self._bookie_id], now_ms=self._clock_ms())

    def _end_limbo(self, ledger_id: int, metadata: LedgerMetadata) -> bool:
        if not metadata.is_closed or self._bookie.is_deleted(ledger_id):
            return False
        self._bookie.end_limbo(ledger_id)
        self._limbo.discard(ledger_id)
        return True

    def _forget(self, ledger_id: int) -> None:
        self._limbo.discard(ledger_id)
        self._bookie.verifier.forget(ledger_id)
