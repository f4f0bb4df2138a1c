"""FileSystem: the few file operations storage needs, so that tests can put a lossy disk below it.

What an implementation promises: bytes are durable after ``File.sync``; a created, renamed or deleted
name is durable after ``sync_dir`` of its directory; before that, any part of either may be lost.
Every failure is an ``OSError``. Nothing is memory-mapped: a page that cannot be read must be an
error to handle, not a signal.
"""

from __future__ import annotations

import fcntl
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice

from metadata.invariant import invariant

Buffer = bytes | memoryview
IOV_MAX = 1024
"""Buffers one ``pwritev`` takes (Linux UIO_MAXIOV)."""
ZEROS = bytes(1024 * 1024)


class File(ABC):
    """An open file; offsets are explicit, so threads may share one. Its opener closes it."""

    @abstractmethod
    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers back to back from ``offset`` on; on error any part may be written."""

    @abstractmethod
    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""

    @abstractmethod
    def sync(self) -> None:
        """Make every byte written before this call durable (``fdatasync``). Never retry it."""

    @abstractmethod
    def size(self) -> int:
        """Bytes from start to end of the file."""

    @abstractmethod
    def close(self) -> None:
        """Give the descriptor back; syncs nothing. Idempotent."""


class FileSystem(ABC):
    """Names and files of one machine; paths are absolute strings."""

    @abstractmethod
    def create(self, path: str) -> File:
        """A new, empty, writable file, readable by its owner only.

        Raises:
            FileExistsError: the name is taken, be it by a symbolic link.
        """

    @abstractmethod
    def open(self, path: str, *, writable: bool = False) -> File:
        """An existing file.

        Raises:
            FileNotFoundError: there is none.
        """

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Create the directory for its owner only, with its parents; one that exists is left alone."""

    @abstractmethod
    def names(self, directory: str) -> list[str]:
        """Names in the directory, sorted."""

    @abstractmethod
    def sync_dir(self, directory: str) -> None:
        """Make every create, rename and delete in the directory durable."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Replace ``new`` by ``old`` atomically; both in one directory."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove the name."""

    @abstractmethod
    def lock(self, path: str) -> File:
        """Create or open ``path`` and hold it exclusively until the returned file is closed.

        Raises:
            BlockingIOError: another process holds it.
        """


class RealFile(File):
    """A file descriptor of this process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        pending = iter(buffers)
        rest: list[Buffer] = []
        while True:
            rest.extend(islice(pending, IOV_MAX - len(rest)))
            if not rest:
                return
            written = os.pwritev(self._descriptor, rest, offset)
            offset += written
            rest = _behind(rest, written)

    def read_at(self, offset: int, size: int) -> bytes:
        found = os.pread(self._descriptor, size, offset)
        if len(found) == size or not found:
            return found
        parts = [found]
        while size := size - len(found):
            offset += len(found)
            found = os.pread(self._descriptor, size, offset)
            if not found:
                break
            parts.append(found)
        return b"".join(parts)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _behind(buffers: list[Buffer], written: int) -> list[Buffer]:
    """What is left of ``buffers`` after their first ``written`` bytes."""
    for index, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[index + 1 :]]
        written -= len(buffer)
    invariant(written == 0, "no system call writes more than it was given")
    return []


class RealFileSystem(FileSystem):
    """The operating system's files."""

    def create(self, path: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return RealFile(os.open(path, flags, 0o600))

    def open(self, path: str, *, writable: bool = False) -> File:
        access = os.O_RDWR if writable else os.O_RDONLY
        return RealFile(os.open(path, access | os.O_NOFOLLOW | os.O_CLOEXEC))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def names(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def sync_dir(self, directory: str) -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def delete(self, path: str) -> None:
        os.unlink(path)

    def lock(self, path: str) -> File:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return RealFile(descriptor)
