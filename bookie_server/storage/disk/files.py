"""FileSystem: the few file operations storage needs, so that tests can put a lossy disk below it.

What an implementation promises: bytes are durable after ``File.sync``; a created, renamed or deleted
name is durable after ``sync_dir`` of its directory; before that, any part of either may be lost.
Every failure is an ``OSError``. Nothing is memory-mapped: a page that cannot be read must be an
error to handle, not a signal.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookie_server.wire.buffer import Buffer
from bookkeeper_metadata.foundation.closing import Closing

ZEROS = memoryview(mmap.mmap(-1, 1024 * 1024)).toreadonly()
"""A MiB of zeros in whole pages, so that a direct write needs no copy of them."""


def split_buffers(buffers: Sequence[Buffer], size: int) -> tuple[list[Buffer], list[Buffer]]:
    """Split ``buffers`` behind their first ``size`` bytes, without copying."""
    first: list[Buffer] = []
    for index, buffer in enumerate(buffers):
        if size <= len(buffer):
            view = memoryview(buffer)
            head = [view[:size]] if size else []
            tail = [view[size:]] if size < len(buffer) else []
            return [*first, *head], [*tail, *buffers[index + 1 :]]
        first.append(buffer)
        size -= len(buffer)
    return first, []


class File(Closing):
    """An open file; offsets are explicit, so threads may share one. Its opener closes it."""

    @abstractmethod
    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers back to back from ``offset`` on; on error any part may be written."""

    @abstractmethod
    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""

    @abstractmethod
    def sync(self) -> None:
        """Make every byte written before this call durable (``fdatasync``). Never retry it.

        A failure is reported once, whoever of a file's sharers asks first (Linux ``errseq_t``).
        """

    @abstractmethod
    def size(self) -> int:
        """Bytes from start to end of the file."""

    @abstractmethod
    def close(self) -> None:
        """Give the descriptor back; syncs nothing. Idempotent."""


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """What is left of the disk that a directory is on."""

    device: int
    """The same for all directories of one file system."""
    free_bytes: int
    """For us: what the system keeps for its administrator is not among them."""


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
        """An existing file; an error of writing bytes back is reported to each such opening by itself.

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

    def delete_gently(self, path: str, pause: Callable[[], None]) -> None:
        """Remove the name, and give the room back in parts where that can be done, with ``pause`` called between them.

        To give back a large file at once may keep every sync of the disk waiting meanwhile.
        """
        self.delete(path)

    @abstractmethod
    def free_space(self, directory: str) -> FreeSpace:
        """What is left of the directory's disk at this moment."""

    @abstractmethod
    def lock(self, path: str) -> File:
        """Create or open ``path`` and hold it exclusively until the returned file is closed.

        Raises:
            BlockingIOError: another process holds it.
        """
