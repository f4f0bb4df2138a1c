"""Finds the groups of a file and says of every place that holds none *why* it holds none.

It never decides what follows from damage: the journal's replay and the index do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique

from bookie_server.storage.disk.files import File
from bookie_server.storage.disk.group import (
    HEADER_SIZE,
    GroupEnd,
    GroupFormat,
    GroupHeader,
    StampedFormat,
    body_is_valid,
    count_zero_sectors,
    is_zero,
    parse_group_header,
)
from bookie_server.storage.disk.stamps import (
    SECTOR_SIZE,
    count_blank,
    is_blank,
    is_written,
    without_stamps,
)
from bookie_server.wire.buffer import Buffer

_SCAN_SIZE = 1024 * 1024


@unique
class PlaceKind(Enum):
    """What the bytes at a group's place are."""

    VALID = "valid"
    END = "end"
    """Nothing: all of it is blank up to the end of the file."""
    TORN = "torn"
    """A write that was cut short by a crash; never acknowledged if it is the last one."""
    AMBIGUOUS = "ambiguous"
    """Torn or damaged: the bytes cannot tell which."""


@dataclass(frozen=True, slots=True)
class Place:
    """What was found at one offset of a file."""

    kind: PlaceKind
    offset: int
    detail: str = ""
    header: GroupHeader | None = None
    body: memoryview = field(default_factory=lambda: memoryview(b""))
    end: int = 0
    """Offset behind the group, alignment included; only of a valid one."""


