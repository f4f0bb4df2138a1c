"""IntegrityCheck: has what a bookie lacks copied back to it, and ends limbo where nothing is lacking any more.

A bookie may lack entries because its directories were lost (the ledgers are in limbo) or because a block of
theirs cannot be read. As long as there is an auditor it marks such ledgers as under-replicated, as that would,
and whoever mends marked ledgers sends it what it lacks. A ledger leaves limbo once

* metadata that was read through a sync behind the durable limbo says CLOSED, so no add is to come and no recovery asks;
* every entry that any of its fragments assigns to this bookie is in the index, and was read from the disk then.

From then on it is fenced here: a fence may be among what was lost, and a closed ledger has no writer. What a ledger
has lost here of fragments that others are to hold now is denied never: metadata restored from a backup may name this bookie
for them. A ledger that is not closed stays in limbo, for nobody recovers one only for that. What no other bookie can
serve is never sent, and so keeps its ledger in limbo. Source: Apache ``DataIntegrityCheckImpl``, which recovers
the ledgers that are open.

Two things go on beside each other: looks at all such ledgers, which ask the metadata and the index only, and
at a pace the reading of what could leave limbo, one ledger after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookie_server.bookie import Bookie
from bookie_server.core.shares import Share, shares_of
from bookie_server.wire.messages import IdRange, ListRequest
from bookkeeper_metadata.errors import (
    MetadataConflictError,
    MetadataCorruptError,
    NoSuchLedgerError,
)
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.underreplication import Underreplication

_LOGGER = logging.getLogger(__name__)
_LEDGERS_AT_ONCE = 16
_REST = 4
_REST_S_MAX = 60.0
"""A look is followed by a rest of four times its duration, up to so long: a million ledgers may wait for weeks."""
_READ_AGAIN_S_MAX = 3600.0
"""What could not be read is read again after a while, twice as long each time, up to so long."""


@dataclass(slots=True)
class _Unreadable:
    """A ledger with something that could not be read."""

    again_s: float
    """When it is read again."""
    delay_s: float


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
        self._complete: dict[int, LedgerMetadata] = {}
        """Closed ledgers in limbo of which the index knows all that should be here: to be read."""
        self._unreadable: dict[int, _Unreadable] = {}

    @property
    def limbo_count(self) -> int:
        """How many ledgers are in limbo."""
        return len(self._limbo)

    async def run(self) -> None:
        """Look, and read what could leave limbo, until cancelled."""
        await asyncio.gather(self._keep_looking(), self._keep_reading())

    async def look(self) -> None:
        """Look once at every ledger that may lack entries.

        Raises:
            MetadataUnavailableError: what some of them should hold is not known.
        """
        self._bookie.measures.limbo_count = len(self._limbo)
        suspects = sorted(self._limbo.union(self._bookie.verifier.damaged_ledgers))
        self._unreadable = {
            each: self._unreadable[each] for each in suspects if each in self._unreadable
        }
        if not suspects:
            return
        await self._ledgers.sync()
        may_mark = await self._marks.is_attended()

        async def look_at(ledger_id: int) -> None:
            await self._look_at(ledger_id, may_mark=may_mark)

        await each(look_at, suspects, concurrency_max=_LEDGERS_AT_ONCE)

    async def read(self) -> int:
        """Read what the looks found to be complete; returns for how many ledgers limbo ended."""
        ended = 0
        while self._complete:
            ledger_id, metadata = self._complete.popitem()
            own = self._own_shares(metadata)
            if not self._bookie.is_deleted(ledger_id) and await self._can_read(ledger_id, own):
                is_everywhere = all(self._bookie_id in each.ensemble for each in metadata.fragments)
                self._end_limbo(ledger_id, may_deny=is_everywhere)
                ended += 1
        return ended

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begun_s = loop.time()
            try:
                await self.look()
            except BookKeeperError as error:
                _LOGGER.warning("integrity is not checked now. detail=%s", error)
            rest_s = min(_REST * (loop.time() - begun_s), _REST_S_MAX)
            await asyncio.sleep(max(self._interval_s, rest_s))

    async def _keep_reading(self) -> None:
        while True:
            if ended := await self.read():
                left = len(self._limbo)
                _LOGGER.info("limbo ended: every entry is held. ledgers=%d left=%d", ended, left)
            await asyncio.sleep(self._interval_s)

    async def _look_at(self, ledger_id: int, *, may_mark: bool) -> None:
        if self._bookie.is_deleted(ledger_id):
            self._forget(ledger_id)
            return
        try:
            metadata = (await self._ledgers.read(ledger_id)).metadata
        except (NoSuchLedgerError, MetadataCorruptError):
            # The collector deletes it; or it is an operator's to mend, and nothing can be said until then.
            return
        own = self._own_shares(metadata)
        await self._read_damaged_again(ledger_id)
        held = await self._list(ledger_id)
        if any(share.lacks(held) for share in own):
            if may_mark:
                await self._mark(ledger_id)
            return
        if metadata.is_closed:
            # None of it is wanted here.
            self._bookie.verifier.forget(ledger_id)
            if ledger_id in self._limbo and self._is_due(ledger_id):
                self._complete[ledger_id] = metadata

    def _own_shares(self, metadata: LedgerMetadata) -> list[Share]:
        return [share for share in shares_of(metadata) if share.bookie_id == self._bookie_id]

    async def _list(self, ledger_id: int) -> list[IdRange]:
        """What the index knows of a ledger, but for what is known to be damaged."""
        held: list[IdRange] = []
        next_entry = 0
        while True:
            page = self._bookie.list_entries(ListRequest(ledger_id, next_entry))
            held += page.held
            next_entry = page.next_entry
            if not next_entry:
                return held
            await asyncio.sleep(0)

    async def _mark(self, ledger_id: int) -> None:
        try:
            mark = await self._marks.read(ledger_id)
            if mark is None or self._bookie_id not in mark.bookie_ids:
                await self._marks.mark(ledger_id, [self._bookie_id], now_ms=self._clock_ms())
        except (MetadataCorruptError, MetadataConflictError) as error:
            # One node that nobody understands must not keep the other ledgers unmarked.
            _LOGGER.warning("a ledger that lacks entries is not marked. detail=%s", error)

    async def _can_read(self, ledger_id: int, shares: Sequence[Share]) -> bool:
        """Whether all of these entries can be read from the disk."""
        for share in shares:
            first: int | None = share.fragment.first_entry
            while not share.is_empty and first is not None:
                verified = await self._bookie.verifier.verify(
                    ledger_id, first, share.last_entry, share.stripe
                )
                if not verified.is_sound:
                    # What is damaged is marked by the next look. If that is forgotten, or nothing is
                    # known, it is found again, but not for ever at every look.
                    self._put_off(ledger_id)
                    return False
                first = verified.next_entry
                await self._pace.take(verified.size_bytes)
        return True

    async def _read_damaged_again(self, ledger_id: int) -> None:
        """At first and then seldom: the disk may have had a bad moment only."""
        if self._bookie.verifier.has_damage(ledger_id) and self._is_due(ledger_id):
            self._put_off(ledger_id)
            await self._bookie.verifier.look_again(ledger_id, self._pace)

    def _is_due(self, ledger_id: int) -> bool:
        known = self._unreadable.get(ledger_id)
        return known is None or known.again_s <= asyncio.get_running_loop().time()

    def _put_off(self, ledger_id: int) -> None:
        known = self._unreadable.get(ledger_id)
        delay_s = min(2 * known.delay_s, _READ_AGAIN_S_MAX) if known else self._interval_s
        again_s = asyncio.get_running_loop().time() + delay_s
        self._unreadable[ledger_id] = _Unreadable(again_s, delay_s)

    def _end_limbo(self, ledger_id: int, *, may_deny: bool) -> None:
        self._bookie.end_limbo(ledger_id, may_deny=may_deny)
        self._limbo.discard(ledger_id)
        self._unreadable.pop(ledger_id, None)

    def _forget(self, ledger_id: int) -> None:
        self._limbo.discard(ledger_id)
        self._unreadable.pop(ledger_id, None)
        self._bookie.verifier.forget(ledger_id)
