"""What is stored, as the loop thread sees it: handle states, cached runs, and where every entry is.

At every moment each stored entry is in exactly one of cache, frozen snapshot and index, so a reader
finds it once. Nothing here blocks or touches a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from bookie_server.core.explicit_lac import take_over
from bookie_server.core.handle_state import UNASSIGNED, LedgerHandleState
from bookie_server.core.ledger_ranges import IdsBetween, LedgerRanges
from bookie_server.core.records import (
    Add,
    Drop,
    ExplicitLac,
    Fence,
    JournalRecord,
    MasterKey,
    Replace,
    StateRecord,
    Tombstone,
    ledger_of,
)
from bookie_server.storage.burial import BurialPlan, BurialResult, UnusedLogs
from bookie_server.storage.checkpoint import CheckpointPlan, CheckpointResult
from bookie_server.storage.compaction.rewrite import Rewritten
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.index.delta import Moved
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.index.handle_state import MASTER_KEY_SIZE_MAX
from bookie_server.storage.journal.journal_file import JournalPosition
from bookie_server.storage.logs.write_cache import WriteCache, detached
from bookie_server.storage.placement import Placement
from bookie_server.storage.read_plan import ReadPlan, plan_of
from bookie_server.storage.stored import Stored, last_stored, stored_in
from bookie_server.wire.record import Run
from bookie_server.wire.stripe import EVERY_ID, Stripe
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import ENTRY_ID_MAX


class Contents:
    """One bookie's storage state in memory. Recovery fills it, then only the loop thread uses it."""

    def __init__(self, indexes: Sequence[DirectoryIndex], journal_count: int) -> None:
        self._indexes = tuple(indexes)
        self._cache = WriteCache()
        self._snapshot: WriteCache | None = None
        """The cache that the checkpoint under way writes; it does not change any more."""
        self._dirty: set[int] = set()
        """Ledgers whose handle state changed since the last checkpoint began."""
        self._new_tombstones: list[tuple[int, int]] = []
        self._unused = UnusedLogs(self._indexes)
        self._replaced: dict[int, list[Sequence[int]]] = {}
        """Entries replaced since the last checkpoint began."""
        self._dropped: set[int] = set()
        """Ledgers dropped since then."""
        self._is_state_dirty = True
        self._planned_marks: dict[int, GroupEnd] = {}
        self._placement = Placement(journal_count, len(self._indexes))
        self.applied: dict[int, GroupEnd] = {}
        """Per journal: the end of the last group whose records are applied."""
        self.ledgers: dict[int, LedgerHandleState] = {}
        """Every ledger this bookie knows. Read it freely on the loop thread; change it by ``apply``
        and ``set_limbo`` only, or the change is never stored."""
        self.tombstones = LedgerRanges()
        self.checkpoint_number = 0
        """Number of the checkpoint begun last, counted over the bookie's life."""
        self.is_damaged = False
        """Records may be missing, and it is not known yet of which ledgers; see ``set_limbo``."""

    @property
    def cached_bytes(self) -> int:
        """Memory of entries in no entry log yet: what a checkpoint would write, or is writing."""
        return sum(cache.size_bytes for cache in self._caches)

    def journal_of(self, ledger_id: int) -> int:
        """The ledger's journal; a ledger without one gets the one with the fewest ledgers."""
        return self._placement.journal_of(ledger_id, self.ledgers.get(ledger_id))

    def missing(self, run: Run) -> list[Run]:
        """The parts of ``run`` of which no entry is stored; empty when all are stored."""
        # A writer's next entries lie behind all others: no need to look each of them up.
        last = self.last_entry(run.ledger_id)
        if last is None or run.first_entry > last:
            return [run]
        stored: set[int] = set()
        for item in self._find_stored(run.ledger_id, run.first_entry, run.last_entry):
            stored.update(item.ids)
        return run.without(stored.__contains__) if stored else [run]

    def apply(self, records: Sequence[JournalRecord], position: JournalPosition) -> None:
        """Apply the records of a durable group; the groups of a journal must come in order.

        An entry that is stored already is not replaced, but by a record that says so. What comes for
        a deleted ledger is no news.
        """
        before = self.applied.get(position.journal_index)
        invariant(before is None or before < position.end, "groups complete in order")
        # Of the group as a whole, since it mostly has all of a frame.
        kept = iter(detached([record.run for record in records if isinstance(record, Add)]))
        between: IdsBetween | None = None
        for record in records:
            if isinstance(record, Tombstone):
                # Hundreds come in a row: to look through all ledgers for each takes seconds.
                between = between or IdsBetween(self.ledgers)
                self._bury(record, between(record.first_ledger, record.last_ledger))
                continue
            between = None
            if isinstance(record, Add):
                self._apply_add(*next(kept), position.journal_index)
            else:
                self._apply(record, position.journal_index)
        self.applied[position.journal_index] = position.end

    def _apply_add(self, run: Run, held_bytes: int, journal_index: int) -> None:
        if self._is_deleted(run.ledger_id):
            return
        # A replay starts at the slowest mark: another directory may store some already.
        for part in self.missing(run):
            self._cache.insert(part, held_bytes)
            held_bytes = 0  # the first part holds it for all
        self._learn(run, journal_index)

    def _apply(self, record: StateRecord, journal_index: int) -> None:
        if self._is_deleted(ledger_of(record)):
            return
        match record:
            case Replace(run):
                # What is damaged rests in an entry log, so it is in no snapshot. It may be cached in
                # a replay, which has met the add before.
                for index in self._indexes:
                    index.forget_rows(run.ledger_id, run.entry_ids)
                self._replaced.setdefault(run.ledger_id, []).append(run.entry_ids)
                self._cache.replace(run)
                self._learn(run, journal_index)
            case MasterKey(ledger_id, key):
                handle = self._handle_of(ledger_id, journal_index)
                # Version 0.1 journalled keys of any size, and then could not store them in the
                # index. No writer has such a key; the fence that came with it holds without one.
                if handle.master_key is None and len(key) <= MASTER_KEY_SIZE_MAX:
                    handle.master_key = key
            case Fence(ledger_id):
                self._handle_of(ledger_id, journal_index).is_fenced = True
            case ExplicitLac(ledger_id, packet):
                take_over(packet, self._handle_of(ledger_id, journal_index))
            case Drop(ledger_id):
                self._forget([ledger_id])
                self._dropped.add(ledger_id)
                handle = self._handle_of(ledger_id, journal_index)
                handle.is_fenced = handle.is_dropped = True

    def may_drop(self, ledger_id: int) -> bool:
        """Whether what should be here of the ledger is known, and all that is rests in entry logs."""
        is_cached = any(ledger_id in cache.ledgers for cache in self._caches)
        return not (is_cached or self.ledgers[ledger_id].is_limbo)

    def _forget(self, ledger_ids: Sequence[int]) -> None:
        for ledger_id in ledger_ids:
            self._cache.forget(ledger_id)
            self._replaced.pop(ledger_id, None)
        for index in self._indexes:
            index.bury(ledger_ids)

    def _is_deleted(self, ledger_id: int) -> bool:
        """Whether a record comes too late for its ledger, which then needs no journal any more."""
        if ledger_id not in self.tombstones:
            return False
        self._placement.forget(ledger_id, None)
        return True

    def _bury(self, record: Tombstone, buried: Sequence[int]) -> None:
        """Forget deleted ledgers, for good; ``buried``: those of them that are known."""
        self.tombstones.add(record.first_ledger, record.last_ledger)
        self._new_tombstones.append((record.first_ledger, record.last_ledger))
        for ledger_id in buried:
            self._placement.forget(ledger_id, self.ledgers.pop(ledger_id))
            self._dropped.discard(ledger_id)
            self._dirty.discard(ledger_id)
        self._forget(buried)

    def _learn(self, run: Run, journal_index: int) -> None:
        handle = self._handle_of(run.ledger_id, journal_index)
        if handle.directory_index == UNASSIGNED:
            self._placement.assign_directory(handle)
        # What recovery writes back late carries the LAC it had at first. Re-replication's
        # may lie beyond the entry; that much is a claim, and no bookie spreads claims.
        claimed = min(run.last_add_confirmed(), run.last_entry)
        handle.last_add_confirmed = max(handle.last_add_confirmed, claimed)

    def remember_lac(self, ledger_id: int, packet: bytes) -> None:
        """Keep a known ledger's explicit LAC in memory until the next checkpoint stores it."""
        invariant(ledger_id in self.ledgers, "a packet that needs no sync is a known ledger's")
        take_over(packet, self._touch(ledger_id))

    def _handle_of(self, ledger_id: int, journal_index: int) -> LedgerHandleState:
        """The ledger's handle state, to be changed by a record of this journal."""
        handle = self._touch(ledger_id)
        if handle.journal_index == UNASSIGNED:
            self._placement.settle_journal(ledger_id, handle, journal_index)
        return handle

    def restore_tombstones(self) -> None:
        """Take the tombstones of all indexes over, before anything else is."""
        for index in self._indexes:
            for first, last in index.tombstones:
                self.tombstones.add(first, last)
        for index in self._indexes:
            # One that another directory has: a crash came between two commits, or one index was lost.
            index.bury(self.tombstones.members(index.rows))
        for first, last in self.tombstones:
            if not all(index.tombstones.covers(first, last) for index in self._indexes):
                self._new_tombstones.append((first, last))

    def restore_handle(
        self, ledger_id: int, handle: LedgerHandleState, *, is_everywhere: bool = True
    ) -> None:
        """Take a handle state over from the indexes, before anything is replayed.

        The next checkpoint stores it anew unless it ``is_everywhere``.
        """
        if ledger_id in self.tombstones:
            return
        self.ledgers[ledger_id] = handle
        if not is_everywhere:
            self._dirty.add(ledger_id)
        self._placement.restore(handle)

    def bind_key(self, ledger_id: int, master_key: bytes) -> None:
        """Bind the key that the metadata knows, in place of any other; durable after the next checkpoint."""
        if ledger_id not in self.tombstones:
            self._touch(ledger_id).master_key = master_key

    def set_limbo(self, ledger_ids: Iterable[int]) -> None:
        """Put these ledgers in limbo, even those this bookie has never seen; durable after the next checkpoint.

        This settles the damage found so far: the caller has named every ledger it may concern.
        """
        for ledger_id in ledger_ids:
            # What is deleted is neither denied nor given any more.
            if ledger_id not in self.tombstones:
                self._touch(ledger_id).is_limbo = True
        self.is_damaged = False
        self._is_state_dirty = True

    def end_limbo(self, ledger_id: int, *, may_deny: bool) -> None:
        """A closed ledger, which has no writer any more, is whole here; durable after the next checkpoint."""
        invariant(not self.is_damaged, "what is missing is known")
        handle = self._touch(ledger_id)
        handle.is_limbo, handle.is_fenced = False, True
        handle.is_dropped = handle.is_dropped or not may_deny

    def _touch(self, ledger_id: int) -> LedgerHandleState:
        """The ledger's handle state to change, a new one if need be; the next checkpoint stores it."""
        handle = self.ledgers.get(ledger_id)
        if handle is None:
            handle = self.ledgers[ledger_id] = LedgerHandleState()
        elif ledger_id not in self._dirty:
            # The last checkpoint has the state as it was when that began, and
            # its thread may not have come to writing it yet.
            handle = self.ledgers[ledger_id] = replace(handle)
        self._dirty.add(ledger_id)
        return handle

    def suspect_everything(self) -> None:
        """Put every known ledger in limbo: any of them may have lost records."""
        self.set_limbo(tuple(self.ledgers))
        # ``set_limbo`` counts as the answer to all damage, and the metadata has not been asked yet.
        self.is_damaged = True

    @property
    def is_checkpointing(self) -> bool:
        """Whether a checkpoint is under way."""
        return self._snapshot is not None

    @property
    def _caches(self) -> tuple[WriteCache, ...]:
        return (self._cache,) if self._snapshot is None else (self._cache, self._snapshot)

    def begin_checkpoint(self) -> CheckpointPlan | None:
        """Freeze what is to be written; ``None`` if nothing changed or a checkpoint is under way."""
        has_news = (
            self._cache.ledgers
            or self._dirty
            or self._new_tombstones
            or self._is_state_dirty
            # Marks move without news, too: a start skips them to its new journal files.
            or self.applied != self._planned_marks
        )
        if self.is_checkpointing or not has_news:
            return None
        by_directory: list[list[int]] = [[] for _ in self._indexes]
        for ledger_id in self._cache.ledgers:
            by_directory[self.ledgers[ledger_id].directory_index].append(ledger_id)
        plan = CheckpointPlan(
            number=self.checkpoint_number + 1,
            cache=self._cache,
            ledgers_by_directory=tuple(map(tuple, by_directory)),
            # As they are: ``_touch`` changes a copy of what a plan has. To encode
            # those of many ledgers here would keep the loop from all else.
            handles={ledger_id: self.ledgers[ledger_id] for ledger_id in self._dirty},
            tombstones=self._new_tombstones,
            replaced=self._replaced,
            dropped=self._dropped,
            # A copy: marks that ran on with later groups would
            # have a replay skip what this cache lacks.
            marks=dict(self.applied),
            journal_count=self._placement.journal_count,
            is_damaged=self.is_damaged,
        )
        self.checkpoint_number = plan.number
        self._snapshot, self._cache = self._cache, WriteCache()
        self._dirty, self._new_tombstones, self._replaced, self._dropped = set(), [], {}, set()
        self._planned_marks, self._is_state_dirty = plan.marks, False
        return plan

    def finish_checkpoint(self, result: CheckpointResult) -> None:
        """Let readers use the new entry logs, and forget the snapshot."""
        invariant(result.plan.cache is self._snapshot, "the checkpoint under way is finished")
        for index, rows in zip(self._indexes, result.rows_by_directory, strict=True):
            index.add_rows(rows, self.tombstones)
        self._snapshot = None
        self._unused.on_checkpoint(has_buried=bool(result.plan.tombstones or result.plan.dropped))

    def begin_burial(self) -> BurialPlan | None:
        """What of deleted and dropped ledgers is left on the disks; ``None`` if that is nothing."""
        tombstones = self._new_tombstones
        drops = {ledger_id: replace(self.ledgers[ledger_id]) for ledger_id in self._dropped}
        self._new_tombstones, self._dropped = [], set()
        return self._unused.plan_burial(tombstones, drops)

    def finish_burial(self, result: BurialResult) -> None:
        """Keep what is to be tried again, now or when more ledgers are deleted."""
        self._unused.finish_burial(result)

    def return_burial(self, plan: BurialPlan) -> None:
        """There was no room for it: it is to be tried again, as the same burial or another one."""
        self._new_tombstones = [*plan.tombstones, *self._new_tombstones]
        self._dropped.update(self.ledgers.keys() & plan.drops)
        self._unused.return_burial(plan)

    def move_rows(self, directory_index: int, moved: dict[int, Moved]) -> None:
        """Have readers find copies, of some ledgers of a compaction or of all."""
        self._indexes[directory_index].move_rows(moved)

    def row_counts(self, directory_index: int, ledger_ids: Iterable[int]) -> list[int]:
        """How many rows each of the ledgers has there."""
        return [len(self._indexes[directory_index].rows.get(id, ())) for id in ledger_ids]

    def finish_compaction(self, result: Rewritten) -> None:
        """All of its rows are moved: its logs are buried once no row names them, pinned ones later."""
        self._unused.on_compacted(result.directory_index, result.log_ids)

    def last_entry(self, ledger_id: int) -> int | None:
        """The highest entry id stored of the ledger, ``None`` when there is none."""
        if ledger_id not in self.ledgers:
            return None
        return last_stored(self._caches, self._indexes, ledger_id)

    def entry_ids(self, ledger_id: int, first: int = 0) -> Iterator[Sequence[int]]:
        """All stored ids from ``first`` on: ascending sequences, one behind the other."""
        return (item.ids for item in self._find_stored(ledger_id, first, ENTRY_ID_MAX))

    def plan_read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        *,
        stripe: Stripe | None = None,
        size_bytes_max: int,
        select: Callable[[Sequence[int]], Sequence[int]] | None = None,
    ) -> ReadPlan:
        """Find the places of the entries ``first..last``, up to about ``size_bytes_max`` bytes.

        With ``stripe`` only ids that this bookie's place in the ensemble should hold are asked for. ``select`` picks others.
        """
        found = self._find_stored(ledger_id, first, last)
        return plan_of(
            found,
            ledger_id,
            first,
            last,
            stripe=stripe or EVERY_ID,
            size_bytes_max=size_bytes_max,
            select=select,
        )

    def _find_stored(self, ledger_id: int, first: int, last: int) -> Iterator[Stored]:
        """Every stored id of ``first..last`` and its place, ascending, each once."""
        # The snapshot may have entries of a ledger that is deleted.
        if ledger_id not in self.ledgers:
            return iter(())
        return stored_in(self._caches, self._indexes, ledger_id, first, last)
