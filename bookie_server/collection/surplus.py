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

The ledger is fenced along with it, and from then on denied nothing: see ``LedgerHandleState.is_dropped``. Source: Apache
``ScanAndCompareGarbageCollector.removeOverReplicatedledgers``, which relies on the lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from bookie_server.bookie import Bookie
from bookie_server.collection.peers import Peers
from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import (
    MetadataAccessError,
    MetadataCorruptError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import Versioned
from bookkeeper_metadata.underreplication import Underreplication

_LOGGER = logging.getLogger(__name__)
_BATCH = 1_000
_READS_IN_FLIGHT = 64
_DROPS_IN_FLIGHT = 8
_FIRST_S = 600.0
_LOOK_AGAIN_S = 60.0


class SurplusDropper:
    """Of one bookie; for use on its event loop."""

    def __init__(
        self,
        bookie: Bookie,
        bookie_id: str,
        ledgers: LedgerStore,
        marks: Underreplication,
        peers: Callable[[], Peers],
    ) -> None:
        """``peers``: makes connections to the other bookies, for one look."""
        self._bookie = bookie
        self._bookie_id = bookie_id
        self._ledgers = ledgers
        self._marks = marks
        self._peers = peers

    async def run(self, *, interval_ms: int, is_metadata_believed: Callable[[], bool]) -> None:
        """Look at every interval, until cancelled, but not at metadata that is a restored copy."""
        interval_s = interval_ms / 1000
        # Soon at first: a bookie that is often started would never come to it.
        next_s = asyncio.get_running_loop().time() + min(interval_s, _FIRST_S)
        while True:
            await asyncio.sleep(min(interval_s, _LOOK_AGAIN_S))
            try:
                await self._marks.release_left()
                if is_metadata_believed() and asyncio.get_running_loop().time() >= next_s:
                    await self.drop()
                    next_s = asyncio.get_running_loop().time() + interval_s
            except BookKeeperError as error:
                _LOGGER.warning("copies too many are not known now. detail=%s", error)

    async def drop(self) -> int:
        """Look at all that is held, and drop what is too much; returns how many ledgers that were.

        Raises:
            MetadataUnavailableError: what is too much is not known; what is dropped is dropped.
        """
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
        async def look_at(ledger_id: int) -> Versioned | None:
            return await self._known_surplus(ledger_id, peers)

        async def drop(ledger_id: int) -> bool:
            return await self._drop_one(ledger_id, found[ledger_id])

        looked_at = await each(look_at, ledger_ids, concurrency_max=_READS_IN_FLIGHT)
        found = {id: known for id, known in zip(ledger_ids, looked_at, strict=True) if known}
        if not found:
            return 0
        # Only now, and not for long: meanwhile nobody can make copies of them here.
        async with self._bookie.suspicion:
            await self._bookie.suspect(found)
            try:
                return sum(await each(drop, found, concurrency_max=_DROPS_IN_FLIGHT))
            finally:
                await self._bookie.suspect(())

    async def _known_surplus(self, ledger_id: int, peers: Peers) -> Versioned | None:
        """The ledger's metadata if by that the copy here is one too many."""
        try:
            known = await self._ledgers.read(ledger_id)
        except (NoSuchLedgerError, MetadataCorruptError, MetadataAccessError):
            return None  # the collector's, or an operator's to mend
        metadata = known.metadata
        named = {bookie for fragment in metadata.fragments for bookie in fragment.ensemble}
        if not metadata.is_closed or self._bookie_id in named:
            return None
        last_entry = self._bookie.storage.contents.last_entry(ledger_id)
        if last_entry is None or last_entry > metadata.last_entry:
            # It was ended before entries that are here: at an operator's word, it may be, and in error.
            return None
        return known if await peers.hold_all(ledger_id, metadata) else None

    async def _drop_one(self, ledger_id: int, known: Versioned) -> bool:
        async with self._marks.lock(ledger_id, f"{self._bookie_id} drops") as is_held:
            try:
                is_renewed = (
                    is_held
                    and await self._marks.read(ledger_id) is None
                    and await self._ledgers.renew(ledger_id, known)
                )
            except (MetadataCorruptError, MetadataUnavailableError):
                return False  # a mark that nobody understands, or it is not known; the next look finds out
            # From the metadata's answer to the drop's admission nothing is awaited.
            if not is_renewed or await self._bookie.drop(ledger_id) is not Status.OK:
                return False
        self._bookie.measures.dropped_ledgers += 1
        return True
