"""The files of a journal before groups are written to them: made, filled with zeros, named, and taken back.

The next file is prepared under another name and gets its header and its name only when it is needed. One
that a checkpoint has made needless is kept as the next one, for another lap. A process writes again only
what it has filled itself: of the files that it found it knows nothing but what they say.

Only what prepares may find no room: its zeros hold nothing, so they are left for later, and groups are
written without them. They take nothing of the room that is kept for entries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random, SystemRandom

from bookie_server.storage.disk.errors import is_no_room
from bookie_server.storage.disk.files import ZEROS, File, FileSystem
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.disk.stamps import LAPS_MAX
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    FORMAT_VERSION,
    KEY_SIZE,
    JournalFileHeader,
    encode_file_header,
    file_ids,
    file_name,
)

PREPARED = "next.prepared"
_PREPARE_AT = 0.75
"""Part of the current file that is written before the next one is filled with zeros: by then one is mostly given back."""


@dataclass(slots=True)
class OpenFile:
    """A journal file that has its header and its name."""

    file_id: int
    lap: int
    key: bytes
    file: File
    """The writer's."""
    filler: File
    """The preparer's, an open file description of its own: the kernel reports a failed write-back once
    to each, and the preparer's sync must not take the report that belongs to a group."""
    zeroed: int
    """Up to here zeros, or groups, are written."""
    zeroing: threading.Lock = field(default_factory=threading.Lock)
    """Held by either of them while it writes beyond that."""

    def close(self) -> None:
        """Give both descriptors back."""
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
    random: Random = field(default_factory=SystemRandom)
    """What the keys of files are drawn from."""


def delete_prepared(files: FileSystem, directory: str) -> bool:
    """Delete what an earlier process had ready for later; whether there was anything."""
    # It may have died at any point of preparing it, so nothing in it is relied on.
    is_there = PREPARED in files.names(directory)
    if is_there:
        files.delete(f"{directory}/{PREPARED}")
    return is_there


