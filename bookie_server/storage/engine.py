"""Storage: journals, write cache, entry logs and index of one bookie, tied together.

Who may call what:

* the *loop thread* owns the state in memory: ``missing``, ``apply``, ``plan_read``, ``last_entry``,
  ``begin_checkpoint``, ``finish_checkpoint`` and the facts; none of them blocks;
* a *journal thread* each calls ``journals[i].write_group``, and the loop then ``apply``-s the records;
* one *worker* calls ``write_checkpoint``; *any thread* calls ``execute``.

Storage decides nothing about admission, and an absence it reports is evidence only
for a ledger that is not in limbo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookie_server.settings import StorageSettings
from bookie_server.storage.checkpoint import CheckpointPlan, CheckpointResult, write_plan
from bookie_server.storage.contents import Contents
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.files import File, FileSystem
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.index.handle_state import encode_handle_state
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.logs.write_cache import WriteCache
from bookie_server.storage.read_plan import ReadOutcome, ReadPlan, execute_plan
from bookie_server.storage.recovery import (
    RecoveryReport,
    begin_journals,
    lock_directories,
    recover,
)
from bookkeeper_metadata.foundation.invariant import invariant


class Storage(Contents):
    """See the module. Made by ``Storage.open``; owns all files below its directories."""

    def __init__(
        self,
        files: FileSystem,
        settings: StorageSettings,
        instance_id: bytes,
        indexes: Sequence[DirectoryIndex],
        locks: Sequence[File],
    ) -> None:
        super().__init__(indexes, len(settings.journal_directories))
        self._files = files
        self._settings = settings
        self._instance_id = instance_id
        self._locks = tuple(locks)
        self._planned_marks: dict[int, GroupEnd] = {}
        self._failure: StorageFailedError | None = None
        self.checkpoint_number = 0
        self.journals: tuple[Journal, ...] = ()
        self.recovery = RecoveryReport()

    @classmethod
    def open(
        cls,
        files: FileSystem,
        settings: StorageSettings,
        *,
        instance_id: bytes,
        clock_ms: Callable[[], int],
        progress: Callable[[int], None] | None = None,
    ) -> Storage:
        """Load the index, replay the journals, begin new journal files; blocks meanwhile.

        ``instance_id`` is this bookie's, 16 bytes; ``progress`` hears the bytes replayed so far.

        Raises:
            StorageRefusedError: these directories are not this bookie's; nothing was changed.
            StorageFailedError: a write failed.
            OSError: a file or directory cannot be read, created or locked.
        """
        if len(instance_id) != 16:
            raise ValueError(f"an instance id has 16 bytes; size_bytes={len(instance_id)}")
        locks = lock_directories(files, settings)
        indexes = [
            DirectoryIndex(files, directory, number, instance_id)
            for number, directory in enumerate(settings.ledger_directories)
        ]
        storage = cls(files, settings, instance_id, indexes, locks)
        try:
            recover(storage, files, settings, indexes, instance_id=instance_id, progress=progress)
            for journal in begin_journals(files, settings, instance_id, clock_ms, storage.applied):
                storage.journals = (*storage.journals, journal)
                # Nothing stands between the last group and the new file: the mark may point there.
                storage.applied[journal.index] = journal.position.end
            storage.commit_facts()
        except BaseException:
            storage.close()
            raise
        return storage

    @property
    def is_checkpointing(self) -> bool:
        """Whether a plan was begun and not finished."""
        return self._snapshot is not None

    def execute(self, plan: ReadPlan) -> ReadOutcome:
        """Fetch what a plan names; any thread, blocks if ``plan.needs_disk``. Raises nothing."""
        return execute_plan(self._files, plan)

    def begin_checkpoint(self) -> CheckpointPlan | None:
        """Freeze what is to be written; ``None`` when nothing changed or one is under way.

        Raises:
            StorageFailedError: an earlier one failed.
        """
        self._raise_if_failed()
        has_news = (
            self._cache.ledgers
            or self._dirty
            or self._new_tombstones
            or self._is_state_dirty
            or self.applied != self._planned_marks
        )
        if self._snapshot is not None or not has_news:
            return None
        by_directory: list[list[int]] = [[] for _ in self._indexes]
        for ledger_id in self._cache.ledgers:
            by_directory[self._directory_of(ledger_id)].append(ledger_id)
        plan = CheckpointPlan(
            number=self.checkpoint_number + 1,
            cache=self._cache,
            ledgers_by_directory=tuple(map(tuple, by_directory)),
            handles={
                ledger_id: encode_handle_state(self.ledgers[ledger_id]) for ledger_id in self._dirty
            },
            tombstones=self._new_tombstones,
            marks=dict(self.applied),
            journal_count=len(self._settings.journal_directories),
            is_damaged=self.is_damaged,
        )
        self.checkpoint_number = plan.number
        self._snapshot, self._cache = self._cache, WriteCache()
        self._dirty, self._new_tombstones = set(), []
        self._planned_marks, self._is_state_dirty = plan.marks, False
        return plan

    def write_checkpoint(self, plan: CheckpointPlan) -> CheckpointResult:
        """Make a plan durable and delete what the journals no longer need; worker thread, blocks.

        Raises:
            StorageFailedError: the bookie must stop; storage takes nothing any more.
        """
        self._raise_if_failed()
        try:
            return write_plan(
                self._files,
                self._indexes,
                self._settings.journal_directories,
                plan,
                instance_id=self._instance_id,
                block_size_bytes=self._settings.block_size_bytes,
            )
        except OSError as cause:
            path = self._indexes[0].directory
            self._failure = StorageFailedError(path, f"checkpoint: {cause}")
            raise StorageFailedError(path, f"checkpoint: {cause}") from cause

    def finish_checkpoint(self, result: CheckpointResult) -> None:
        """Let readers use the new entry logs, and forget the snapshot; loop thread."""
        invariant(result.plan.cache is self._snapshot, "the checkpoint under way is finished")
        for index, rows in zip(self._indexes, result.rows_by_directory, strict=True):
            index.add_rows(rows)
        self._snapshot = None

    def commit_facts(self) -> CheckpointResult | None:
        """A whole checkpoint, blocking: for start-up and shutdown, when no loop serves.

        Raises:
            StorageFailedError: as ``write_checkpoint``.
        """
        plan = self.begin_checkpoint()
        if plan is None:
            return None
        result = self.write_checkpoint(plan)
        self.finish_checkpoint(result)
        return result

    def close(self) -> None:
        """Close all files and give up the directories; writes nothing. Idempotent."""
        for journal in self.journals:
            journal.close()
        for index in self._indexes:
            index.close()
        for lock in self._locks:
            lock.close()

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise StorageFailedError(self._failure.path, self._failure.detail)