class GroupReader:
    """Reads one file of groups; ``size_bytes`` is the file's size when the reader was made.

    A sector is *blank* if it has not been written: zero, in a file that was filled with zeros before.
    """

    def __init__(self, format: GroupFormat, file: File, file_id: int) -> None:
        self._format = format
        self._file = file
        self._file_id = file_id
        self.size_bytes = file.size()

    def read(self, offset: int) -> Place:
        """Classify what is at ``offset``; a place that cannot be read is ambiguous."""
        try:
            return self._read(offset)
        except OSError as cause:
            return Place(PlaceKind.AMBIGUOUS, offset, f"unreadable: {cause}")

    def next_valid(self, offset: int) -> Place | None:
        """Find the first valid group from ``offset`` on, so that reading can go on behind damage."""
        begin = self._format.aligned(offset)
        for start in range(begin, self.size_bytes, _SCAN_SIZE):
            window = self._readable(start, _SCAN_SIZE)
            for at in range(0, len(window), self._format.alignment):
                # Those of other files by their headers alone: an earlier lap may have left many thousands.
                if self._is_own(window[at : at + HEADER_SIZE]):
                    # A damaged group may have a sound header: only a whole one that verifies counts.
                    place = self.read(start + at)
                    if place.kind is PlaceKind.VALID and not self._is_payload(place):
                        return place
        return None

    def _is_own(self, data: bytes) -> bool:
        header = parse_group_header(self._format, data)
        return header is not None and header.file_id == self._file_id

    def has_group(self, end: GroupEnd) -> bool:
        """Whether the header of the group that ends there is in the file; its body is not looked at."""
        alignment = self._format.alignment
        # Backwards, for the group is hardly ever larger than a window.
        for begin in range((end.offset - 1) // _SCAN_SIZE * _SCAN_SIZE, -1, -_SCAN_SIZE):
            window = self._readable(begin, min(_SCAN_SIZE, end.offset - begin))
            for at in range((len(window) - 1) // alignment * alignment, -1, -alignment):
                header = parse_group_header(self._format, window[at : at + HEADER_SIZE])
                # A payload may hold what looks like a header: only one that ends there counts.
                if header is not None and end == GroupEnd(
                    header.file_id,
                    begin + at + self._format.size_of(header.body_size),
                    header.sequence,
                ):
                    return True
        return False

    def _read(self, offset: int) -> Place:
        first = self._file.read_at(offset, SECTOR_SIZE)
        header = parse_group_header(self._format, first)
        if header is None or header.file_id != self._file_id:
            return self._without_header(offset, first, header)
        size = self._format.stored_size(header.body_size)
        # No more than the file has: a group cut short by its end is told apart below.
        data = self._file.read_at(offset, min(size, self.size_bytes - offset))
        body = self._content(data, HEADER_SIZE + header.body_size)[HEADER_SIZE:]
        end = offset + self._format.aligned(size)
        if body_is_valid(first, header, body):
            return Place(PlaceKind.VALID, offset, "", header, body, end)
        if not self._is_blank_from(end):
            # A crash cuts the last write short; what has bytes behind it was no last write.
            return Place(PlaceKind.AMBIGUOUS, offset, "bad checksum before further bytes")
        if len(data) < size:
            return Place(PlaceKind.TORN, offset, "file ends within a group", header)
        unwritten = self._count_unwritten(self._file.read_at(offset, end - offset), offset, header)
        if unwritten > 0:
            return Place(PlaceKind.TORN, offset, f"{unwritten} sectors unwritten", header)
        return Place(PlaceKind.AMBIGUOUS, offset, "bad checksum though every sector is written")

    def _without_header(self, offset: int, first: bytes, other: GroupHeader | None) -> Place:
        if not self._is_blank(first, offset):
            detail = "no group header in a written sector"
            if other is not None:
                detail = f"group of another file {other.file_id:016x}"
            return Place(PlaceKind.AMBIGUOUS, offset, detail)
        if self._is_blank_from(offset):
            return Place(PlaceKind.END, offset)
        # Sectors reach the disk in any order: the body's may be there without the header's.
        return Place(PlaceKind.TORN, offset, "header sector unwritten")

    def _is_blank_from(self, offset: int) -> bool:
        starts = range(offset, self.size_bytes, _SCAN_SIZE)
        return all(self._is_blank(self._file.read_at(start, _SCAN_SIZE), start) for start in starts)

    def _is_blank(self, data: bytes, offset: int) -> bool:
        """Whether no sector of these, which are at this offset, was written."""
        return is_zero(data)

    def _is_payload(self, place: Place) -> bool:
        """Whether a valid group is a copy that stands here as a part of another one's body."""
        return False

    def _content(self, data: Buffer, size_bytes: int) -> memoryview:
        """Header and body, ``size_bytes`` of them, of what the file has of a group."""
        return memoryview(data)[:size_bytes]

    def _count_unwritten(self, data: Buffer, offset: int, header: GroupHeader) -> int:
        """How many sectors of a group, alignment included, its write has not reached."""
        # The header counts the sectors that are zero by content: more were never written.
        return count_zero_sectors(0, [data]) - header.zero_sectors

    def _readable(self, offset: int, size: int) -> bytes:
        """Read for a search: a sector that cannot be read counts as zero."""
        try:
            return self._file.read_at(offset, size)
        except OSError:
            # One bad sector must not hide the sound groups beside it.
            return b"".join(self._sector(at) for at in range(offset, offset + size, SECTOR_SIZE))

    def _sector(self, offset: int) -> bytes:
        try:
            return self._file.read_at(offset, SECTOR_SIZE).ljust(SECTOR_SIZE, b"\0")
        except OSError:
            return bytes(SECTOR_SIZE)


class StampedGroupReader(GroupReader):
    """Reads a file that is written lap after lap: what an earlier lap has left there is blank."""

    def __init__(self, format: StampedFormat, file: File, file_id: int) -> None:
        super().__init__(format, file, file_id)
        self._lap = format.lap

    def _is_blank(self, data: bytes, offset: int) -> bool:
        return is_blank(data, self._lap, offset)

    def _is_payload(self, place: Place) -> bool:
        assert place.header is not None
        if place.offset == place.header.previous_offset:
            return False
        # Of a group that the disk put in the wrong place the stamp is that of its own.
        return is_written(self._file.read_at(place.offset, SECTOR_SIZE), self._lap, place.offset)

    def _content(self, data: Buffer, size_bytes: int) -> memoryview:
        return without_stamps(data, size_bytes)

    def _count_unwritten(self, data: Buffer, offset: int, header: GroupHeader) -> int:
        return count_blank(data, self._lap, offset)
