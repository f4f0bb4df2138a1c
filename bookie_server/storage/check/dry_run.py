"""DryRunFiles: the files as they are, on which a start can be tried and nothing is ever written.

Reads reach the disk. Whatever is written goes nowhere, but names that are made, renamed and deleted
are remembered, for a recovery looks at them again. It reads back no byte of what it writes; a test
that compares a real start with a dry one would notice if it began to.
"""

from __future__ import annotations

from collections.abc import Sequence

from bookie_server.storage.disk.files import File, FileSystem, FreeSpace
from bookie_server.wire.buffer import Buffer


class _UnwrittenFile(File):
    """A file of the disk that is never written, or one that is on no disk."""

    def __init__(self, file: File | None = None) -> None:
        self._file = file

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Goes nowhere."""

    def read_at(self, offset: int, size: int) -> bytes:
        return b"" if self._file is None else self._file.read_at(offset, size)

    def sync(self) -> None:
        """Nothing was written."""

    def size(self) -> int:
        return 0 if self._file is None else self._file.size()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class DryRunFiles(FileSystem):
    """See the module; the directories may be on a disk that is mounted read-only."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._made: set[str] = set()
        self._gone: set[str] = set()

    def create(self, path: str) -> File:
        directory, _, name = path.rpartition("/")
        if name in self.names(directory):
            raise FileExistsError(path)
        self._made.add(path)
        return _UnwrittenFile()

    def open(self, path: str, *, writable: bool = False) -> File:
        if path in self._made:
            return _UnwrittenFile()
        if path in self._gone:
            raise FileNotFoundError(path)
        return _UnwrittenFile(self._files.open(path))

    def make_directory(self, path: str) -> None:
        """Every directory counts as made."""

    def names(self, directory: str) -> list[str]:
        try:
            stored = set(self._files.names(directory))
        except FileNotFoundError:
            stored = set()
        gone, made = (
            {path.rpartition("/")[2] for path in paths if path.rpartition("/")[0] == directory}
            for paths in (self._gone, self._made)
        )
        return sorted(stored - gone | made)

    def sync_dir(self, directory: str) -> None:
        """Nothing was written."""

    def free_space(self, directory: str) -> FreeSpace:
        """None: then nothing is filled ahead of writes that are not made."""
        return FreeSpace(0, 0)

    def rename(self, old: str, new: str) -> None:
        self.delete(old)
        self._made.add(new)

    def delete(self, path: str) -> None:
        self._made.discard(path)
        self._gone.add(path)

    def lock(self, path: str) -> File:
        """Nothing to lock: nothing is written."""
        return _UnwrittenFile()
