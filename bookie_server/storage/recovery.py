"""Opening a bookie's storage: what is loaded, replayed, judged and made durable, in which order.

1. Lock every directory, load every index; refuse what is not this bookie's before changing anything.
2. Where an index is damaged, rebuild its rows from the entry logs' footers.
3. Replay each journal from its smallest mark; when the cache is full, checkpoint on the way.
4. After damage of any kind put every known ledger in limbo and fence it, and record durably that
   damage is unanswered, *before* a mark may pass it.
5. Begin new journal files, so that a torn tail is never written behind; checkpoint, so that the
   replayed bytes are not replayed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bookie_server.core.handle_state import UNASSIGNED, LedgerHandleState
from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.damage import Damage
from bookie_server.storage.disk.errors import StorageFailedError, StorageRefusedError
from bookie_server.storage.disk.files import File, FileSystem
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.index.delta import IndexState
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.index.handle_state import decode_handle_state
from bookie_server.storage.journal.journal import Journal, JournalPlace, file_ids
from bookie_server.storage.journal.replay import ORIGIN, Replay
from bookie_server.storage.logs.entry_log import file_name as log_name
from bookie_server.storage.logs.entry_log import log_ids

if TYPE_CHECKING:
    from bookie_server.storage.engine import Storage

LOCK_NAME = "lock"


@dataclass(slots=True)
class RecoveryReport:
    """What opening the storage found."""

    groups: int = 0
    records: int = 0
    bytes_replayed: int = 0
    groups_torn: int = 0
    bytes_torn: int = 0
    is_new: bool = False
    """Nothing is stored: this bookie is new, or its disks were emptied. Only the metadata can tell
    the two apart, so until somebody asks it this counts as damage not yet answered."""
    damage: list[Damage] = field(default_factory=list)
    """Non-empty: acknowledged records may be missing. The caller says by ``set_limbo`` which ledgers
    of the metadata that concerns; until then, and after a restart too, it is reported again."""


def lock_directories(files: FileSystem, settings: StorageSettings) -> list[File]:
    """Create what is missing and hold every directory against a second process.

    Raises:
        BlockingIOError: another process has one of them.
    """
    locks: list[File] = []
    try:
        for directory in (*settings.journal_directories, *settings.ledger_directories):
            files.make_directory(directory)
            locks.append(files.lock(f"{directory}/{LOCK_NAME}"))
    except OSError:
        for lock in locks:
            lock.close()
        raise
    return locks


def recover(
    storage: Storage,
    files: FileSystem,
    settings: StorageSettings,
    indexes: Sequence[DirectoryIndex],
    *,
    instance_id: bytes,
    progress: Callable[[int], None] | None,
) -> None:
    """Steps 1 to 4 for a storage that is still empty.

    Raises:
        StorageRefusedError, StorageFailedError, OSError: see ``Storage.open``.
    """
    # The last process may have been killed before it synced what it left: nothing is built upon a
    # file whose name a power loss may still take away.
    for directory in (*settings.journal_directories, *settings.ledger_directories):
        files.sync_dir(directory)
    for index in indexes:
        index.load()
    recovery = _Recovery(files, settings, instance_id, indexes)
    recovery.load()
    recovery.restore(storage)
    for number in range(len(settings.journal_directories)):
        recovery.replay(storage, number, progress)
    recovery.settle(storage)


def begin_journals(
    files: FileSystem,
    settings: StorageSettings,
    instance_id: bytes,
    clock_ms: Callable[[], int],
    ends: Mapping[int, GroupEnd],
) -> Iterator[Journal]:
    """A new file in each journal directory, behind the given ends.

    Raises:
        StorageFailedError: one cannot be made.
    """
    for number, directory in enumerate(settings.journal_directories):
        place = JournalPlace(
            directory=directory,
            index=number,
            instance_id=instance_id,
            file_size_bytes=settings.journal_file_size_bytes,
            zero_chunk_bytes=settings.journal_zero_chunk_bytes,
        )
        try:
            yield Journal(files, place, clock_ms, ends[number])
        except OSError as cause:
            raise StorageFailedError(directory, f"journal: {cause}") from cause


class _Recovery:
    """What is known while a storage is being opened."""

    def __init__(
        self,
        files: FileSystem,
        settings: StorageSettings,
        instance_id: bytes,
        indexes: Sequence[DirectoryIndex],
    ) -> None:
        self._files = files
        self._settings = settings
        self._instance_id = instance_id
        self._indexes = indexes
        self._orphans: list[str] = []
        self.report = RecoveryReport()
        self.marks: dict[int, GroupEnd] = {}

    def load(self) -> None:
        """Bring the indexes of all directories to one view; find damage before the journals'."""
        known = [index for index in self._indexes if not index.is_new]
        self.report.is_new = all(index.is_blank for index in self._indexes)
        newest = max((index.state for index in known), default=None, key=lambda s: s.checkpoint)
        if newest is not None:
            self._refuse_missing_directories(newest.journal_count, newest.directory_count)
        for number, directory in enumerate(self._settings.journal_directories):
            marks = [index.marks.get(number, ORIGIN) for index in known]
            self.marks[number] = min(marks, default=ORIGIN)
            if not known and file_ids(self._files, directory):
                self._damage(directory, "a journal without any index")
        for index in self._indexes:
            if index.is_new:
                self._admit(index, newest)
            self.report.damage += index.damage
            # An answer holds as soon as one directory has it: all its facts are written to each.
            is_unanswered = index.state == newest and index.state.is_damaged
            if is_unanswered and not self.report.is_new:
                self._damage(index.path, "damage of an earlier start, not answered yet")
        self._check_mark_files()
        if self.report.damage:
            self._rebuild()
        else:
            self._list_orphans()
            self._establish()

    def _refuse_missing_directories(self, journals: int, directories: int) -> None:
        for what, now, before in (
            ("journal", len(self._settings.journal_directories), journals),
            ("ledger", len(self._settings.ledger_directories), directories),
        ):
            if now < before:
                path = self._settings.ledger_directories[0]
                raise StorageRefusedError(
                    path, f"{before - now} of {before} {what} directories are gone"
                )

    def _admit(self, index: DirectoryIndex, newest: IndexState | None) -> None:
        """Decide what a directory without an index is: new, or robbed of it."""
        # The first checkpoint is empty and goes before any journal: a crash within it leaves
        # directories without an index, and nothing in them.
        known = newest.directory_count if newest is not None and newest.checkpoint > 1 else 0
        if index.index < known:
            self._damage(index.path, "index is missing")
        elif log_ids(self._files, index.directory):
            self._damage(index.path, "entry logs without an index")
        # Unanswered from the first durable byte: a crash before the answer must not turn an emptied
        # directory into one that may deny what it once acknowledged.
        state = replace(index.state, checkpoint=0, is_damaged=self.report.is_new)
        index.mark_as_new(self.marks, state)

    def _check_mark_files(self) -> None:
        for number, directory in enumerate(self._settings.journal_directories):
            mark = self.marks[number]
            if mark != ORIGIN and mark.file_id not in file_ids(self._files, directory):
                self._damage(directory, f"journal file {mark.file_id:016x} of the mark is missing")

    def _rebuild(self) -> None:
        for index in self._indexes:
            before = len(index.damage)
            index.rebuild_rows()
            self.report.damage += index.damage[before:]

    def _establish(self) -> None:
        """Give every new directory an index before any other's says that it has one.

        A crash in between then leaves new directories, never one robbed of its index.
        """
        for index in self._indexes:
            if index.is_new:
                index.establish()

    def _list_orphans(self) -> None:
        """Logs no index names: a crash left them, and the journal still has their entries."""
        for index in self._indexes:
            for log_id in log_ids(self._files, index.directory):
                if log_id > index.state.last_log_id:
                    self._orphans.append(f"{index.directory}/{log_name(log_id)}")

    def restore(self, storage: Storage) -> None:
        """Hand facts, tombstones and marks over; the newest checkpoint's facts win."""
        merged: dict[int, LedgerHandleState] = {}
        for index in sorted(self._indexes, key=lambda index: index.state.checkpoint):
            for ledger_id, content in index.handles.items():
                before = merged.get(ledger_id)
                try:
                    handle = decode_handle_state(content)
                except ValueError as cause:
                    self._damage(index.path, f"facts of ledger {ledger_id}: {cause}")
                    continue
                if before is not None:
                    # What is never taken back holds wherever it is found.
                    handle.is_fenced |= before.is_fenced
                    handle.master_key = handle.master_key or before.master_key
                merged[ledger_id] = handle
            for first, last in index.tombstones:
                storage.tombstones.add(first, last)
        for number, index in enumerate(self._indexes):
            for ledger_id in index.rows:
                handle = merged.setdefault(ledger_id, LedgerHandleState())
                if handle.directory_index == UNASSIGNED:
                    handle.directory_index = number
        for ledger_id, handle in merged.items():
            storage.restore_handle(ledger_id, handle)
        storage.checkpoint_number = max(index.state.checkpoint for index in self._indexes)
        storage.applied.update(self.marks)
        storage.recovery = self.report
        if self.report.damage or self.report.is_new:
            storage.suspect_everything()

    def replay(self, storage: Storage, number: int, progress: Callable[[int], None] | None) -> None:
        """Apply every sound group of one journal behind its mark."""
        directory = self._settings.journal_directories[number]
        replay = Replay(self._files, directory, number, self._instance_id, self.marks[number])
        before = self.report.bytes_replayed
        for group in replay.groups():
            if replay.report.damage and not storage.is_damaged:
                storage.suspect_everything()
            storage.apply(group.records, group.position)
            if storage.cached_bytes > self._settings.write_cache_size_bytes:
                storage.commit_facts()
            if progress is not None:
                progress(before + replay.report.bytes_replayed)
        found = replay.report
        self.report.groups += found.groups
        self.report.records += found.records
        self.report.bytes_replayed += found.bytes_replayed
        self.report.groups_torn += found.groups_torn
        self.report.bytes_torn += found.bytes_torn
        self.report.damage += found.damage
        if found.last > storage.applied[number]:
            storage.applied[number] = found.last

    def settle(self, storage: Storage) -> None:
        """Answer damage, drop crash leftovers, and make the outcome durable."""
        if self.report.damage:
            storage.suspect_everything()
        else:
            touched = {path.rpartition("/")[0] for path in self._orphans}
            for path in self._orphans:
                self._files.delete(path)
            for directory in sorted(touched):
                self._files.sync_dir(directory)
        storage.commit_facts()

    def _damage(self, path: str, detail: str) -> None:
        self.report.damage.append(Damage(path, 0, detail))
