"""OverlayFileSystem: changes in memory, above files that stay as they are.

A bookie that starts on a full disk recovers its storage above one: replay and checkpoint go the ways
they always go, and the disk gets not a byte. What lies below is synced where a recovery asks for it:
the process before may have been killed before it did so, and a fence that a bookie answers for must
last. What the changes may take is bounded, for a replay is as large as what the last process had not
written yet.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from bookie_server.storage.disk.files import File, FileSystem, FreeSpace
from bookie_server.storage.disk.group import is_zero
from bookie_server.wire.buffer import Buffer

BLOCK_SIZE = 64 * 1024


class _Content:
    """One file: blocks that were written, above what lies below."""

    def __init__(self, below: File | None) -> None:
        self.below = below
        self.size_bytes = below.size() if below is not None else 0
        self.blocks: dict[int, bytearray] = {}

    def read_block(self, number: int) -> bytes:
        """The block's bytes, zeros where there are none."""
        if number in self.blocks:
            return bytes(self.blocks[number])
        found = b""
        if self.below is not None:
            found = self.below.read_at(number * BLOCK_SIZE, BLOCK_SIZE)
        return found.ljust(BLOCK_SIZE, b"\0")


class OverlayFile(File):
    """A handle of a file of the overlay."""

    def __init__(self, files: OverlayFileSystem, path: str, content: _Content) -> None:
        self._files = files
        self._path = path
        self._content = content

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        written = memoryview(b"".join(buffers))
        content, end = self._content, offset + len(written)
        while len(written):
            number, at = divmod(offset, BLOCK_SIZE)
            part, written = written[: BLOCK_SIZE - at], written[BLOCK_SIZE - at :]
            # Zeros where there is nothing need no memory: journals are filled with them ahead.
            if number in content.blocks or content.below is not None or not is_zero(part):
                if number not in content.blocks:
                    self._files.take(BLOCK_SIZE, self._path)
                    content.blocks[number] = bytearray(content.read_block(number))
                content.blocks[number][at : at + len(part)] = part
            offset += len(part)
        content.size_bytes = max(content.size_bytes, end)

    def read_at(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self._content.size_bytes)
        parts: list[bytes] = []
        while offset < end:
            number, at = divmod(offset, BLOCK_SIZE)
            parts.append(self._content.read_block(number)[at : at + end - offset])
            offset += len(parts[-1])
        return b"".join(parts)

    def sync(self) -> None:
        """Sync what lies below; no change outlives the process."""
        if self._content.below is not None:
            self._content.below.sync()

    def size(self) -> int:
        return self._content.size_bytes

    def close(self) -> None:
        """Nothing to do: the overlay keeps what was written."""


class OverlayFileSystem(FileSystem):
    """See the module; ``close`` it behind all its files. Locks are real ones."""

    def __init__(self, below: FileSystem, size_bytes_max: int) -> None:
        self._below = below
        self._left_bytes = size_bytes_max
        self._contents: dict[str, _Content | None] = {}
        """Of every path that was changed; ``None``: it was deleted."""
        self._opened: list[File] = []
        """The files below, also of paths that were deleted or renamed since."""

    def take(self, size_bytes: int, path: str) -> None:
        """Count memory of a change.

        Raises:
            OSError: it is more than was allowed.
        """
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            text = "the disk is full, and there is more to replay than fits in memory"
            raise OSError(errno.ENOMEM, text, path)

    def create(self, path: str) -> File:
        directory, _, name = path.rpartition("/")
        if name in self.names(directory):
            raise FileExistsError(errno.EEXIST, "exists", path)
        content = self._contents[path] = _Content(None)
        return OverlayFile(self, path, content)

    def open(self, path: str, *, writable: bool = False) -> File:
        if path in self._contents or writable:
            return OverlayFile(self, path, self._content(path))
        return self._below.open(path)

    def make_directory(self, path: str) -> None:
        """A directory that is missing stays so: its lock cannot be had, and nothing starts in it."""

    def names(self, directory: str) -> list[str]:
        found = set(self._below.names(directory))
        for path, content in self._contents.items():
            parent, _, name = path.rpartition("/")
            if parent == directory:
                (found.discard if content is None else found.add)(name)
        return sorted(found)

    def sync_dir(self, directory: str) -> None:
        self._below.sync_dir(directory)

    def rename(self, old: str, new: str) -> None:
        self._contents[new], self._contents[old] = self._content(old), None

    def delete(self, path: str) -> None:
        # Nothing of it is read again, so none of thousands of logs stays open.
        if path in self._contents:
            self._content(path)
        else:
            self._below.open(path).close()
        self._contents[path] = None

    def free_space(self, directory: str) -> FreeSpace:
        return self._below.free_space(directory)

    def lock(self, path: str) -> File:
        return self._below.lock(path)

    def close(self) -> None:
        """Close the files below."""
        for file in self._opened:
            file.close()

    def _content(self, path: str) -> _Content:
        if path not in self._contents:
            self._opened.append(self._below.open(path))
            self._contents[path] = _Content(self._opened[-1])
        if (content := self._contents[path]) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return content
