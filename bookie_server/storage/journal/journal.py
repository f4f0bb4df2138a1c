"""The journal: where an add becomes durable before it is acknowledged.

A journal directory holds files ``{id:016x}.txn``: one header block and then groups, one per
``fdatasync``. Files are written from front to back, and in blocks that exist, because a sync into those
costs a third of one that extends the file. So a file is filled with zeros ahead of its first use, and when
a checkpoint has made it needless it is kept for another *lap*, under another name: it gets a header and an
id again, as if it were new. What a group did not reach is told by stamps, and by zeros in the first lap
(see :mod:`bookie_server.storage.disk.stamps`). Files have their full length from the start
and say so, hence a truncated one is noticed. The next file is prepared under another
name and gets its header and its name only when it is needed. A process writes again only what it has filled
itself: of the files that it found it knows nothing but what they say.

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

import mmap
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookie_server.core.records import JournalRecord
from bookie_server.storage.disk.errors import StorageFailedError, is_no_room
from bookie_server.storage.disk.files import ZEROS, File, FileSystem
from bookie_server.storage.disk.group import GroupEnd, put_stamped_group
from bookie_server.storage.disk.stamps import LAPS_MAX
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    FORMAT_VERSION,
    JournalFileHeader,
    JournalPosition,
    encode_file_header,
    file_ids,
    file_name,
    stamped_format,
)
from bookie_server.storage.journal.record import Roll, encode_record
from bookie_server.wire.buffer import Buffer
from bookkeeper_metadata.foundation.measures import Durations

PREPARED = "next.prepared"
_PREPARE_AT = 0.75
"""Part of the current file that is written before the next one is filled with zeros: by then one is mostly given back."""
_ROOM_MIN, _ROOM_KEPT_MAX = 64 * 1024, 16 * 1024 * 1024


@dataclass(slots=True)
class _OpenFile:
    """A journal file that has its header and its name."""

    file_id: int
    lap: int
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


@dataclass(slots=True)
class _NextFile:
    """A file that has neither yet."""

    file: File
    zeroed: int
    lap: int = 1


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
        self._prepared: _NextFile | None = None
        self._laps: dict[int, int] = {}
        """Of files that are full, and may be written again once they are given back, by their ids."""
        self._room = memoryview(b"")
        """Where groups are put together: whole pages of memory, as a direct write wants it."""
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
                self._prepared.file.close()

    def retire(self, retired: Sequence[int]) -> None:
        """Take files back of which every record rests elsewhere, oldest first: one is kept for a next lap.

        Called by the thread that checkpoints.

        Raises:
            OSError: some may be there still, which does no harm.
        """
        with self._preparing:
            kept: _NextFile | None = None
            for file_id in retired:
                path, lap = f"{self.directory}/{file_name(file_id)}", self._laps.pop(file_id, 0)
                is_wanted = kept is None and self._prepared is None and self._failure is None
                if lap and is_wanted and self._rename_for_next(path):
                    file = self._files.open(f"{self.directory}/{PREPARED}", writable=True)
                    kept = _NextFile(file, self._place.file_size_bytes, lap + 1)
                else:
                    self._files.delete(path)
            self._files.sync_dir(self.directory)
            # Not before: a crash may give it its old name back, and then it must be what it was.
            self._prepared = self._prepared or kept

    def _write(self, body: Sequence[Buffer]) -> JournalPosition:
        size = self._size_of(body)
        # Room is kept for the roll record. A group that is larger than a
        # file has to be written all the same, in a file of its own.
        limit = self._place.file_size_bytes - BLOCK_SIZE
        if self._offset > BLOCK_SIZE and self._offset + size > limit:
            self._roll()
        self._write_durably(body, size)
        # Not before the sync: marks and the next group's header name this end as durable.
        self._offset += size
        self._last = GroupEnd(self._current.file_id, self._offset, self._last.sequence + 1)
        return JournalPosition(self.index, self._last)

    def _size_of(self, body: Sequence[Buffer]) -> int:
        return self._format.size_of(sum(map(len, body)))

    def _write_durably(self, body: Sequence[Buffer], size: int) -> None:
        """Write a group where the current file's groups end, and sync it."""
        started_s = time.perf_counter()
        current, end = self._current, self._offset + size
        if len(self._room) < size:
            self._room = memoryview(mmap.mmap(-1, max(size, 2 * len(self._room), _ROOM_MIN)))
        group = self._room[:size]
        put_stamped_group(group, self._format, current.file_id, self._last, body)
        # Beyond the zeroed part the other thread may be writing: its zeros must not hit the group.
        # Within a file that part only grows, so it is safe to look at its end without the lock.
        if end > current.zeroed:
            with self._zeroing:
                current.file.write_at(self._offset, [group])
                current.zeroed = max(current.zeroed, end)
        else:
            current.file.write_at(self._offset, [group])
        current.file.sync()
        if len(self._room) > _ROOM_KEPT_MAX:
            self._room = memoryview(b"")
        self.syncs.add(time.perf_counter() - started_s)
        self.written_bytes += size

    def _roll(self) -> None:
        """Go on in a new file, whose loss the current one tells from now on."""
        # The other thread works on the current and the next
        # file; it must not see one closed under it.
        with self._preparing:
            begun = self._begin_file()
            # The chain leads past this group: the new file's header names the end before it.
            record = [encode_record(Roll(begun.file_id))]
            self._write_durably(record, self._size_of(record))
            # One that a large group has made longer than the others goes, like those of earlier processes.
            is_usual = self._current.file.size() == self._place.file_size_bytes
            if is_usual and self._current.lap < LAPS_MAX:
                self._laps[self._current.file_id] = self._current.lap
            self._current.close()
            self._enter(begun)

    def _begin_file(self) -> _OpenFile:
        """Begin a new file; its name and header are durable before any group is written to it."""
        temporary = f"{self.directory}/{PREPARED}"
        following = self._prepared
        if following is None:
            file = self._create_next()
            zeroed = self._fill_chunk(file, 0) if self._has_spare() else 0
            following = _NextFile(file, zeroed)
        # Header, sync, name, in this order: the replay takes a named file without
        # a sound header for damage, since no crash leaves one.
        file_id = max(self._clock_ms(), self._highest_id + 1)
        header = JournalFileHeader(
            version=FORMAT_VERSION,
            journal_index=self.index,
            file_id=file_id,
            size_bytes=self._place.file_size_bytes,
            instance_id=self._place.instance_id,
            previous=self._last,
            lap=following.lap,
        )
        following.file.write_at(0, [encode_file_header(header)])
        following.file.sync()
        path = f"{self.directory}/{file_name(file_id)}"
        self._files.rename(temporary, path)
        self._files.sync_dir(self.directory)
        self._prepared = None
        self._highest_id = file_id
        filler = self._files.open(path, writable=True)
        # Where there was no room nothing is zeroed, and zeros must never go over the header.
        zeroed = max(following.zeroed, BLOCK_SIZE)
        return _OpenFile(file_id, following.lap, following.file, filler, zeroed)

    def _enter(self, begun: _OpenFile) -> None:
        """Write to a new file from now on."""
        self._current = begun
        self._format = stamped_format(self._place.instance_id, begun.lap)
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
        """Add a chunk of zeros to the next file if it is time and none was given back."""
        with self._preparing:
            limit = self._place.file_size_bytes
            # A journal that is hardly written keeps no second file.
            if self._offset < _PREPARE_AT * limit or not self._has_spare():
                return False
            if self._prepared is None:
                try:
                    self._prepared = _NextFile(self._create_next(), 0)
                except OSError as cause:
                    if is_no_room(cause):
                        return False
                    raise
            following = self._prepared
            before = following.zeroed
            if before >= limit:
                return False
            # One chunk a call: a sync of the whole file would
            # compete with the groups' syncs for long.
            following.zeroed = self._fill_chunk(following.file, before)
            following.file.sync()
            return following.zeroed > before

    def _rename_for_next(self, path: str) -> bool:
        """Whether there was room for another name."""
        try:
            self._files.rename(path, f"{self.directory}/{PREPARED}")
        except OSError as cause:
            if is_no_room(cause):
                return False
            raise
        return True

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
