"""Identity: a start is counted on the disks first, then in the metadata, and holds as long as both say so.

The steps of a start, each safe to be the last one before a crash:

1. read what the metadata knows of this id; look at the directories, and refuse what is not right; lock them,
   and look at both again;
2. write cookie files and the start counter into every directory;
3. count the start in the metadata by compare-and-set: of two processes under one id one goes on;
4. (the storage is opened; what a lost disk may not deny is made durable)
5. write the cookie in the metadata: from now on empty directories under this id are a lost disk.

A later start under the same id, on other directories, shows in the start counter: then this process
ends, for what it went on to acknowledge the other one would deny.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random

from bookie_server.collection.counter import CollectionCounter
from bookie_server.settings import BookieSettings
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.identity.claim import lock_if_fit, mark_as_own
from bookie_server.storage.identity.cookie_file import Start, instance_id_of
from bookie_server.storage.identity.start_plan import Applicant
from bookkeeper_metadata.cookies import (
    Cookie,
    CookieStore,
    RecordedIdentity,
    StartCounter,
    parse_counter,
)
from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import Node, StoreConflict

_LOGGER = logging.getLogger(__name__)
_ANOTHER = (
    "another process has started under this bookie id, on other directories, or the bookie was "
    "forgotten (`bookkeeper cookies delete`)"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A bookie's claim to its id and directories; see the module."""

    cookie: Cookie
    locks: ExitStack
    start: Start | None
    """As it is counted on the disks; ``None`` for one that is not."""
    _store: MetadataStore
    _root: str
    _recorded: RecordedIdentity
    _counter: StartCounter

    async def write_cookie(self) -> None:
        """Step 5: tell the cluster that this bookie belongs to it, where its directories are now.

        Raises:
            StorageRefusedError: another process did so under the same id.
        """
        try:
            await CookieStore(self._store, self._root).write_cookie(self.cookie, self._recorded)
        except StoreConflict as cause:
            raise StorageRefusedError(cause.path, _ANOTHER) from cause

    def collection_counter(
        self, files: FileSystem, directories: Sequence[str]
    ) -> CollectionCounter | None:
        """What counts the collections of this start; ``None`` if the start itself is not counted."""
        if self.start is None:
            return None
        return CollectionCounter(
            self._store,
            self._root,
            files,
            directories,
            self.start,
            bookie_id=self.cookie.bookie_id,
            cluster_id=self.cookie.instance_id,
        )

    async def watch(self, fail: Callable[[Exception], None]) -> None:
        """Call ``fail`` when another process starts under this id; for the life of the session."""
        path = Paths(self._root).start_counter(self.cookie.bookie_id)

        def look(node: Node | None) -> None:
            # Gone, or not understood: neither says that somebody else has started.
            if node is None:
                return
            try:
                start_id = parse_counter(node.value, path).start_id
            except MetadataCorruptError:
                _LOGGER.exception("start counter. path=%s", path)
                return
            if start_id != self._counter.start_id:
                fail(StorageRefusedError(path, _ANOTHER))

        await self._store.watch(path, look)


async def claim_identity(
    store: MetadataStore,
    root: str,
    files: FileSystem,
    settings: BookieSettings,
    *,
    cluster_id: str,
    random: Random,
    may_replace: bool = False,
    is_counted: bool = True,
) -> Identity:
    """Steps 1 to 3 of a start of the bookie that ``settings`` name by its id.

    ``may_replace``: the operator says that what is missing is lost. ``is_counted`` is false where
    ``files`` keep nothing: such a start acknowledges nothing, so the metadata need not know of it.

    Raises:
        StorageRefusedError: the directories are not this bookie's, not all there, or old.
        MetadataCorruptError, MetadataUnavailableError: it is not known what should be there.
        OSError: a directory cannot be used.
    """
    bookie_id = settings.bookie_id
    cookies = CookieStore(store, root)

    def new_id() -> str:
        return f"{random.getrandbits(128):032x}"

    def applicant(recorded: RecordedIdentity) -> Applicant:
        return _applicant(settings, cluster_id, recorded, may_replace=may_replace)

    recorded = await cookies.read(bookie_id)
    locks = await asyncio.to_thread(
        lock_if_fit, files, settings.storage, applicant(recorded), new_id
    )
    with ExitStack() as undo:
        undo.enter_context(locks)
        # Again, since nobody else has the directories: one who had them until now may have counted a start, and
        # whatever is written over that on the disks would make them strangers to the metadata.
        recorded = await cookies.read(bookie_id)
        plan = await asyncio.to_thread(
            mark_as_own, files, settings.storage, applicant(recorded), new_id
        )
        counter = recorded.counter or StartCounter(0)
        for note in plan.notes:
            _LOGGER.warning(note)
        if not is_counted:
            undo.pop_all()
            return Identity(
                _cookie(settings, cluster_id), locks, None, store, root, recorded, counter
            )
        start = plan.start
        is_older = plan.is_metadata_older or counter.is_metadata_older
        counter = StartCounter(
            start.number,
            start.start_id,
            is_metadata_older=is_older,
            collections=start.collections,
        )
        try:
            await cookies.count_start(bookie_id, counter, recorded)
        except StoreConflict as cause:
            raise StorageRefusedError(cause.path, _ANOTHER) from cause
        undo.pop_all()
    if counter.is_metadata_older:
        _LOGGER.warning(
            "this metadata is a restored copy: nothing is deleted for its sake until "
            "`bookkeeper cookies accept` says so. bookie_id=%s",
            bookie_id,
        )
    cookie = _cookie(settings, cluster_id)
    return Identity(cookie, locks, start, store, root, recorded, counter)


def _applicant(
    settings: BookieSettings, cluster_id: str, recorded: RecordedIdentity, *, may_replace: bool
) -> Applicant:
    counter = recorded.counter or StartCounter(0)
    return Applicant(
        bookie_id=settings.bookie_id,
        cluster_id=cluster_id,
        has_cookie=recorded.cookie is not None,
        starts=counter.starts,
        start_id=counter.start_id,
        collections=counter.collections,
        instance_id=instance_id_of(cluster_id, settings.bookie_id),
        journals=recorded.cookie.journal_directories if recorded.cookie is not None else (),
        ledgers=recorded.cookie.ledger_directories if recorded.cookie is not None else (),
        is_forgotten=counter.is_forgotten,
        may_replace=may_replace,
        may_expand=settings.allow_storage_expansion,
    )


def _cookie(settings: BookieSettings, cluster_id: str) -> Cookie:
    journals, ledgers = (
        tuple(map(os.path.abspath, directories))
        for directories in (settings.journal_directories, settings.ledger_directories)
    )
    return Cookie(settings.bookie_id, journals, ledgers, cluster_id)
