"""One checkpoint's work off the loop: entry logs, then the index of every directory, then deletion.

The order is the whole point. An entry log is durable before an index names it (BOOKKEEPER-447);
every directory commits the marks, also one without new entries, and the handle states that changed,
also when no entry did (Apache #3329, #4843); a journal file goes only when the smallest mark over all
directories is behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.index.delta import IndexDelta, IndexState
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.index.handle_state import encode_handle_state
from bookie_server.storage.journal.journal import file_ids, file_name
from bookie_server.storage.logs.entry_log import log_ids, write_entry_log
from bookie_server.storage.logs.write_cache import WriteCache


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Everything a checkpoint writes, captured at one instant of the loop thread."""

    number: int
    cache: WriteCache
    """Does not change any more; readers use it until the checkpoint is finished."""
    ledgers_by_directory: tuple[tuple[int, ...], ...]
    """Ids of ``cache``'s ledgers, per directory."""
    handles: dict[int, LedgerHandleState]
    """Of every ledger whose state changed; like the cache, these objects do not change any more."""
    tombstones: list[tuple[int, int]]
    replaced: dict[int, list[Sequence[int]]]
    """Per ledger: entries whose earlier rows do not count any more."""
    marks: dict[int, GroupEnd]
    journal_count: int
    is_damaged: bool


@dataclass(frozen=True, slots=True)
class CheckpointResult:
    """What became durable, for ``Contents.finish_checkpoint`` on the loop thread."""

    plan: CheckpointPlan = field(repr=False)
    rows_by_directory: tuple[dict[int, bytes], ...] = field(repr=False)


class Checkpoints:
    """Writes checkpoints, one at a time, on a worker's thread; after a failure it writes no more."""

    def __init__(
        self,
        files: FileSystem,
        settings: StorageSettings,
        indexes: Sequence[DirectoryIndex],
        *,
        instance_id: bytes,
    ) -> None:
        self._files = files
        self._settings = settings
        self._indexes = indexes
        self._instance_id = instance_id
        self._failure: StorageFailedError | None = None

    def write(self, plan: CheckpointPlan) -> CheckpointResult:
        """Make a plan durable and delete the journal files behind it; blocks meanwhile.

        Raises:
            StorageFailedError: the bookie must stop; a restart replays from the marks that are
                durable.
        """
        # The indexes in memory may be ahead of their files now,
        # and only a restart reads what is durable.
        if self._failure is not None:
            raise StorageFailedError(self._failure.path, self._failure.detail)
        try:
            return self._write(plan)
        except OSError as cause:
            path = self._indexes[0].directory
            self._failure = StorageFailedError(path, f"checkpoint: {cause}")
            raise StorageFailedError(path, f"checkpoint: {cause}") from cause

    def _write(self, plan: CheckpointPlan) -> CheckpointResult:
        rows_by_directory: list[dict[int, bytes]] = []
        handles = {id: encode_handle_state(handle) for id, handle in plan.handles.items()}
        for index, ledger_ids in zip(self._indexes, plan.ledgers_by_directory, strict=True):
            last_log_id, rows = index.state.last_log_id, dict[int, bytes]()
            if ledger_ids:
                # Above a crash's leftovers as well: their names are
                # taken, and a name is never reused.
                last_log_id = max([last_log_id, *log_ids(self._files, index.directory)]) + 1
                rows = write_entry_log(
                    self._files,
                    index.directory,
                    last_log_id,
                    plan.cache,
                    ledger_ids,
                    instance_id=self._instance_id,
                    block_size_bytes=self._settings.block_size_bytes,
                )
            # The counts are what a later start compares its settings
            # with: a directory left out is refused.
            state = IndexState(
                plan.number, last_log_id, plan.journal_count, len(self._indexes), plan.is_damaged
            )
            # During a replay a directory may be ahead of the others: the crash came when it had
            # committed and the next one had not. Its mark must not move back.
            marks = {j: max(end, index.marks.get(j, end)) for j, end in plan.marks.items()}
            index.commit(IndexDelta(state, marks, handles, plan.tombstones, rows, plan.replaced))
            rows_by_directory.append(rows)
        # Only now: until the last directory has committed, a
        # journal may be the only place of its entries.
        for journal_index, directory in enumerate(self._settings.journal_directories):
            mark = min(index.marks[journal_index] for index in self._indexes)
            _delete_below(self._files, directory, mark)
        return CheckpointResult(plan, tuple(rows_by_directory))


def _delete_below(files: FileSystem, directory: str, mark: GroupEnd) -> None:
    """Delete the journal files that lie wholly below the mark, oldest first."""
    doomed = [id for id in file_ids(files, directory) if id < mark.file_id]
    for file_id in doomed:
        files.delete(f"{directory}/{file_name(file_id)}")
    if doomed:
        files.sync_dir(directory)
