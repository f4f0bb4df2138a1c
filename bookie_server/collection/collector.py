"""Collector: finds the ledgers that a bookie holds and the metadata does not know any more, and deletes them.

What an error would cost is a ledger, and what a delay costs is space. So:

* an error, or a listing that does not ascend, means "unknown", and nothing is deleted;
* the bookie's ledgers are noted before the metadata is listed, and the listing is behind a sync: what
  was created by then is listed;
* an id that was drawn and may still become a ledger counts as listed (``LedgerIds``). Apache's clients
  do not show theirs, so a ledger must be missing from two collections: an interval is what they have
  to create it;
* its id must be below one that the collection before has drawn: one above it was chosen, and is still
  to be given out;
* then the bookie takes no adds of it, and the metadata is asked once more, behind another sync, by
  name. So no entry is acknowledged between that answer and the tombstone;
* metadata that is a restored copy is not believed; see :mod:`~bookie_server.collection.counter`.

A tombstone that an index loses with its disk is written again by a later collection, as long as
anything of the ledger is left. Source: Apache ``ScanAndCompareGarbageCollector`` (#2246, #4462).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from bookie_server.bookie import Bookie
from bookie_server.collection.counter import CollectionCounter
from bookie_server.collection.rules import (
    Comparison,
    Gone,
    ListingOutOfOrderError,
    confirmed,
    still_gone,
    tombstones,
)
from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import MetadataAccessError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.store.operations import StoreConflict

_LOGGER = logging.getLogger(__name__)
_BATCH = 1_000
"""Ledgers suspected and deleted at once: each of their tombstones is a record of one journal group."""
_READS_IN_FLIGHT = 64


class Collector:
    """Of one bookie; for use on its event loop."""

    def __init__(
        self,
        bookie: Bookie,
        counter: CollectionCounter,
        ledgers: LedgerStore,
        *,
        interval_ms: int,
    ) -> None:
        self._bookie = bookie
        self._counter = counter
        self._ledgers = ledgers
        self._interval_s = interval_ms / 1000
        self.is_metadata_believed = False
        """Whether the last collection could count on it: it is no restored copy."""
        self._gone: Sequence[Gone] = ()
        """What the collection before found, if it came to an end."""
        self._bound = 0
        """An id that the collection before has drawn."""

    async def run(self) -> None:
        """Collect at every interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                deleted = await self.collect()
            except (
                BookKeeperError,
                StoreConflict,
                ListingOutOfOrderError,
                OSError,
            ) as error:
                _LOGGER.warning("nothing collected, what is gone is not known. detail=%r", error)
            else:
                if deleted:
                    _LOGGER.info("ledgers deleted. count=%d", deleted)

    async def collect(self) -> int:
        """One collection; returns how many ledgers it deleted.

        Raises:
            ListingOutOfOrderError, BookKeeperError: what is gone is not known; nothing more was deleted.
            OSError: a disk cannot be written.
        """
        before, bound = self._gone, self._bound
        self._gone = ()
        self.is_metadata_believed = False
        if not await self._counter.count():
            return 0
        self.is_metadata_believed = True
        self._bound = await self._ledgers.draw_id()
        held = await asyncio.to_thread(sorted, self._bookie.held_ledgers)
        await self._ledgers.sync()
        # Before the listing: an id that is in neither was neither to be used nor used in between.
        comparison = Comparison(held, await self._ledgers.ids_being_created())

        def on_hidden(refused: MetadataAccessError, first: int, last: int) -> None:
            # Whoever makes one such folder must not fill disks.
            _LOGGER.error("ledgers that may be there are not collected. detail=%s", refused)
            if first <= last:
                comparison.see_hidden(first, last)

        async for ledger_id in self._ledgers.list_ids(on_hidden=on_hidden):
            comparison.see(ledger_id)
        self._gone = await asyncio.to_thread(comparison.finish)
        deleted = 0
        candidates = await asyncio.to_thread(still_gone, self._gone, before, bound)
        for at in range(0, len(candidates), _BATCH):
            async with self._bookie.suspicion:
                try:
                    deleted += await self._delete(candidates[at : at + _BATCH])
                finally:
                    await self._bookie.suspect(())
        return deleted

    async def _confirm_gone(self, ledger_id: int) -> bool:
        try:
            return await self._ledgers.is_gone(ledger_id)
        except MetadataAccessError:
            return False  # it may be there, and hidden from us

    async def _delete(self, batch: Sequence[Gone]) -> int:
        """Delete those of the batch that are gone for certain; returns how many."""
        ledger_ids = [gone.ledger_id for gone in batch]
        await self._bookie.suspect(ledger_ids)
        await self._ledgers.sync()
        are_gone = await each(self._confirm_gone, ledger_ids, concurrency_max=_READS_IN_FLIGHT)
        doomed = confirmed(batch, are_gone)
        if not doomed:
            return 0
        # From here to the tombstones' admission nothing is awaited: no ledger can come between.
        doomed_ids = {gone.ledger_id for gone in doomed}
        known = self._bookie.known_between(doomed[0].ledger_id, doomed[-1].ledger_id)
        others = sorted(ledger_id for ledger_id in known if ledger_id not in doomed_ids)
        if await self._bookie.delete(tombstones(doomed, others)) is not Status.OK:
            return 0
        self._bookie.measures.deleted_ledgers += len(doomed)
        return len(doomed)