class JournalFiles:
    """Makes the files of one journal; ``highest_id`` is that of the newest there is, or was."""

    def __init__(
        self, files: FileSystem, place: JournalPlace, clock_ms: Callable[[], int], highest_id: int
    ) -> None:
        self.changing = threading.Lock()
        """Held while the current file is left for the next one, and by whoever works on either beside the writer."""
        self._directory = place.directory
        self._files = files
        self._place = place
        self._clock_ms = clock_ms
        self._prepared: _NextFile | None = None
        self._laps: dict[int, int] = {}
        """Of files that are full, and may be written again once they are given back, by their ids."""
        self._is_closed = False
        # Above files that the replay could not link, too: a name
        # taken twice would replace the older file.
        self._highest_id = max([highest_id, *file_ids(files, place.directory)])
        delete_prepared(files, place.directory)

    def begin(self, previous: GroupEnd) -> OpenFile:
        """Begin a new file behind ``previous``; its name and header are durable before any group is written to it."""
        temporary = f"{self._directory}/{PREPARED}"
        # Its own until all is done, so that ``close`` finds it behind a failure.
        self._prepared = following = self._prepared or _NextFile(self._create_next(), 0)
        if following.zeroed == 0 and self._has_spare():
            following.zeroed = self._fill_chunk(following.file, 0)
        # Header, sync, name, in this order: the replay takes a named file without
        # a sound header for damage, since no crash leaves one.
        file_id = max(self._clock_ms(), self._highest_id + 1)
        header = JournalFileHeader(
            version=FORMAT_VERSION,
            journal_index=self._place.index,
            file_id=file_id,
            size_bytes=self._place.file_size_bytes,
            instance_id=self._place.instance_id,
            previous=previous,
            lap=following.lap,
            key=self._place.random.randbytes(KEY_SIZE),
        )
        following.file.write_at(0, [encode_file_header(header)])
        following.file.sync()
        path = f"{self._directory}/{file_name(file_id)}"
        self._files.rename(temporary, path)
        self._files.sync_dir(self._directory)
        self._highest_id = file_id
        filler = self._files.open(path, writable=True)
        self._prepared = None
        # Where there was no room nothing is zeroed, and zeros must never go over the header.
        zeroed = max(following.zeroed, BLOCK_SIZE)
        return OpenFile(file_id, following.lap, header.key, following.file, filler, zeroed)

    def leave(self, full: OpenFile) -> None:
        """Close a file that is full. Its writer holds ``changing``."""
        # One that a large group has made longer than the others goes, like those of earlier processes.
        if full.file.size() == self._place.file_size_bytes and full.lap < LAPS_MAX:
            self._laps[full.file_id] = full.lap
        full.close()

    def close(self) -> None:
        """Keep no file for later any more. Its caller holds ``changing``."""
        self._is_closed = True
        if self._prepared is not None:
            self._prepared.file.close()

    def retire(self, retired: Sequence[int]) -> None:
        """Take files back of which every record rests elsewhere, oldest first: one is kept for a next lap.

        Called by the thread that checkpoints.

        Raises:
            OSError: some may be there still, which does no harm.
        """
        with self.changing:
            kept: _NextFile | None = None
            for file_id in retired:
                path, lap = f"{self._directory}/{file_name(file_id)}", self._laps.pop(file_id, 0)
                is_wanted = kept is None and self._prepared is None and not self._is_closed
                is_wanted = is_wanted and self._free_bytes() >= self._place.spare_bytes
                if lap and is_wanted and self._rename_for_next(path):
                    file = self._files.open(f"{self._directory}/{PREPARED}", writable=True)
                    kept = _NextFile(file, self._place.file_size_bytes, lap + 1)
                else:
                    self._files.delete(path)
            try:
                self._files.sync_dir(self._directory)
            except OSError:
                if kept is not None:
                    kept.file.close()
                raise
            # Not before: a crash may give it its old name back, and then it must be what it was.
            self._prepared = self._prepared or kept

    def give_back(self) -> None:
        """Delete the file that is ready for later. Its caller holds ``changing``.

        Raises:
            OSError: it may be there still, which does no harm.
        """
        following, self._prepared = self._prepared, None
        if following is not None:
            following.file.close()
            self._files.delete(f"{self._directory}/{PREPARED}")
            self._files.sync_dir(self._directory)

    def prepare(self, current: OpenFile, offset: int) -> bool:
        """Fill ahead of ``offset``, or get the next file ready; ``True`` when there may be more to do. Its caller holds ``changing``."""
        return self._zero_ahead(current, offset) or self._prepare_next(offset)

    def wants_preparing(self, current: OpenFile, offset: int) -> bool:
        """Whether ``prepare`` has something to do, as far as can be seen without ``changing``."""
        return not self._is_zeroed(current, offset) or self._is_next_due(offset)

    def _is_zeroed(self, current: OpenFile, offset: int) -> bool:
        """Whether two chunks of zeros lie ahead of the writer, or the file ends before."""
        ahead = offset + 2 * self._place.zero_chunk_bytes
        return current.zeroed >= min(ahead, self._place.file_size_bytes)

    def _is_next_due(self, offset: int) -> bool:
        """Whether it is time for the next file, and it is not ready."""
        # A journal that is hardly written keeps no second file.
        if offset < _PREPARE_AT * self._place.file_size_bytes:
            return False
        following = self._prepared
        return following is None or following.zeroed < self._place.file_size_bytes

    def _zero_ahead(self, current: OpenFile, offset: int) -> bool:
        """Write the next chunk of zeros unless two of them lie ahead of the writer already."""
        if self._is_zeroed(current, offset) or not self._has_spare():
            return False
        with current.zeroing:
            before = current.zeroed
            current.zeroed = self._fill_chunk(current.filler, before)
        if current.zeroed == before:
            return False
        # Not under the writer's lock: a group that had to wait
        # for the zeros need not wait for this, too.
        current.filler.sync()
        return True

    def _prepare_next(self, offset: int) -> bool:
        """Add a chunk of zeros to the next file if it is time and none was given back."""
        if not self._is_next_due(offset) or not self._has_spare():
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
        # One chunk a call: a sync of the whole file would
        # compete with the groups' syncs for long.
        following.zeroed = self._fill_chunk(following.file, before)
        following.file.sync()
        return following.zeroed > before

    def _rename_for_next(self, path: str) -> bool:
        """Whether there was room for another name."""
        try:
            self._files.rename(path, f"{self._directory}/{PREPARED}")
        except OSError as cause:
            if is_no_room(cause):
                return False
            raise
        return True

    def _create_next(self) -> File:
        """Create a file of its final length, most of it still a hole."""
        path = f"{self._directory}/{PREPARED}"
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
        return self._free_bytes() - self._place.zero_chunk_bytes >= self._place.spare_bytes

    def _free_bytes(self) -> int:
        return self._files.free_space(self._directory).free_bytes
