"""Reads a journal back after a start and says honestly how sure it is of having read everything.

Groups form one chain across files: each names the end of the one before and carries the next
sequence. What is found where the chain breaks decides:

* the rest is blank, which is zero or of an earlier lap: the clean end;
* the last place holds a torn write: it was never acknowledged, it is dropped;
* a place holds debris, but the next file begins, or the next group continues, exactly behind the
  last sound group: the debris is what an earlier crash left, nothing is missing;
* a file ends with a roll record, and the file it names is not there: *damage*. The record itself is
  beside the chain, which goes on in the new file from the end before it;
* anything else is *damage* as well: acknowledged records may be gone. Every group that is provably valid is
  still applied, since more knowledge is never wrong; the caller must put its ledgers in limbo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from bookie_server.core.records import JournalRecord
from bookie_server.storage.disk.damage import Damage
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.disk.files import File, FileSystem
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.disk.group_reader import Place, PlaceKind
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    FORMAT_VERSION,
    JournalFileHeader,
    JournalPosition,
    file_ids,
    file_name,
    group_reader,
    parse_file_header,
)
from bookie_server.storage.journal.record import MalformedBodyError, Roll, decode_records

ORIGIN = GroupEnd(0, 0, 0)
"""The end before the first group of a journal."""


@dataclass(slots=True)
class ReplayCounts:
    """How much was read from journals, and what was missing or damaged."""

    groups: int = 0
    records: int = 0
    bytes_replayed: int = 0
    groups_torn: int = 0
    """Groups that a crash cut short: never acknowledged, hence dropped."""
    bytes_torn: int = 0
    """Body sizes of the torn groups, where their headers were written."""
    damage: list[Damage] = field(default_factory=list)

    def add(self, other: ReplayCounts) -> None:
        """Add the counts and the damage of another replay to these."""
        for name in ReplayCounts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True, kw_only=True)
class ReplayReport(ReplayCounts):
    """What a replay read; complete once the caller has taken the last group."""

    last: GroupEnd
    """End of the last sound group: the next file's chain starts here."""


@dataclass(frozen=True, slots=True)
class ReplayedGroup:
    """One sound group, to be applied in order."""

    position: JournalPosition
    records: list[JournalRecord]


