"""The journal: where an add becomes durable before it is acknowledged.

A journal directory holds files ``{id:016x}.txn``: one header block and then groups, one per
``fdatasync``. Files are written from front to back and never reused; they are filled with zeros
ahead of use, because a sync into blocks that exist costs a third of one that extends the file, and
so that what follows the last group is known to be zero. They have their full length from the start
and say so, hence a truncated one is noticed. The next file is prepared under another
name and gets its header and its name only when it is needed.

*Every file that holds an acknowledged group is named by something durable elsewhere*, so that its loss
is noticed: the first file of a process by the marks of every index (``open_storage`` commits them before
anything is acknowledged), each later one by the *roll record* in a group of its own that ends the file
before it. That record is written when the next file has its header and its name, and before any group
is: a crash in between leaves an empty file that nothing names, and no record ever names a file that
was not there. Not noticed is a newest file that is rolled back to an older state of itself, behind the
last mark: it is what a crash at that moment would have left.

One thread writes (``write_group``), another one prepares (``prepare``). Ids are
``max(now, highest + 1)``: the order of files never depends on the clock (BOOKKEEPER-636).

After any failed write or sync the journal is poisoned: nothing is tried again, every later call
raises. ``replay`` in the next process finds out what was written. Only what prepares may find no
room: its zeros hold nothing, so they are left for later, and groups are written without them. They
take nothing of the room that is kept for entries.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

from bookie_server.core.records import JournalRecord
from bookie_server.storage.disk.errors import StorageFailedError, is_no_room
from bookie_server.storage.disk.files import ZEROS, File, FileSystem
from bookie_server.storage.disk.group import (
    CRC_SIZE,
    GroupEnd,
    GroupFormat,
    encode_group,
    is_signed,
    signed,
)
from bookie_server.storage.journal.record import Roll, encode_record
from bookie_server.wire.buffer import Buffer
from bookkeeper_metadata.foundation.measures import Durations

SUFFIX = ".txn"
BLOCK_SIZE = 4096
FORMAT_VERSION = 2
"""2 has roll records, which version 0.1 would take for damage; files of format 1 are read as they are."""
FILE_MAGIC = b"BKJRNL\r\n"
GROUP_MAGIC = b"BKJGROUP"
PREPARED = "next.prepared"

_HEADER = struct.Struct(">8sIHqq16sqqq")


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """The end of a group: everything of this journal up to here is durable."""

    journal_index: int
    end: GroupEnd


@dataclass(frozen=True, slots=True)
class JournalFileHeader:
    """The first block of a journal file, in the order of its fields on disk."""

    version: int
    journal_index: int
    file_id: int
    size_bytes: int
    """The file was this long before it got its name: a shorter one was truncated."""
    instance_id: bytes
    previous: GroupEnd
    """The end of the last sound group in older files when this one was begun."""


def group_format(instance_id: bytes) -> GroupFormat:
    """The format of the groups in this bookie's journals."""
    return GroupFormat(GROUP_MAGIC, BLOCK_SIZE, instance_id)


def file_name(file_id: int) -> str:
    """Sixteen hex digits, so that names sort as ids do."""
    return f"{file_id:016x}{SUFFIX}"


def file_ids(files: FileSystem, directory: str) -> list[int]:
    """Ids of the journal files in ``directory``, ascending."""
    names = (name.removesuffix(SUFFIX) for name in files.names(directory) if name.endswith(SUFFIX))
    return sorted(int(name, 16) for name in names if len(name) == 16)


def encode_file_header(header: JournalFileHeader) -> bytes:
    """Encode the first block of a journal file."""
    *fields, previous = astuple(header)
    return signed(_HEADER.pack(FILE_MAGIC, *fields, *previous), BLOCK_SIZE)


def parse_file_header(block: bytes) -> JournalFileHeader | None:
    """Parse a file's first block; ``None`` if its checksum fails or anything behind it is not zero."""
    if len(block) != BLOCK_SIZE or block[:8] != FILE_MAGIC or any(block[_HEADER.size + CRC_SIZE :]):
        return None
    if not is_signed(block, _HEADER.size):
        return None
    _, version, index, file_id, file_size, instance_id, *previous = _HEADER.unpack_from(block)
    return JournalFileHeader(version, index, file_id, file_size, instance_id, GroupEnd(*previous))


@dataclass(slots=True)
class _OpenFile:
    """A journal file that has its header and its name."""

    file_id: int
    file: File
    """The writer's."""
    filler: File
    """The preparer's, an open file description of its own: the kernel reports a failed write-back once
    to each, and the preparer's sync must not take the report that belongs to a group."""
    zeroed: int
    """Up to here zeros, or groups, are written."""

    def close(self) -> None:
        self.file.close()
        self.filler.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPlace:
    """Where a journal lives and how its files are cut."""

    directory: str
    index: int
    instance_id: bytes
    file_size_bytes: int
    zero_chunk_bytes: int
    spare_bytes: int = 0
    """Free bytes of the disk that preparing leaves alone."""


