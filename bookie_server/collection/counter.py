"""The counter of collections: nothing is deleted for the sake of metadata that is a restored copy.

Metadata that was restored from a backup lacks the ledgers created since, and a bookie that compared
itself with it would delete them. So every collection is counted on all disks first, then in the
metadata: a copy that was made before the last one counts less than the disks do. Then the metadata is
marked, and nothing is collected until an operator accepts it. A copy newer than the last collection
cannot be told from the metadata itself; that is at most one interval.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.identity.cookie_file import Start, write_start
from bookkeeper_metadata.cluster import instance_id
from bookkeeper_metadata.cookies import CookieStore, RecordedIdentity, StartCounter
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import StoreConflict

_LOGGER = logging.getLogger(__name__)


class CollectionCounter:
    """Of one start of one bookie; ``start`` is what its disks have counted."""

    def __init__(
        self,
        store: MetadataStore,
        root: str,
        files: FileSystem,
        directories: Sequence[str],
        start: Start,
        *,
        bookie_id: str,
        cluster_id: str | None,
    ) -> None:
        self._store = store
        self._root = root
        self._files = files
        self._directories = directories
        self._start = start
        self._bookie_id = bookie_id
        self._cluster_id = cluster_id
        self._cookies = CookieStore(store, root)
        self._confirmed = start.collections
        """What the metadata has certainly counted; the start put it there."""

    async def count(self) -> bool:
        """Count a collection; returns whether the metadata may be believed.

        Raises:
            MetadataUnavailableError, MetadataCorruptError, ClusterNotInitializedError: it is not known.
            OSError: a disk cannot be written.
        """
        recorded = await self._cookies.read(self._bookie_id)
        counter = recorded.counter
        if await instance_id(self._store, self._root) != self._cluster_id:
            _LOGGER.error("the metadata is another cluster's. root=%s", self._root)
            return False
        if counter is None or counter.start_id != self._start.start_id:
            _LOGGER.error("the metadata does not know this start. bookie_id=%s", self._bookie_id)
            return False
        if counter.is_metadata_older:
            # Once it is accepted, it counts on from where the disks are.
            return False
        if not self._confirmed <= counter.collections <= self._start.collections:
            await self._mark_older(counter, recorded)
            return False
        target = counter.collections + 1
        # Again where the disks have it: the last attempt may have come as far as some of them.
        self._start = replace(self._start, collections=target)
        writing = asyncio.ensure_future(asyncio.to_thread(self._write_disks))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # Behind the end of this process another may count on the same disks.
            await asyncio.wait([writing])
            raise
        counted = replace(counter, collections=target)
        try:
            await self._cookies.count_start(self._bookie_id, counted, recorded)
        except StoreConflict:
            _LOGGER.warning("collection not counted: the start counter has changed meanwhile")
            return False
        self._confirmed = target
        return True

    def _write_disks(self) -> None:
        for directory in self._directories:
            write_start(self._files, directory, self._start)

    async def _mark_older(self, counter: StartCounter, recorded: RecordedIdentity) -> None:
        _LOGGER.error(
            "this metadata is a restored copy: nothing is deleted for its sake until `bookkeeper "
            "cookies accept %s` says so. collections=%d collections_on_disk=%d",
            self._bookie_id,
            counter.collections,
            self._start.collections,
        )
        marked = replace(counter, is_metadata_older=True, collections=self._start.collections)
        try:
            await self._cookies.count_start(self._bookie_id, marked, recorded)
        except StoreConflict:
            return  # it is looked at again by the next collection
        self._confirmed = self._start.collections
