"""What is stored, as the loop thread sees it: facts, cached runs, and the way to every entry.

At every moment each stored entry is in exactly one of cache, frozen snapshot and index, so a reader
finds it once. Nothing here blocks or touches a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bookie_server.core.handle_state import UNASSIGNED, LedgerHandleState
from bookie_server.core.ledger_ranges import LedgerRanges
from bookie_server.core.records import Add, ExplicitLac, Fence, JournalRecord, MasterKey, Tombstone
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.index.handle_state import MASTER_KEY_SIZE_MAX
from bookie_server.storage.journal.journal import JournalPosition
from bookie_server.storage.logs.id_pattern import clip
from bookie_server.storage.logs.write_cache import WriteCache
from bookie_server.storage.read_plan import ReadPlan, Stored, merge_stored
from bookie_server.wire.record import Run
from bookie_server.wire.stripe import EVERY_ID, Stripe
from bookkeeper_metadata.foundation.invariant import invariant

ENTRY_ID_MAX = 2**63 - 1
_PLAN_ITEMS_MAX = 4096
"""Pieces one plan names at most; what is behind them is not reached."""


class Contents:
    """The state in memory of one bookie's storage; loop thread only, and recovery before it."""

    def __init__(self, indexes: Sequence[DirectoryIndex], journal_count: int) -> None:
        self._indexes = tuple(indexes)
        self._cache = WriteCache()
        self._snapshot: WriteCache | None = None
        """What the checkpoint under way writes; frozen."""
        self._dirty: set[int] = set()
        """Ledgers whose facts changed since the last checkpoint began."""
        self._new_tombstones: list[tuple[int, int]] = []
        self._is_state_dirty = True
        self._assigned: dict[int, int] = {}
        """Journals of ledgers whose first record is not durable yet."""
        self._ledgers_of_journal = [0] * journal_count
        self._ledgers_of_directory = [0] * len(self._indexes)
        self.applied: dict[int, GroupEnd] = {}
        """Per journal: the end of the last group whose records are applied."""
        self.ledgers: dict[int, LedgerHandleState] = {}
        """Every ledger this bookie knows. Read it freely on the loop thread; change it by ``apply``
        and ``set_limbo`` only, or the change is never stored."""
        self.tombstones = LedgerRanges()
        self.is_damaged = False
        """Records may be missing, and nobody has said yet which ledgers that concerns."""

    @property
    def cached_bytes(self) -> int:
        """Bytes that only memory and the journal hold: what a checkpoint would write, or is writing."""
        frozen = self._snapshot.size_bytes if self._snapshot is not None else 0
        return self._cache.size_bytes + frozen

    def journal_of(self, ledger_id: int) -> int:
        """The journal that takes the ledger's records: recorded, else the one with fewest ledgers."""
        handle = self.ledgers.get(ledger_id)
        if handle is not None and handle.journal_index != UNASSIGNED:
            return handle.journal_index
        if ledger_id not in self._assigned:
            counts = self._ledgers_of_journal
            chosen = min(range(len(counts)), key=counts.__getitem__)
            counts[chosen] += 1
            self._assigned[ledger_id] = chosen
        return self._assigned[ledger_id]

    def missing(self, run: Run) -> list[Run]:
        """The parts of ``run`` of which no entry is stored; empty when all are."""
        last = self.last_entry(run.ledger_id)
        if last is None or run.first_entry > last:
            return [run]
        stored: set[int] = set()
        for item in self._find_stored(run.ledger_id, run.first_entry, run.last_entry):
            stored.update(item.ids)
        if not stored:
            return [run]
        parts: list[Run] = []
        begin: int | None = None
        for at, entry_id in enumerate(run.entry_ids):
            if entry_id in stored:
                if begin is not None:
                    parts.append(run.slice(begin, at))
                begin = None
            elif begin is None:
                begin = at
        if begin is not None:
            parts.append(run.slice(begin, len(run)))
        return parts

    def apply(self, records: Sequence[JournalRecord], position: JournalPosition) -> None:
        """Take over the records of a group that is durable; groups of a journal in their order.

        Entries that are stored already stay as they are.
        """
        before = self.applied.get(position.journal_index)
        invariant(before is None or before < position.end, "groups complete in order")
        for record in records:
            self._apply(record, position.journal_index)
        self.applied[position.journal_index] = position.end

    def _apply(self, record: JournalRecord, journal_index: int) -> None:
        match record:
            case Add(run):
                handle = self._handle_of(run.ledger_id, journal_index)
                for part in self.missing(run):
                    self._cache.insert(part)
                handle.last_add_confirmed = max(handle.last_add_confirmed, run.last_add_confirmed())
            case MasterKey(ledger_id, key):
                handle = self._handle_of(ledger_id, journal_index)
                # Version 0.1 journalled keys of any size, and then could store no index: such a key
                # is nobody's, and the fence that came with it stands without one.
                if handle.master_key is None and len(key) <= MASTER_KEY_SIZE_MAX:
                    handle.master_key = key
            case Fence(ledger_id):
                self._handle_of(ledger_id, journal_index).is_fenced = True
            case ExplicitLac(ledger_id, packet):
                _take_over(packet, self._handle_of(ledger_id, journal_index))
            case Tombstone(first_ledger, last_ledger):
                self.tombstones.add(first_ledger, last_ledger)
                self._new_tombstones.append((first_ledger, last_ledger))

    def remember_lac(self, ledger_id: int, packet: bytes) -> None:
        """Keep an explicit LAC of a known ledger for the next checkpoint; no journal has it."""
        _take_over(packet, self.ledgers[ledger_id])
        self._dirty.add(ledger_id)

    def _handle_of(self, ledger_id: int, journal_index: int) -> LedgerHandleState:
        """The ledger's facts, about to change."""
        handle = self.ledgers.get(ledger_id)
        if handle is None:
            handle = self.ledgers[ledger_id] = LedgerHandleState()
        if handle.journal_index == UNASSIGNED:
            handle.journal_index = journal_index
            if self._assigned.pop(ledger_id, UNASSIGNED) == UNASSIGNED:
                self._ledgers_of_journal[journal_index] += 1
        self._dirty.add(ledger_id)
        return handle

    def restore_handle(self, ledger_id: int, handle: LedgerHandleState) -> None:
        """Take facts over from the index, before anything is replayed."""
        self.ledgers[ledger_id] = handle
        if handle.directory_index != UNASSIGNED:
            self._ledgers_of_directory[handle.directory_index] += 1
        if handle.journal_index != UNASSIGNED:
            self._ledgers_of_journal[handle.journal_index] += 1

    def set_limbo(self, ledger_ids: Sequence[int], fenced_ids: Sequence[int]) -> None:
        """Record that these ledgers are in limbo, or fenced, known here or not.

        Says at the same time that damage found so far is answered: the caller names every ledger it
        may concern. Durable after ``commit_facts`` or the next checkpoint.
        """
        for ledger_id in ledger_ids:
            self._touch(ledger_id).is_limbo = True
        for ledger_id in fenced_ids:
            self._touch(ledger_id).is_fenced = True
        self.is_damaged = False
        self._is_state_dirty = True

    def _touch(self, ledger_id: int) -> LedgerHandleState:
        self._dirty.add(ledger_id)
        return self.ledgers.setdefault(ledger_id, LedgerHandleState())

    def suspect_everything(self) -> None:
        """Damage was found: put every known ledger in limbo and fence it until told otherwise."""
        self.is_damaged = True
        self._is_state_dirty = True
        for ledger_id, handle in self.ledgers.items():
            handle.is_limbo = handle.is_fenced = True
            self._dirty.add(ledger_id)

    def last_entry(self, ledger_id: int) -> int | None:
        """The highest entry id stored of the ledger, ``None`` when there is none."""
        last = self._cache.last_entry(ledger_id)
        if self._snapshot is not None:
            last = _max(last, self._snapshot.last_entry(ledger_id))
        for index in self._indexes:
            rows = index.rows.get(ledger_id)
            if rows is not None:
                last = _max(last, rows.last_entry)
        return last

    def entry_ids(self, ledger_id: int) -> list[Sequence[int]]:
        """All stored ids of the ledger: ascending sequences, one behind the other."""
        return [item.ids for item in self._find_stored(ledger_id, 0, ENTRY_ID_MAX)]

    def plan_read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        *,
        stripe: Stripe | None = None,
        size_bytes_max: int,
    ) -> ReadPlan:
        """Where the entries ``first..last`` are, as far as about ``size_bytes_max`` bytes reach.

        ``stripe`` limits the question to the ids a bookie's place in the ensemble holds.
        """
        invariant(0 <= first <= last, "a read asks for at least one id")
        wanted = stripe or EVERY_ID
        stored: list[Stored] = []
        size = 0
        for item in self._find_stored(ledger_id, first, last):
            ids = wanted.select(item.ids)
            if not ids:
                continue
            if size >= size_bytes_max or len(stored) >= _PLAN_ITEMS_MAX:
                end = stored[-1].ids[-1]
                return ReadPlan(ledger_id, first, last, wanted, size_bytes_max, tuple(stored), end)
            stored.append(Stored(ids, item.place, item.directory))
            size += stored[-1].size_bytes
        return ReadPlan(ledger_id, first, last, wanted, size_bytes_max, tuple(stored), last)

    def plan_compare(self, run: Run) -> ReadPlan:
        """Where the stored twins of a run's entries are; ``read_plan.runs_of`` makes them comparable."""
        items: list[Stored] = []
        for item in self._find_stored(run.ledger_id, run.first_entry, run.last_entry):
            asked = set(run.entry_ids)
            ids = [entry_id for entry_id in item.ids if entry_id in asked]
            if ids:
                items.append(Stored(ids, item.place, item.directory))
        first, last = run.first_entry, run.last_entry
        return ReadPlan(run.ledger_id, first, last, EVERY_ID, ENTRY_ID_MAX, tuple(items), last)

    def _find_stored(self, ledger_id: int, first: int, last: int) -> Iterator[Stored]:
        """Everything stored in ``first..last``, ascending, each id once."""
        sources: list[Iterator[Stored]] = []
        for cache in (self._cache, self._snapshot):
            if cache is not None and ledger_id in cache.ledgers:
                sources.append(_find_in_cache(cache, ledger_id, first, last))
        for index in self._indexes:
            if ledger_id in index.rows:
                sources.append(_find_in_index(index, ledger_id, first, last))
        return merge_stored(sources) if len(sources) != 1 else sources[0]

    def _directory_of(self, ledger_id: int) -> int:
        """The ledger's directory; at its first checkpoint the one with the fewest ledgers."""
        handle = self.ledgers[ledger_id]
        if handle.directory_index == UNASSIGNED:
            counts = self._ledgers_of_directory
            handle.directory_index = min(range(len(counts)), key=counts.__getitem__)
            counts[handle.directory_index] += 1
            self._dirty.add(ledger_id)
        return handle.directory_index


def lac_of_packet(packet: bytes) -> int:
    """The LAC an explicit LAC packet claims, unverified; -1 where there is none."""
    return int.from_bytes(packet[8:16], "big", signed=True) if len(packet) >= 16 else -1


def _take_over(packet: bytes, handle: LedgerHandleState) -> None:
    lac = lac_of_packet(packet)
    if handle.explicit_lac is None or lac >= handle.last_add_confirmed:
        handle.explicit_lac = packet
    handle.last_add_confirmed = max(handle.last_add_confirmed, lac)


def _find_in_cache(cache: WriteCache, ledger_id: int, first: int, last: int) -> Iterator[Stored]:
    for run in cache.between(ledger_id, first, last):
        ids = clip(run.entry_ids, first, last)
        if ids:
            yield Stored(ids, run)


def _find_in_index(
    index: DirectoryIndex, ledger_id: int, first: int, last: int
) -> Iterator[Stored]:
    for row in index.rows[ledger_id].between(first, last):
        ids = clip(row.pattern.ids(), first, last)
        if ids:
            yield Stored(ids, row, index.directory)


def _max(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return max(left, right)
