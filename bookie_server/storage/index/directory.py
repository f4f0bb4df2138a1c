"""The index of one ledger directory: which block holds an entry, and what must outlive the journal.

On disk it is one file: a header block, a snapshot, and then one checksummed delta per checkpoint,
each synced before anything relies on it. When the deltas outgrow the snapshot, a new file is
written beside it and renamed over it. A last delta that a crash cut short was never relied on and is
dropped; any other failed checksum is damage. After damage the rows are rebuilt from the footers of
the entry logs; handle states that stood behind it are gone, which is why the bookie's ledgers then go
into limbo.

A tombstone stands above everything: what is said of its ledgers before it or behind it does not count.

``rows`` and ``log_use`` belong to the loop thread; everything else to the thread that commits a
checkpoint. That thread copies the rows for a snapshot, so they change by single steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from bookie_server.core.ledger_ranges import IdsBetween, LedgerRanges
from bookie_server.storage.disk.damage import Damage
from bookie_server.storage.disk.errors import NoRoomError, repeatable
from bookie_server.storage.disk.files import File, FileSystem
from bookie_server.storage.disk.group import (
    GroupEnd,
    GroupFormat,
    encode_group,
)
from bookie_server.storage.disk.group_reader import GroupReader, Place, PlaceKind
from bookie_server.storage.disk.stamps import SECTOR_SIZE
from bookie_server.storage.index.debris import clear
from bookie_server.storage.index.delta import (
    IndexDelta,
    IndexState,
    MalformedDeltaError,
    Moved,
    decode_delta,
    encode_delta,
    encode_snapshot,
)
from bookie_server.storage.index.header import (
    FILE_MAGIC,
    FORMAT_VERSION,
    IndexHeader,
    check_header,
    parse_header,
)
from bookie_server.storage.logs.log_use import LogUse
from bookie_server.storage.logs.rows import LedgerRows
from bookkeeper_metadata.foundation.invariant import invariant

NAME = "index"
_TEMPORARY = "index.tmp"
GROUP_MAGIC = b"BKIDELTA"
_SNAPSHOT_AT_BYTES = 1024 * 1024
"""Deltas smaller than this are never worth a snapshot."""

_NO_STATE = IndexState(0, 0, 0, 0, False)


class DirectoryIndex:
    """One directory's index; ``load`` first, then ``commit`` as often as there are checkpoints."""

    def __init__(
        self, files: FileSystem, directory: str, index: int, instance_id: bytes, kept_bytes: int = 0
    ) -> None:
        """``kept_bytes`` of the disk stay free when it is written anew only to be smaller."""
        self._files = files
        self._kept_bytes = kept_bytes
        self.directory = directory
        self.index = index
        self._instance_id = instance_id
        self._format = GroupFormat(GROUP_MAGIC, SECTOR_SIZE, instance_id)
        self._file: File | None = None
        """Open for appending; ``None`` when the next commit must write a snapshot."""
        self._generation = 0
        self._version = FORMAT_VERSION
        self._end = GroupEnd(0, 0, 0)
        self._snapshot_end = 0
        self._written_until = 0
        """Up to where there may be what attempts left that a crash, or a full disk, cut short."""
        self.is_new = True
        """No index file was found."""
        self.state = _NO_STATE
        self.marks: dict[int, GroupEnd] = {}
        self.handles: dict[int, bytes] = {}
        self.tombstones = LedgerRanges()
        self.rows: dict[int, LedgerRows] = {}
        self.log_use = LogUse()
        self._hidden_rows: dict[int, bytes] = {}
        """Committed, and not shown by ``add_rows`` yet."""
        self.damage: list[Damage] = []

    @property
    def path(self) -> str:
        return f"{self.directory}/{NAME}"

    @property
    def is_blank(self) -> bool:
        """Whether nothing was ever stored here: no file, or one from a start that never finished."""
        is_unanswered = self.is_new or (self.state.is_damaged and not self.damage)
        return is_unanswered and not (self.handles or self.rows or self.tombstones)

    def load(self) -> None:
        """Read the index file, as far as it can be trusted; see ``damage``.

        The file is synced first: the process that wrote it may have been killed before it did so,
        and no later delta may be built upon one that a power loss can still take away.

        Raises:
            StorageRefusedError: it is another bookie's, another directory's or of a newer format.
            OSError: the file cannot be synced.
        """
        names = self._files.names(self.directory)
        if _TEMPORARY in names:
            # A crash cut a snapshot short; the index that it was to replace still holds.
            self._files.delete(f"{self.directory}/{_TEMPORARY}")
        if NAME not in names:
            return
        self.is_new = False
        file = self._files.open(self.path, writable=True)
        file.sync()
        snapshot_groups = self._read_header(file)
        is_sound = snapshot_groups is not None and self._read_groups(file, snapshot_groups)
        if is_sound and self._version == FORMAT_VERSION:
            self._file = file
        else:
            file.close()
        self.bury(self.tombstones.members(self.rows))

    def _read_header(self, file: File) -> int | None:
        try:
            block = file.read_at(0, SECTOR_SIZE)
        except OSError as cause:
            self.report(0, f"index header unreadable: {cause}")
            return None
        header = parse_header(block)
        if header is None:
            self.report(0, "index header damaged")
            return None
        check_header(header, self.path, self.index, self._instance_id)
        self._generation, self._version = header.generation, header.version
        return header.snapshot_groups

    def _read_groups(self, file: File, snapshot_groups: int) -> bool:
        """Apply all sound groups; return whether more may be appended behind them."""
        reader = GroupReader(self._format, file, self._generation)
        self._end = GroupEnd(self._generation, SECTOR_SIZE, 0)
        while True:
            place = reader.read(self._end.offset)
            if place.kind is not PlaceKind.VALID:
                behind = reader.next_valid(self._end.offset + 1)
                if behind is None:
                    self._written_until = reader.size_bytes
                    return self._classify_tail(place, snapshot_groups)
                self.report(place.offset, f"deltas behind a broken one: {place.detail}")
                place = behind
            self._apply_group(place)
            if self._end.sequence == snapshot_groups:
                self._snapshot_end = self._end.offset

    def _classify_tail(self, broken: Place, snapshot_groups: int) -> bool:
        if self._end.sequence < snapshot_groups:
            # The file got its name when the whole snapshot was
            # synced: no crash leaves a part of one.
            self.report(broken.offset, f"snapshot incomplete: {broken.detail or 'missing groups'}")
        elif broken.kind is PlaceKind.AMBIGUOUS:
            self.report(broken.offset, f"last delta: {broken.detail}")
        # What a torn delta left is taken away before anything is appended.
        return broken.kind is not PlaceKind.AMBIGUOUS and not self.damage

    def _apply_group(self, place: Place) -> None:
        header = place.header
        assert header is not None
        if (header.sequence, header.previous_offset) != (self._end.sequence + 1, place.offset):
            self.report(place.offset, f"delta {header.sequence} follows {self._end.sequence}")
        # Behind a gap, too, so that one gap is reported once.
        self._end = GroupEnd(self._generation, place.end, header.sequence)
        try:
            delta = decode_delta(place.body, self.state)
        except MalformedDeltaError as cause:
            self.report(place.offset, f"delta holds no items: {cause}")
            return
        self._adopt(delta)
        self.bury(delta.dropped)
        for ledger_id, parts in delta.replaced.items():
            for entry_ids in parts:
                self.forget_rows(ledger_id, entry_ids)
        self.add_rows(delta.rows)
        self.move_rows(delta.moved)

    def _adopt(self, delta: IndexDelta) -> None:
        self.state = delta.state
        self.marks.update(delta.marks)
        self.handles.update(delta.handles)
        between = IdsBetween(self.handles)
        for first, last in delta.tombstones:
            self.tombstones.add(first, last)
            for ledger_id in between(first, last):
                del self.handles[ledger_id]
        # What a checkpoint began to write before its ledger was deleted.
        for ledger_id in self.tombstones.members(delta.handles):
            self.handles.pop(ledger_id, None)

    def add_rows(self, rows: dict[int, bytes], buried: LedgerRanges | None = None) -> None:
        """Make packed rows visible to readers, but for those of ``buried`` ledgers; loop thread, after
        their delta is committed."""
        for ledger_id, packed in rows.items():
            new = LedgerRows(packed)
            # A delta's rows name a log that no earlier row does.
            self.log_use.add(new.log_ids())
            known = self.rows.get(ledger_id)
            if buried and ledger_id in buried:
                self.log_use.remove(new.log_ids())
            elif known is None:
                self.rows[ledger_id] = new
            elif not known.append_packed(packed):
                for row in new:
                    known.insert(row)
        self._hidden_rows = {}

    def move_rows(self, moved: dict[int, Moved]) -> None:
        """Have entries that were rewritten be found at their new places; loop thread, once that is durable.

        Those that are replaced or deleted meanwhile are left alone.
        """
        for ledger_id, moves in moved.items():
            rows = self.rows.get(ledger_id)
            before = rows.log_ids() if rows is not None else set()
            if rows is not None:
                rows.move(moves.places, LedgerRows(moves.rows))
            after = rows.log_ids() if rows is not None else set()
            self.log_use.add(after - before)
            self.log_use.remove(before - after)
            for log_id in LedgerRows(moves.rows).log_ids():
                self.log_use.note(log_id)

    def bury(self, ledger_ids: Iterable[int]) -> None:
        """Forget where the entries of deleted ledgers are, or of dropped ones; loop thread."""
        for ledger_id in ledger_ids:
            rows = self.rows.pop(ledger_id, None)
            if rows is not None:
                self.log_use.remove(rows.log_ids())

    def forget_rows(self, ledger_id: int, entry_ids: Sequence[int]) -> None:
        """Forget where these entries are, for they are replaced; loop thread, once that is durable."""
        if (rows := self.rows.get(ledger_id)) is not None:
            before = rows.log_ids()
            rows.remove(entry_ids)
            self.log_use.remove(before - rows.log_ids())

    def adopt_rebuilt(self, last_log_id: int) -> None:
        """Rows were added from the footers of logs up to this one: count them, and log no more behind
        damage."""
        self.log_use = LogUse()
        for rows in self.rows.values():
            self.log_use.add(rows.log_ids())
        # The rows name these logs now. A lower number would make leftovers of them, which the next
        # sound start deletes.
        self.state = replace(self.state, last_log_id=max(self.state.last_log_id, last_log_id))
        # Nothing is appended behind damage: the next commit writes a snapshot to a new file.
        self.close()

    def commit(self, delta: IndexDelta) -> None:
        """Make the delta durable, appended or within a new snapshot; ``add_rows`` then shows its rows.

        Raises:
            NoRoomError: it is not durable; the same delta may be committed later.
            OSError: the delta may or may not be durable; the index must not be used any more.
        """
        for journal_index, end in delta.marks.items():
            before = self.marks.get(journal_index)
            invariant(before is None or before <= end, "a mark never moves backwards")
        # When the deltas are as large as the snapshot: so all snapshots together cost a
        # fixed multiple of the deltas, however large the index grows.
        outgrown = self._end.offset - self._snapshot_end > max(
            _SNAPSHOT_AT_BYTES, self._snapshot_end
        )
        if self._file is None:
            self._write_snapshot(delta)
        elif not outgrown or not self._try_snapshot(delta):
            self._append_delta(self._file, delta)
        # Only now: what found no room is not in the index, neither on disk nor in memory.
        self._adopt(delta)
        if delta.rows:
            self._hidden_rows = delta.rows

    def _try_snapshot(self, delta: IndexDelta) -> bool:
        """Write a snapshot if there is room for one: it saves room later, and can wait."""
        # It replaces all of this file, so it is hardly larger.
        needed_bytes = self._end.offset + self._kept_bytes
        if self._files.free_space(self.directory).free_bytes < needed_bytes:
            return False
        try:
            self._write_snapshot(delta)
        except NoRoomError:
            return False
        return True

    def _append_delta(self, file: File, delta: IndexDelta) -> None:
        buffers, size = encode_group(
            self._format, self._end.file_id, self._end, encode_delta(delta)
        )
        end = self._end.offset + size
        # Else it would stand behind this delta for good, or a crash would mix the two.
        clear(file, self.path, self._end.offset, self._written_until)
        self._written_until = end
        with repeatable(self.path):
            file.write_at(self._end.offset, buffers)
        file.sync()
        self._end = GroupEnd(self._end.file_id, end, self._end.sequence + 1)

    def _write_snapshot(self, delta: IndexDelta) -> None:
        """Write everything there is, and ``delta``, to a new file that replaces this one."""
        temporary = f"{self.directory}/{_TEMPORARY}"
        try:
            # The file is thrown away if anything fails, a sync included.
            with repeatable(temporary):
                file, end = self._replace_file(temporary, delta)
        except NoRoomError:
            if _TEMPORARY in self._files.names(self.directory):
                self._files.delete(temporary)
            raise
        self.close()
        self._file, self._generation = file, end.file_id
        self._end, self._snapshot_end, self._written_until = end, end.offset, end.offset
        self._files.sync_dir(self.directory)
        self.is_new = False

    def _replace_file(self, temporary: str, delta: IndexDelta) -> tuple[File, GroupEnd]:
        generation = self._generation + 1
        file = self._files.create(temporary)
        try:
            end = GroupEnd(generation, SECTOR_SIZE, 0)
            everything = IndexDelta(
                delta.state,
                self.marks | delta.marks,
                self.handles,
                [*self.tombstones, *delta.tombstones],
            )
            # This delta's own rows come as a part of their own, and those of a checkpoint that found no
            # room in another directory: ``rows`` has them only when their checkpoint has ended. Its
            # handles replace those before them.
            hidden = [self._hidden_rows] if self._hidden_rows else []
            parts = [IndexDelta(delta.state, {}, rows=rows) for rows in (*hidden, delta.rows)]
            parts[-1].handles = delta.handles
            # Behind all rows: what is moved may be among them.
            parts[-1].moved = delta.moved
            bodies = encode_snapshot(everything, self._packed_rows())
            for body in chain(bodies, *map(encode_snapshot, parts)):
                buffers, size = encode_group(self._format, generation, end, body)
                file.write_at(end.offset, buffers)
                end = GroupEnd(generation, end.offset + size, end.sequence + 1)
            # It says how many groups ``load`` must find, so it comes last.
            header = IndexHeader(
                FILE_MAGIC, FORMAT_VERSION, self.index, generation, self._instance_id, end.sequence
            )
            file.write_at(0, [header.encode()])
            file.sync()
            self._files.rename(temporary, self.path)
        except OSError:
            file.close()
            raise
        return file, end

    def _packed_rows(self) -> Iterator[tuple[int, bytes]]:
        """All rows, one ledger at a time: to copy those of all would double their memory.

        Safe beside the loop thread: rows are added for a checkpoint that has ended only. Those that are
        forgotten meanwhile are replaced, or buried, by a record behind the marks of the delta.
        """
        for ledger_id in tuple(self.rows):
            rows = self.rows.get(ledger_id)
            if rows is not None and (packed := rows.packed()):
                yield ledger_id, packed

    def mark_as_new(self, marks: dict[int, GroupEnd], state: IndexState) -> None:
        """Start as a new directory: everything up to ``marks`` is stored in the others."""
        self.marks = dict(marks)
        self.state = replace(state, last_log_id=0)

    def establish(self) -> None:
        """Write a new directory's index, with what ``mark_as_new`` gave it and nothing else.

        Raises:
            OSError: as :meth:`commit`.
        """
        self._write_snapshot(IndexDelta(self.state, {}))

    def close(self) -> None:
        """Close the file; every commit is durable already. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def report(self, offset: int, detail: str) -> None:
        """Note damage of the index, or of what it speaks of."""
        self.damage.append(Damage(self.path, offset, detail))
