"""Recovery of a bookie's storage: what its directories hold, brought into memory and made durable.

1. Load every index; refuse what is not this bookie's before changing anything.
2. Where an index is damaged, rebuild its rows from the entry logs' footers.
3. Replay each journal from its smallest mark; when the cache is full, checkpoint on the way.
4. After damage of any kind put every known ledger in limbo, and record durably that damage is
   unanswered, *before* a mark may pass it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bookie_server.core.handle_state import UNASSIGNED, LedgerHandleState
from bookie_server.core.ledger_ranges import LedgerRanges
from bookie_server.settings import StorageSettings
from bookie_server.storage.blocking import bury_deleted, write_checkpoint
from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.contents import Contents
from bookie_server.storage.disk.damage import Damage
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.identity.doubt import is_doubtful, unmark_doubtful
from bookie_server.storage.index.delta import IndexState
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.index.handle_state import decode_handle_state
from bookie_server.storage.index.rebuild import rebuild_rows
from bookie_server.storage.journal.journal_file import file_ids
from bookie_server.storage.journal.replay import ORIGIN, Replay, ReplayCounts
from bookie_server.storage.logs.entry_log import file_name as log_name
from bookie_server.storage.logs.entry_log import log_ids


@dataclass(slots=True)
class RecoveryReport(ReplayCounts):
    """What was found while the storage was opened, in all journals and elsewhere.

    Non-empty ``damage`` means that acknowledged records may be missing. The caller names the ledgers
    that may concern, from the metadata, by ``set_limbo``; until then every start reports it again.
    """

    is_new: bool = False
    """Nothing is stored: this bookie is new, or its disks were emptied. Only the metadata can tell
    the two apart, so until the bookie has read it the storage counts as damaged."""


def recover(
    files: FileSystem,
    settings: StorageSettings,
    indexes: Sequence[DirectoryIndex],
    checkpoints: Checkpoints,
    *,
    instance_id: bytes,
    progress: Callable[[int], None] | None,
) -> tuple[Contents, RecoveryReport]:
    """Load indexes, entry logs and journals into memory, and make the outcome durable.

    The contents' ``applied`` says where each journal ends.

    Raises:
        StorageRefusedError, StorageFailedError, OSError: see ``open_storage``.
    """
    # The last process may have been killed before it synced what it left: nothing is built upon a
    # file whose name a power loss may still take away.
    for directory in settings.directories:
        files.sync_dir(directory)
    for index in indexes:
        index.load()
    recovery = _Recovery(files, settings, instance_id, indexes, checkpoints)
    recovery.load()
    contents = recovery.restore()
    for number in range(len(settings.journal_directories)):
        recovery.replay(contents, number, progress)
    recovery.settle(contents)
    return contents, recovery.report


class _Recovery:
    """The steps of one recovery, and what they pass on to each other."""

    def __init__(
        self,
        files: FileSystem,
        settings: StorageSettings,
        instance_id: bytes,
        indexes: Sequence[DirectoryIndex],
        checkpoints: Checkpoints,
    ) -> None:
        self._files = files
        self._settings = settings
        self._checkpoints = checkpoints
        self._instance_id = instance_id
        self._indexes = indexes
        self._last_log_ids: list[int] = []
        """Per directory: the highest log that its index spoke of before anything was replayed."""
        self.report = RecoveryReport()
        self.marks: dict[int, GroupEnd] = {}

    def load(self) -> None:
        """Combine the indexes of all directories; find damage, but for that within the journals."""
        known = [index for index in self._indexes if not index.is_new]
        self.report.is_new = all(index.is_blank for index in self._indexes)
        newest = max((index.state for index in known), default=None, key=lambda s: s.checkpoint)
        if newest is not None:
            self._refuse_missing_directories(newest.journal_count, newest.directory_count)
        lost = [index for index in self._indexes if index.is_new and self._is_lost(index, newest)]
        for number, directory in enumerate(self._settings.journal_directories):
            # The smallest: of what lies behind it, the slowest directory has nothing. A journal
            # that was added to the settings has no mark yet, and is read from its start; so is every
            # one for a directory that lost its index: an earlier try may have moved the others' marks.
            marks = [index.marks.get(number, ORIGIN) for index in known] + [ORIGIN for _ in lost]
            self.marks[number] = min(marks, default=ORIGIN)
            # The first indexes are durable before the first journal
            # file gets its name, so they were lost.
            if not known and file_ids(self._files, directory):
                self._damage(directory, "a journal without any index")
        for index in self._indexes:
            if index.is_new:
                self._admit(index, is_lost=index in lost)
            elif index.is_blank and log_ids(self._files, index.directory):
                # Nothing is written before a start was finished: this is an old copy of the index,
                # and the logs have rows that it lost.
                self._damage(index.path, "entry logs beside an index of nothing")
            self.report.damage += index.damage
            # One directory's newest state is enough: a checkpoint writes every handle state to each.
            is_unanswered = index.state == newest and index.state.is_damaged
            if is_unanswered and not self.report.is_new:
                self._damage(index.path, "damage of an earlier start, not answered yet")
        self._last_log_ids = [index.state.last_log_id for index in self._indexes]
        for directory in self._settings.directories:
            if is_doubtful(self._files, directory):
                self._damage(
                    directory, "its cookie or start counter was lost, its records are kept"
                )
        # The replay would notice it too, but after the rows:
        # whether those are rebuilt is decided here.
        self._check_mark_files()
        if self.report.damage:
            # In every directory: the log of a sound one may be all that is
            # left of what another index or a journal lost.
            buried = LedgerRanges()
            for first, last in (each for index in self._indexes for each in index.tombstones):
                buried.add(first, last)
            for index in self._indexes:
                before = len(index.damage)
                rebuild_rows(self._files, index, buried, self._instance_id)
                self.report.damage += index.damage[before:]
        else:
            self._establish_new_indexes()

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

    def _is_lost(self, index: DirectoryIndex, newest: IndexState | None) -> bool:
        """Whether a directory without an index has lost it, or is new."""
        # The first checkpoint is empty and goes before any journal: a crash within it leaves
        # directories without an index, and nothing in them.
        known = newest.directory_count if newest is not None and newest.checkpoint > 1 else 0
        return index.index < known or bool(log_ids(self._files, index.directory))

    def _admit(self, index: DirectoryIndex, *, is_lost: bool) -> None:
        """Take in a directory without an index."""
        if is_lost:
            self._damage(index.path, "index is missing")
        # Damaged from the first durable byte on: if the bookie crashes before it has read the
        # metadata, an emptied directory must not come back as one that may deny entries.
        state = replace(index.state, checkpoint=0, is_damaged=self.report.is_new)
        index.mark_as_new(self.marks, state)

    def _check_mark_files(self) -> None:
        for number, directory in enumerate(self._settings.journal_directories):
            mark = self.marks[number]
            if mark != ORIGIN and mark.file_id not in file_ids(self._files, directory):
                self._damage(directory, f"journal file {mark.file_id:016x} of the mark is missing")

    def _establish_new_indexes(self) -> None:
        """Give every new directory an index before any other's says that it has one.

        A crash in between then leaves new directories, never one that seems to have lost its index.
        """
        for index in self._indexes:
            if index.is_new:
                index.establish()

    def restore(self) -> Contents:
        """Make the contents from the indexes; of a ledger the newest handle state holds."""
        contents = Contents(self._indexes, len(self._settings.journal_directories))
        contents.restore_tombstones()
        merged: dict[int, LedgerHandleState] = {}
        for index in sorted(self._indexes, key=lambda index: index.state.checkpoint):
            for ledger_id, content in index.handles.items():
                before = merged.get(ledger_id)
                try:
                    handle = decode_handle_state(content)
                except ValueError as cause:
                    self._damage(index.path, f"handle state of ledger {ledger_id}: {cause}")
                    continue
                if before is not None:
                    # A fence and a key are never taken back: either index may be the one to know.
                    handle.is_fenced |= before.is_fenced
                    handle.master_key = handle.master_key or before.master_key
                merged[ledger_id] = handle
        for number, index in enumerate(self._indexes):
            for ledger_id in index.rows:
                handle = merged.setdefault(ledger_id, LedgerHandleState())
                # A handle state that was lost with its index: new
                # entries still join the ones that are there.
                if handle.directory_index == UNASSIGNED:
                    handle.directory_index = number
        for ledger_id, handle in merged.items():
            # A crash came between two directories' commits. What no journal has, as limbo, is to reach
            # the slower one again: behind the next checkpoint nothing says which of them is newer.
            known = {index.handles.get(ledger_id) for index in self._indexes}
            contents.restore_handle(ledger_id, handle, is_everywhere=len(known) == 1)
        contents.checkpoint_number = max(index.state.checkpoint for index in self._indexes)
        contents.applied.update(self.marks)
        if self.report.damage or self.report.is_new:
            contents.suspect_everything()
        return contents

    def replay(
        self, contents: Contents, number: int, progress: Callable[[int], None] | None
    ) -> None:
        """Apply every sound group of one journal behind its mark."""
        directory = self._settings.journal_directories[number]
        replay = Replay(self._files, directory, number, self._instance_id, self.marks[number])
        before = self.report.bytes_replayed
        for group in replay.groups():
            # Before the checkpoint below moves a mark behind the damage; see the module.
            if replay.report.damage and not contents.is_damaged:
                contents.suspect_everything()
            contents.apply(group.records, group.position)
            if contents.cached_bytes > self._settings.write_cache_size_bytes:
                write_checkpoint(contents, self._checkpoints)
            if progress is not None:
                progress(before + replay.report.bytes_replayed)
        self.report.add(replay.report)
        # The chain may end behind the last group applied, as at the header of an empty file.
        # The next file is linked to that end, or the next replay would see a gap.
        contents.applied[number] = max(contents.applied[number], replay.report.last)

    def settle(self, contents: Contents) -> None:
        """Suspect every ledger after damage, else delete a crash's leftovers; then checkpoint."""
        if self.report.damage:
            contents.suspect_everything()
        else:
            # Only when nothing is missing. After damage such a log
            # may hold the last copy of something.
            self._delete_orphans(contents)
        for index in self._indexes:
            # Those still unnamed may be what a crash kept a burial from: their footers say so.
            for log_id in log_ids(self._files, index.directory):
                index.log_use.note(log_id)
        write_checkpoint(contents, self._checkpoints)
        # Behind it: a burial says nothing of damage, and may write an index anew.
        bury_deleted(contents, self._checkpoints)
        # From here on the indexes say that damage is unanswered.
        for directory in self._settings.directories:
            unmark_doubtful(self._files, directory)

    def _delete_orphans(self, contents: Contents) -> None:
        """Delete the logs that no row names: a crash left them; the journal had their entries."""
        # Where records were lost before, a log may be unnamed since its footer was damaged.
        is_whole = not any(handle.is_limbo for handle in contents.ledgers.values())
        for index, last_log_id in zip(self._indexes, self._last_log_ids, strict=True):
            unnamed = set(log_ids(self._files, index.directory))
            for rows in index.rows.values():
                # As a rule that is after a few ledgers.
                if not unnamed:
                    break
                unnamed.difference_update(rows.log_ids())
            # Not by their numbers only: a crash within a replay leaves logs that the checkpoints of
            # the next replay pass.
            doomed = sorted(id for id in unnamed if is_whole or id > last_log_id)
            for log_id in doomed:
                self._files.delete(f"{index.directory}/{log_name(log_id)}")
            if doomed:
                self._files.sync_dir(index.directory)

    def _damage(self, path: str, detail: str) -> None:
        self.report.damage.append(Damage(path, 0, detail))
