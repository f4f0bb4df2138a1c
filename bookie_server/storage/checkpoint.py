"""One checkpoint's work off the loop: entry logs, then the index of every directory, then deletion.

The order is the whole point. An entry log is durable before an index names it (BOOKKEEPER-447);
every directory commits the marks, also one without new entries, and the handle states that changed,
also when no entry did (Apache #3329, #4843); a journal file goes only when the smallest mark over all
directories is behind it; a dead log goes only when every directory has the tombstones of its ledgers. On a full disk a checkpoint stops where it is, and goes on there when it is
written again: the log that found no room is deleted, everything else stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.settings import StorageSettings
from bookie_server.storage.burial import BurialPlan, BurialResult, LedgerSet, delete_unused
from bookie_server.storage.compaction.rewrite import Rewritten, rewrite
from bookie_server.storage.compaction.rules import LogShare
from bookie_server.storage.compaction.survey import survey
from bookie_server.storage.disk.errors import NoRoomError, StorageFailedError, repeatable
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.index.delta import IndexDelta, IndexState
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.index.handle_state import encode_handle_state
from bookie_server.storage.journal.journal_file import file_ids, file_name
from bookie_server.storage.logs.entry_log import AfterWrite, write_entry_log
from bookie_server.storage.logs.entry_log import file_name as log_name
from bookie_server.storage.logs.entry_log import log_ids as logs_in
from bookie_server.storage.logs.write_cache import WriteCache


class _InEach:
    """The ledgers that are in each of some sets."""

    def __init__(self, sets: Sequence[LedgerSet]) -> None:
        self._sets = sets

    def __contains__(self, ledger_id: int, /) -> bool:
        return all(ledger_id in each for each in self._sets)


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
    dropped: set[int]
    """Ledgers whose earlier rows do not count any more."""
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
        self.retire: dict[int, Callable[[Sequence[int]], None]] = {}
        """By journal: who takes files back of which every record rests elsewhere; where nobody does they are deleted."""
        self._after_write: AfterWrite | None = None
        self._begun: CheckpointPlan | None = None
        """The plan written last, and what each directory has committed of it so far."""
        self._committed: list[dict[int, bytes]] = []

    def write(
        self, plan: CheckpointPlan, after_write: AfterWrite | None = None
    ) -> CheckpointResult:
        """Make a plan durable and delete the journal files behind it; blocks meanwhile.

        ``after_write`` of entry logs, as in :func:`write_entry_log`.

        Raises:
            NoRoomError: the disk is full; the same plan may be written again, and no other before it.
            StorageFailedError: the bookie must stop; a restart replays from the marks that are
                durable.
        """
        with self._failing("checkpoint"):
            self._after_write = after_write
            try:
                return self._write(plan)
            finally:
                # Who made it may hold the plan by it, and so all that was written.
                self._after_write = None

    def bury(
        self,
        plan: BurialPlan,
        *,
        most: int | None = None,
        pause: Callable[[], None] | None = None,
    ) -> BurialResult:
        """Make tombstones durable and delete the logs behind them; blocks meanwhile.

        ``most`` of each directory and ``pause`` as in :func:`delete_unused`.
        A checkpoint that found no room may wait meanwhile.

        Raises:
            NoRoomError: there is not even room for an index delta; the plan may be tried again.
            StorageFailedError: as :meth:`write`.
        """
        with self._failing("burial"):
            delete = partial(self._delete_unused, plan, most, pause)
            try:
                self._commit(plan)
            except NoRoomError:
                # What was buried before needs no delta, and may be the room for this one.
                delete(buried=_InEach([index.tombstones for index in self._indexes]))
                raise
            return delete()

    def _commit(self, plan: BurialPlan) -> None:
        """Have every index know what is buried."""
        if not (plan.tombstones or plan.drops):
            return
        handles = {id: encode_handle_state(handle) for id, handle in plan.drops.items()}
        for index in self._indexes:
            dropped, tombstones = sorted(plan.drops), list(plan.tombstones)
            index.commit(IndexDelta(index.state, {}, handles, tombstones, dropped=dropped))

    def _delete_unused(
        self,
        plan: BurialPlan,
        most: int | None,
        pause: Callable[[], None] | None,
        *,
        buried: LedgerSet | None = None,
    ) -> BurialResult:
        """As :func:`delete_unused`, in each directory; with ``buried``, of these ledgers alone."""
        ends = [
            delete_unused(
                self._files,
                index.directory,
                plan.dead_logs[index.index],
                plan.emptied_logs[index.index],
                buried=index.tombstones if buried is None else buried,
                handles=index.handles if buried is None else {},
                instance_id=self._instance_id,
                most=most,
                pause=pause,
            )
            for index in self._indexes
        ]
        names = ("deleted", "emptied", "unread", "kept", "left")
        return BurialResult(**{name: tuple(end[name] for end in ends) for name in names})

    def compact(self, directory_index: int, log_ids: Sequence[int]) -> Rewritten:
        """Copy what lives of some logs into a new one; blocks. The old ones are buried later.

        Raises:
            NoRoomError: there is no room for the copy; nothing is changed.
            StorageFailedError: as :meth:`write`.
        """
        index = self._indexes[directory_index]
        with self._failing("compaction"):
            before = logs_in(self._files, index.directory)
            try:
                return rewrite(
                    self._files,
                    index,
                    log_ids,
                    instance_id=self._instance_id,
                    block_size_bytes=self._settings.block_size_bytes,
                )
            except NoRoomError:
                for log_id in set(logs_in(self._files, index.directory)).difference(before):
                    self._files.delete(f"{index.directory}/{log_name(log_id)}")
                raise

    def survey(self, directory_index: int) -> list[LogShare]:
        """How much of each log of a directory lives; on any thread.

        Raises:
            OSError: the directory cannot be looked at.
        """
        return survey(self._files, self._indexes[directory_index])

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        # The indexes in memory may be ahead of their files now,
        # and only a restart reads what is durable.
        if self._failure is not None:
            raise StorageFailedError(self._failure.path, self._failure.detail)
        try:
            yield
        except OSError as cause:
            path = self._indexes[0].directory
            self._failure = StorageFailedError(path, f"{what}: {cause}")
            raise StorageFailedError(path, f"{what}: {cause}") from cause

    def _write(self, plan: CheckpointPlan) -> CheckpointResult:
        if self._begun is not plan:
            self._begun, self._committed = plan, []
        handles = {id: encode_handle_state(handle) for id, handle in plan.handles.items()}
        for index, ledger_ids in zip(self._indexes, plan.ledgers_by_directory, strict=True):
            if index.index >= len(self._committed):
                self._committed.append(self._write_directory(index, ledger_ids, plan, handles))
        # Only now: until the last directory has committed, a
        # journal may be the only place of its entries.
        for journal_index, directory in enumerate(self._settings.journal_directories):
            mark = min(index.marks[journal_index] for index in self._indexes)
            delete = partial(_delete_files, self._files, directory)
            _retire_below(self._files, directory, mark, self.retire.get(journal_index, delete))
        result = CheckpointResult(plan, tuple(self._committed))
        # The plan holds all the entries that it wrote.
        self._begun = None
        return result

    def _write_directory(
        self,
        index: DirectoryIndex,
        ledger_ids: Sequence[int],
        plan: CheckpointPlan,
        handles: dict[int, bytes],
    ) -> dict[int, bytes]:
        """Write one directory's entry log, and its index; both or neither."""
        last_log_id, rows = index.state.last_log_id, dict[int, bytes]()
        if ledger_ids:
            # Above a crash's leftovers as well: their names are
            # taken, and a name is never reused.
            last_log_id = max([last_log_id, *logs_in(self._files, index.directory)]) + 1
        # The counts are what a later start compares its settings
        # with: a directory left out is refused.
        state = IndexState(
            plan.number, last_log_id, plan.journal_count, len(self._indexes), plan.is_damaged
        )
        # During a replay a directory may be ahead of the others: the crash came when it had
        # committed and the next one had not. Its mark must not move back.
        marks = {j: max(end, index.marks.get(j, end)) for j, end in plan.marks.items()}
        try:
            if ledger_ids:
                rows = self._write_log(index.directory, last_log_id, ledger_ids, plan.cache)
            dropped = sorted(plan.dropped)
            index.commit(
                IndexDelta(state, marks, handles, plan.tombstones, rows, plan.replaced, dropped)
            )
        except NoRoomError:
            # Nothing refers to it, and it stands in the way of what makes room.
            if ledger_ids and last_log_id in logs_in(self._files, index.directory):
                self._files.delete(f"{index.directory}/{log_name(last_log_id)}")
            raise
        return rows

    def _write_log(
        self, directory: str, log_id: int, ledger_ids: Sequence[int], cache: WriteCache
    ) -> dict[int, bytes]:
        # No log that failed is kept, so that neither writes nor syncs of it matter.
        with repeatable(directory):
            return write_entry_log(
                self._files,
                directory,
                log_id,
                [(ledger_id, cache.ledgers[ledger_id].runs) for ledger_id in sorted(ledger_ids)],
                instance_id=self._instance_id,
                block_size_bytes=self._settings.block_size_bytes,
                after_write=self._after_write,
            )


def _retire_below(
    files: FileSystem, directory: str, mark: GroupEnd, retire: Callable[[Sequence[int]], None]
) -> None:
    """Give up the journal files that lie wholly below the mark, oldest first."""
    doomed = [id for id in file_ids(files, directory) if id < mark.file_id]
    if doomed:
        retire(doomed)


def _delete_files(files: FileSystem, directory: str, doomed: Sequence[int]) -> None:
    for file_id in doomed:
        files.delete(f"{directory}/{file_name(file_id)}")
    files.sync_dir(directory)
