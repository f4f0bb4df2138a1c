"""SurplusDropper: gives back the space of copies that nobody is promised any more.

A bookie that was away too long comes back with ledgers whose places others have taken, and a copy that ended
before its compare-and-set leaves the same. Such a copy is dropped, not deleted for good: the bookie may get
one again, when others have lost theirs. A false step would cost a copy that counts, so:

* only closed ledgers, which nobody but a mender changes, and none that is marked as under-replicated;
* only if every bookie that the metadata names says that it holds what it is named for: a restored copy of the metadata
  names those of its time, which may have dropped theirs;
* the ledger's mark lock is held meanwhile, so that nobody is about to name this bookie;
* a lock can be lost without a word. So adds of the ledger are refused first, then the metadata is stored anew as
  it is: whoever copied something here before, and has not said so yet, loses its compare-and-set.

The ledger is fenced along with it: a bookie that denies entries must take none. Source: Apache
``ScanAndCompareGarbageCollector.removeOverReplicatedledgers``, which relies on the lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from bookie_server.bookie import Bookie
from bookie_server.collection.peers import Peers
from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import MetadataCorruptError, NoSuchLedgerError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.underreplication import Underreplication

_LOGGER = logging.getLogger(__name__)
_BATCH = 1_000
_READS_IN_FLIGHT = 64
_DROPS_IN_FLIGHT = 8


class SurplusDropper:
    """Of one bookie; for use on its event loop, and never while a collection suspects ledgers."""

    def __init__(
        self,
        bookie: Bookie,
        bookie_id: str,
        ledgers: LedgerStore,
        marks: Underreplication,
        peers: Callable[[], Peers],
    ) -> None:
        """``peers``: makes a connection to the other bookies, for one look."""
        self._bookie = bookie
        self._bookie_id = bookie_id
        self._ledgers = ledgers
        self._marks = marks
        self._peers = peers

    async def drop(self) -> int:
        """Look at all that is held, and drop what is too much; returns how many ledgers that were.

        Raises:
            MetadataUnavailableError: what is too much is not known; what is dropped is dropped.
        """
        await self._marks.release_left()
        held = await asyncio.to_thread(sorted, self._bookie.held_ledgers)
        dropped = 0
        for at in range(0, len(held), _BATCH):
            batch = [each for each in held[at : at + _BATCH] if self._bookie.holds_entries(each)]
            async with self._peers() as peers:
                dropped += await self._drop(batch, peers)
        if dropped:
            _LOGGER.info("copies too many dropped. ledgers=%d", dropped)
        return dropped

    async def _drop(self, ledger_ids: Sequence[int], peers: Peers) -> int:
        async def look_at(ledger_id: int) -> bool:
            try:
                metadata = (await self._ledgers.read(ledger_id)).metadata
            except (NoSuchLedgerError, MetadataCorruptError):
                # The collector's, or an operator's to mend.
                return False
            return self._is_surplus(metadata)

        async def drop(ledger_id: int) -> bool:
            return await self._drop_one(ledger_id, peers)

        are_surplus = await each(look_at, ledger_ids, concurrency_max=_READS_IN_FLIGHT)
        found = [id for id, is_surplus in zip(ledger_ids, are_surplus, strict=True) if is_surplus]
        if not found:
            return 0
        await self._bookie.suspect(found)
        try:
            return sum(await each(drop, found, concurrency_max=_DROPS_IN_FLIGHT))
        finally:
            await self._bookie.suspect(())

    def _is_surplus(self, metadata: LedgerMetadata) -> bool:
        named = {bookie for fragment in metadata.fragments for bookie in fragment.ensemble}
        return metadata.is_closed and self._bookie_id not in named

    async def _drop_one(self, ledger_id: int, peers: Peers) -> bool:
        async with self._marks.lock(ledger_id, f"{self._bookie_id} drops") as is_held:
            try:
                known = await self._ledgers.read(ledger_id)
                is_renewed = (
                    is_held
                    and self._is_surplus(known.metadata)
                    and await self._marks.read(ledger_id) is None
                    and await peers.hold_all(ledger_id, known.metadata)
                    and await self._ledgers.renew(ledger_id, known)
                )
            except (NoSuchLedgerError, MetadataCorruptError):
                return False
            # From the metadata's answer to the drop's admission nothing is awaited.
            if not is_renewed or await self._bookie.drop(ledger_id) is not Status.OK:
                return False
        self._bookie.measures.dropped_ledgers += 1
        return True