class Replay:
    """Iterates over the sound groups of one journal directory behind ``mark``."""

    def __init__(
        self, files: FileSystem, directory: str, index: int, instance_id: bytes, mark: GroupEnd
    ) -> None:
        self._files = files
        self._directory = directory
        self._index = index
        self._instance_id = instance_id
        self._mark = mark
        self._debris: Place | None = None
        """A torn or ambiguous place, until a later group shows that nothing is missing there."""
        self._debris_path = ""
        self._file_ids: frozenset[int] = frozenset()
        self.report = ReplayReport(last=mark)

    def groups(self) -> Iterator[ReplayedGroup]:
        """The groups in order.

        Raises:
            StorageRefusedError: the files are another bookie's, another journal's or of a newer
                format.
        """
        # Files below the mark are what a crash kept a checkpoint
        # from deleting; their records are stored.
        ids = [id for id in file_ids(self._files, self._directory) if id >= self._mark.file_id]
        self._file_ids = frozenset(ids)
        # A checkpoint deletes only files below its mark, never the one the mark points into.
        if self._mark.file_id and (not ids or ids[0] != self._mark.file_id):
            self._damage(
                file_name(self._mark.file_id), 0, "the file the mark points into is missing"
            )
        for file_id in ids:
            path = f"{self._directory}/{file_name(file_id)}"
            with self._files.open(path) as file:
                # A power loss must not take groups that a later mark says were applied.
                file.sync()
                yield from self._groups_of(file, file_id, path)
        # No file comes behind it that could explain it: it is
        # the write the crash cut short, or damage.
        self._settle_debris(is_last=True)

    def _groups_of(self, file: File, file_id: int, path: str) -> Iterator[ReplayedGroup]:
        header = self._read_file_header(file, file_id, path)
        reader = group_reader(file, file_id, self._instance_id, header)
        offset = BLOCK_SIZE
        if file_id == self._mark.file_id:
            offset = self._mark.offset
            # Else it is an older copy of itself, and what came behind the mark is gone as well.
            if offset > BLOCK_SIZE and not reader.has_group(self._mark):
                self._damage(path, offset, "the group in front of the mark is missing")
        else:
            # The header carried the chain over from the file before.
            self.report.last = GroupEnd(file_id, BLOCK_SIZE, self.report.last.sequence)
        place = reader.read(offset)
        while True:
            if place.kind is PlaceKind.VALID:
                self._link(place, path)
                group = self._decode(place, path)
                if group is not None:
                    yield group
                place = reader.read(place.end)
                continue
            behind = None
            if place.kind is not PlaceKind.END:
                # A second broken place: the one before it was not the
                # last write, so a crash does not explain it.
                self._settle_debris(is_last=False)
                self._debris, self._debris_path = place, path
                behind = reader.next_valid(place.offset + 1)
            if behind is None:
                return
            place = behind

    def _read_file_header(self, file: File, file_id: int, path: str) -> JournalFileHeader | None:
        """The file's header, unless it is damaged; that it does not fit is damage as well."""
        try:
            block = file.read_at(0, BLOCK_SIZE)
        except OSError as cause:
            self._damage(path, 0, f"file header unreadable: {cause}")
            return None
        header = parse_file_header(block)
        if header is None:
            # A file gets its name only after its header was synced: this is no crash's trace.
            self._damage(path, 0, "file header damaged")
            return None
        # The header is signed: what does not fit here was written on purpose, and is not damage.
        if header.version > FORMAT_VERSION:
            raise StorageRefusedError(path, f"journal format {header.version} is newer than ours")
        if header.instance_id != self._instance_id:
            raise StorageRefusedError(path, "journal belongs to another bookie")
        if header.journal_index != self._index:
            raise StorageRefusedError(
                path, f"journal directories were reordered; this was number {header.journal_index}"
            )
        if header.file_id != file_id:
            self._damage(path, 0, f"file was renamed from {header.file_id:016x}")
            return header
        if file.size() < header.size_bytes:
            self._damage(path, file.size(), f"file was truncated from {header.size_bytes} bytes")
        # The chain begins at the mark: what the header of its
        # file names may have been deleted since.
        if file_id != self._mark.file_id:
            self._continue_at(header.previous, path, "file header")
        return header

    def _link(self, place: Place, path: str) -> None:
        """Check that the group continues the chain, and make it the chain's new end."""
        header = place.header
        assert header is not None
        previous = GroupEnd(header.previous_file_id, header.previous_offset, header.sequence - 1)
        # A group starts where the one before it ended, and in a new file the header
        # counts as such an end: a group found elsewhere was moved there.
        if place.offset != previous.offset:
            self._damage(path, place.offset, f"group was written for offset {previous.offset}")
        self._continue_at(previous, path, f"group at {place.offset}")
        self.report.last = GroupEnd(header.file_id, place.end, header.sequence)

    def _continue_at(self, previous: GroupEnd, path: str, what: str) -> None:
        """Check that ``what`` follows the last sound group: then debris between them is explained."""
        last = self.report.last
        if previous == last:
            if self._debris is not None and self._debris.kind is PlaceKind.TORN:
                self._count_torn(self._debris)
            self._debris = None
            return
        self._settle_debris(is_last=False)
        self._damage(
            path, 0, f"{what} follows {_where(previous)}, but the last found was {_where(last)}"
        )
        # The chain goes on from here, so that one gap is reported once.
        self.report.last = max(last, previous)

    def _settle_debris(self, *, is_last: bool) -> None:
        """Decide about debris that no later group explained: torn at the very end, else damage."""
        debris, self._debris = self._debris, None
        if debris is None:
            return
        if debris.kind is PlaceKind.TORN and is_last:
            self._count_torn(debris)
        else:
            self._damage(self._debris_path, debris.offset, debris.detail)

    def _count_torn(self, debris: Place) -> None:
        self.report.groups_torn += 1
        self.report.bytes_torn += debris.header.body_size if debris.header is not None else 0

    def _decode(self, place: Place, path: str) -> ReplayedGroup | None:
        """Decode and count a sound group; one that holds no records is damage."""
        records: list[JournalRecord] = []
        try:
            for record in decode_records(place.body):
                if isinstance(record, Roll):
                    self._check_roll(record, place, path)
                    return None
                records.append(record)
        except MalformedBodyError as cause:
            # The chain is intact, so the replay goes on; only what this group held is unknown.
            self._damage(path, place.offset, f"group holds no records: {cause}")
            return None
        self.report.groups += 1
        self.report.records += len(records)
        self.report.bytes_replayed += len(place.body)
        return ReplayedGroup(JournalPosition(self._index, self.report.last), records)

    def _check_roll(self, roll: Roll, place: Place, path: str) -> None:
        """Check that the file is there in which this one says it goes on."""
        header = place.header
        assert header is not None
        # The new file was begun before the record was written, so its header names the end before it.
        self.report.last = replace(
            self.report.last, offset=place.offset, sequence=header.sequence - 1
        )
        if roll.next_file_id not in self._file_ids:
            missing = file_name(roll.next_file_id)
            self._damage(path, place.offset, f"{missing}, in which the file goes on, is missing")

    def _damage(self, path: str, offset: int, detail: str) -> None:
        self.report.damage.append(Damage(path, offset, detail))


def _where(end: GroupEnd) -> str:
    return f"{end.file_id:016x}+{end.offset}#{end.sequence}"
