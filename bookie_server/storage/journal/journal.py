"""The journal: where an add becomes durable before it is acknowledged.

A journal directory holds files ``{id:016x}.txn``: one header block and then groups, one per
``fdatasync``. Files are written from front to back, and in blocks that exist, because a sync into those
costs a third of one that extends the file. So a file is filled with zeros ahead of its first use, and when
a checkpoint has made it needless it is kept for another *lap*, under another name: it gets a header and an
id again, as if it were new. What a group did not reach is told by stamps, and by zeros in the first lap
(see :mod:`bookie_server.storage.disk.stamps`). Files have their full length from the start
and say so, hence a truncated one is noticed.

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
raises. ``replay`` in the next process finds out what was written.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence

from bookie_server.core.records import JournalRecord
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.group import GroupEnd, put_stamped_group
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    JournalPosition,
    stamped_format,
)
from bookie_server.storage.journal.journal_files import JournalFiles, JournalPlace, OpenFile
from bookie_server.storage.journal.record import Roll, encode_record
from bookie_server.wire.buffer import Buffer
from bookkeeper_metadata.foundation.measures import Durations

_ROOM_MIN, _ROOM_KEPT_MAX = 64 * 1024, 16 * 1024 * 1024


class Journal:
    """Writes groups behind ``last``. Making one begins a new file, which ``close`` closes."""

    def __init__(
        self, files: FileSystem, place: JournalPlace, clock_ms: Callable[[], int], last: GroupEnd
    ) -> None:
        self.index = place.index
        self.directory = place.directory
        self._place = place
        self._last = last
        self._offset = 0
        """Where the next group goes in the current file."""
        self.syncs = Durations()
        """How long groups took to be written and synced."""
        self.written_bytes = 0
        self._failure: StorageFailedError | None = None
        self._room = memoryview(b"")
        """Where groups are put together: whole pages of memory, as a direct write wants it."""
        self.files = JournalFiles(files, place, clock_ms, last.file_id)
        try:
            self._current = self.files.begin(last)
        except OSError:
            self.files.close()
            raise
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
            with self.files.changing:
                return self.files.prepare(self._current, self._offset)
        except OSError as cause:
            raise self._poison(cause) from cause

    def give_back(self) -> None:
        """Delete the file that is ready for later: the disk is short of room. On any thread but the loop's.

        Raises:
            StorageFailedError: the journal is poisoned.
        """
        self._raise_if_failed()
        try:
            with self.files.changing:
                self.files.give_back()
        except OSError as cause:
            raise self._poison(cause) from cause

    @property
    def wants_preparing(self) -> bool:
        """Whether ``prepare`` has something to do, unless it did it just now; to be asked after each group."""
        return self.files.wants_preparing(self._current, self._offset)

    def close(self) -> None:
        """Close the files; everything acknowledged is durable already. Idempotent."""
        # Before the files go: a thread that calls late is refused. The
        # lock waits for the other thread's zeros.
        self._failure = self._failure or StorageFailedError(self.directory, "journal is closed")
        with self.files.changing:
            self._current.close()
            self.files.close()

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
            with current.zeroing:
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
        with self.files.changing:
            begun = self.files.begin(self._last)
            # The chain leads past this group: the new file's header names the end before it.
            record = [encode_record(Roll(begun.file_id))]
            try:
                self._write_durably(record, self._size_of(record))
            except OSError:
                begun.close()
                raise
            self.files.leave(self._current)
            self._enter(begun)

    def _enter(self, begun: OpenFile) -> None:
        """Write to a new file from now on."""
        self._current = begun
        self._format = stamped_format(begun.key, begun.lap)
        # The header carries the chain over; the file's groups follow the header.
        self._last = GroupEnd(begun.file_id, BLOCK_SIZE, self._last.sequence)
        self._offset = BLOCK_SIZE

    def _poison(self, cause: OSError) -> StorageFailedError:
        if self._failure is None:
            self._failure = StorageFailedError(self.directory, f"journal: {cause}")
        return self._failure

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            # A new one each time: two threads raise it, and a shared
            # one would collect both their tracebacks.
            raise StorageFailedError(self._failure.path, self._failure.detail)