class Journal:
    """Writes groups behind ``last``. Making one begins a new file, which ``close`` closes."""

    def __init__(
        self, files: FileSystem, place: JournalPlace, clock_ms: Callable[[], int], last: GroupEnd
    ) -> None:
        self.index = place.index
        self.directory = place.directory
        self._files = files
        self._place = place
        self._clock_ms = clock_ms
        self._format = group_format(place.instance_id)
        self._last = last
        self._offset = 0
        """Where the next group goes in the current file."""
        self.syncs = Durations()
        """How long groups took to be written and synced."""
        self.written_bytes = 0
        self._failure: StorageFailedError | None = None
        self._zeroing = threading.Lock()
        """Held by either thread while it writes beyond the zeroed part of the file."""
        self._preparing = threading.Lock()
        self._prepared: tuple[File, int] | None = None
        # Above files that the replay could not link, too: a name
        # taken twice would replace the older file.
        self._highest_id = max([last.file_id, *file_ids(files, place.directory)])
        # The process before may have died at any point of
        # preparing it, so nothing in it is relied on.
        if PREPARED in files.names(place.directory):
            files.delete(f"{place.directory}/{PREPARED}")
        self._current = self._begin_file()
        self._enter(self._current)

    @property
    def position(self) -> JournalPosition:
        """The end of the last durable group, or of the header in a new file."""
        return JournalPosition(self.index, self._last)

    def write_group(self, records: Sequence[JournalRecord]) -> JournalPosition:
        """Make all records durable, in order, with one write and one sync; blocks meanwhile.

        Journal thread only.

        Raises:
            StorageFailedError: the records may or may not be durable, and the journal takes no more.
        """
        self._raise_if_failed()
        try:
            return self._write([encode_record(record) for record in records])
        except OSError as cause:
            raise self._poison(cause) from cause

    def prepare(self) -> bool:
        """Zero-fill ahead, or get the next file ready; ``True`` when there may be more to do.

        Called by one other thread, whenever it has time: writing works without it, only slower.

        Raises:
            StorageFailedError: the journal is poisoned.
        """
        self._raise_if_failed()
        try:
            return self._zero_ahead() or self._prepare_next()
        except OSError as cause:
            raise self._poison(cause) from cause

    def close(self) -> None:
        """Close the files; everything acknowledged is durable already. Idempotent."""
        # Before the files go: a thread that calls late is refused. The
        # lock waits for the other thread's zeros.
        self._failure = self._failure or StorageFailedError(self.directory, "journal is closed")
        with self._preparing:
            self._current.close()
            if self._prepared is not None:
                self._prepared[0].close()

    def _write(self, body: Sequence[Buffer]) -> JournalPosition:
        buffers, size = self._encode(body)
        # Room is kept for the roll record. A group that is larger than a
        # file has to be written all the same, in a file of its own.
        limit = self._place.file_size_bytes - BLOCK_SIZE
        if self._offset > BLOCK_SIZE and self._offset + size > limit:
            self._roll()
            # Its header names the file and the end before it, and the roll has changed both.
            buffers, size = self._encode(body)
        self._write_durably(buffers, size)
        # Not before the sync: marks and the next group's header name this end as durable.
        self._offset += size
        self._last = GroupEnd(self._current.file_id, self._offset, self._last.sequence + 1)
        return JournalPosition(self.index, self._last)

    def _encode(self, body: Sequence[Buffer]) -> tuple[list[Buffer], int]:
        return encode_group(self._format, self._current.file_id, self._last, body)

    def _write_durably(self, buffers: Sequence[Buffer], size: int) -> None:
        """Write a group where the current file's groups end, and sync it."""
        started_s = time.perf_counter()
        current, end = self._current, self._offset + size
        # Beyond the zeroed part the other thread may be writing: its zeros must not hit the group.
        # Within a file that part only grows, so it is safe to look at its end without the lock.
        if end > current.zeroed:
            with self._zeroing:
                current.file.write_at(self._offset, buffers)
                current.zeroed = max(current.zeroed, end)
        else:
            current.file.write_at(self._offset, buffers)
        current.file.sync()
        self.syncs.add(time.perf_counter() - started_s)
        self.written_bytes += size

    def _roll(self) -> None:
        """Go on in a new file, whose loss the current one tells from now on."""
        # The other thread works on the current and the next
        # file; it must not see one closed under it.
        with self._preparing:
            begun = self._begin_file()
            # The chain leads past this group: the new file's header names the end before it.
            self._write_durably(*self._encode([encode_record(Roll(begun.file_id))]))
            self._current.close()
            self._enter(begun)

    def _begin_file(self) -> _OpenFile:
        """Begin a new file; its name and header are durable before any group is written to it."""
        temporary = f"{self.directory}/{PREPARED}"
        if self._prepared is None:
            file = self._create_next()
            zeroed = self._fill_chunk(file, 0) if self._has_spare() else 0
        else:
            file, zeroed = self._prepared
        # Header, sync, name, in this order: the replay takes a named file without
        # a sound header for damage, since no crash leaves one.
        file_id = max(self._clock_ms(), self._highest_id + 1)
        size, instance_id = self._place.file_size_bytes, self._place.instance_id
        header = JournalFileHeader(
            FORMAT_VERSION, self.index, file_id, size, instance_id, self._last
        )
        file.write_at(0, [encode_file_header(header)])
        file.sync()
        path = f"{self.directory}/{file_name(file_id)}"
        self._files.rename(temporary, path)
        self._files.sync_dir(self.directory)
        self._prepared = None
        self._highest_id = file_id
        filler = self._files.open(path, writable=True)
        # Where there was no room nothing is zeroed, and zeros must never go over the header.
        return _OpenFile(file_id, file, filler, max(zeroed, BLOCK_SIZE))

    def _enter(self, begun: _OpenFile) -> None:
        """Write to a new file from now on."""
        self._current = begun
        # The header carries the chain over; the file's groups follow the header.
        self._last = GroupEnd(begun.file_id, BLOCK_SIZE, self._last.sequence)
        self._offset = BLOCK_SIZE

    def _zero_ahead(self) -> bool:
        """Write the next chunk of zeros unless two of them lie ahead of the writer already."""
        with self._preparing:
            current = self._current
            ahead = self._offset + 2 * self._place.zero_chunk_bytes
            if current.zeroed >= min(ahead, self._place.file_size_bytes) or not self._has_spare():
                return False
            with self._zeroing:
                before = current.zeroed
                current.zeroed = self._fill_chunk(current.filler, before)
            if current.zeroed == before:
                return False
            # Not under the writer's lock: a group that had to wait
            # for the zeros need not wait for this, too.
            current.filler.sync()
            return True

    def _prepare_next(self) -> bool:
        """Add a chunk of zeros to the next file once this one is half full."""
        with self._preparing:
            limit = self._place.file_size_bytes
            # A journal that is hardly written keeps no second file.
            if self._offset < limit // 2 or not self._has_spare():
                return False
            if self._prepared is None:
                try:
                    self._prepared = self._create_next(), 0
                except OSError as cause:
                    if is_no_room(cause):
                        return False
                    raise
            file, before = self._prepared
            if before >= limit:
                return False
            # One chunk a call: a sync of the whole file would
            # compete with the groups' syncs for long.
            zeroed = self._fill_chunk(file, before)
            file.sync()
            self._prepared = file, zeroed
            return zeroed > before

    def _create_next(self) -> File:
        """Create a file of its final length, most of it still a hole."""
        path = f"{self.directory}/{PREPARED}"
        file = self._files.create(path)
        try:
            # Its length stands in the header: a file found shorter
            # was truncated, and hides lost groups.
            file.write_at(self._place.file_size_bytes - BLOCK_SIZE, [bytes(BLOCK_SIZE)])
        except OSError:
            file.close()
            # Its name must be free when there is room again.
            self._files.delete(path)
            raise
        return file

    def _fill_chunk(self, file: File, start: int) -> int:
        """Write a chunk of zeros from ``start`` on, at most to the file's end; return where it ends.

        On a full disk it ends earlier.
        """
        end = min(start + self._place.zero_chunk_bytes, self._place.file_size_bytes)
        for offset in range(start, end, len(ZEROS)):
            try:
                file.write_at(offset, [memoryview(ZEROS)[: end - offset]])
            except OSError as cause:
                # What was written of it are zeros where zeros are read anyhow.
                if is_no_room(cause):
                    return offset
                raise
        return max(start, end)

    def _has_spare(self) -> bool:
        """Whether there is room for a chunk of zeros beyond what is kept for others."""
        free_bytes = self._files.free_space(self.directory).free_bytes
        return free_bytes - self._place.zero_chunk_bytes >= self._place.spare_bytes

    def _poison(self, cause: OSError) -> StorageFailedError:
        if self._failure is None:
            self._failure = StorageFailedError(self.directory, f"journal: {cause}")
        return self._failure

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            # A new one each time: two threads raise it, and a shared
            # one would collect both their tracebacks.
            raise StorageFailedError(self._failure.path, self._failure.detail)
