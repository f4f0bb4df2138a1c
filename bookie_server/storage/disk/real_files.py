"""RealFileSystem: the operating system's files, written round the page cache where that works.

What a bookie writes it hardly ever reads back soon, so caching it costs twice: the kernel copies
every byte, and finding pages for it took 3 ms of CPU per MiB where the write itself took 0.7
(docs/performance.md). ``O_DIRECT`` wants memory, offset and size in whole blocks: aligned
stretches are copied to an aligned buffer and written from there, whatever is left goes through the
page cache. Readers use the page cache as usual; the kernel keeps both coherent.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice

import numpy as np

from bookie_server.storage.disk.descriptors import with_reserve
from bookie_server.storage.disk.files import File, FileSystem, FreeSpace, split_buffers
from bookie_server.storage.disk.locks import LOCK_NAME
from bookie_server.wire.buffer import Buffer

IOV_MAX = 1024
"""Buffers one ``pwritev`` takes (Linux UIO_MAXIOV)."""
ALIGNMENT = 4096
"""Memory, offset and size of a direct write are multiples of this; it suits every disk of today."""
_BOUNCE_SIZE = 1024 * 1024
GIVEN_BACK_SIZE = 4 * 1024 * 1024
"""How much of a large file is given back at once: under a millisecond where the disk is told of it (``discard``)."""
_NO_DIRECT_IO = (errno.EINVAL, errno.EOPNOTSUPP)


class RealFile(File):
    """A file behind one descriptor of this process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        pending = iter(buffers)
        rest: list[Buffer] = []
        while True:
            rest.extend(islice(pending, IOV_MAX - len(rest)))
            if not rest:
                return
            # The kernel may take less than it was given.
            written = os.pwritev(self._descriptor, rest, offset)
            offset += written
            rest = split_buffers(rest, written)[1]

    def read_at(self, offset: int, size: int) -> bytes:
        # The kernel may return less than asked in the middle of a file; nothing means its end.
        parts: list[bytes] = []
        while size and (found := os.pread(self._descriptor, size, offset)):
            parts.append(found)
            offset, size = offset + len(found), size - len(found)
        return b"".join(parts)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        if self._descriptor >= 0:
            # Forgotten first: a second close could hit a descriptor that was given out anew.
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class DirectFile(RealFile):
    """Two descriptors of one file: one for whole blocks, one for the rest and for reading."""

    def __init__(self, descriptor: int, direct: int) -> None:
        super().__init__(descriptor)
        self._direct = RealFile(direct)
        self._lock = threading.Lock()
        self._bounce: memoryview | None = None

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        if offset % ALIGNMENT:
            super().write_at(offset, buffers)
            return
        total = sum(map(len, buffers))
        whole = total - total % ALIGNMENT
        blocks, rest = split_buffers(buffers, whole)
        if all(_is_aligned(buffer) for buffer in blocks):
            self._direct.write_at(offset, blocks)
        else:
            # Threads may share a file, and it has one buffer.
            with self._lock:
                self._write_whole(offset, blocks)
        if rest:
            # ``sync`` covers both parts: it is the file that is
            # flushed, not one descriptor's writes.
            super().write_at(offset + whole, rest)

    def close(self) -> None:
        self._direct.close()
        super().close()

    def _write_whole(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write whole blocks, a bounce buffer at a time."""
        if self._bounce is None:
            # Mapped memory begins at a page, as a direct write
            # wants it; that of ``bytes`` does not.
            self._bounce = memoryview(mmap.mmap(-1, _BOUNCE_SIZE))
        bounce, filled = self._bounce, 0
        for buffer in buffers:
            source = memoryview(buffer)
            while len(source):
                count = min(len(source), _BOUNCE_SIZE - filled)
                bounce[filled : filled + count] = source[:count]
                filled, source = filled + count, source[count:]
                if filled == _BOUNCE_SIZE:
                    self._direct.write_at(offset, [bounce])
                    offset, filled = offset + filled, 0
        if filled:
            self._direct.write_at(offset, [bounce[:filled]])


class RealFileSystem(FileSystem):
    """The operating system's files."""

    def create(self, path: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return _open_direct(path, with_reserve(lambda: os.open(path, flags, 0o600)))

    def open(self, path: str, *, writable: bool = False) -> File:
        access = os.O_RDWR if writable else os.O_RDONLY
        flags = access | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = with_reserve(lambda: os.open(path, flags))
        return _open_direct(path, descriptor) if writable else RealFile(descriptor)

    def make_directory(self, path: str) -> None:
        missing = path
        while not os.path.isdir(missing):
            missing = os.path.dirname(os.path.abspath(missing))
        os.makedirs(path, mode=0o700, exist_ok=True)
        # A power loss must not take away the directory that a cookie in it vouches for.
        while os.path.abspath(path) != os.path.abspath(missing):
            path = os.path.dirname(os.path.abspath(path))
            self.sync_dir(path)

    def names(self, directory: str) -> list[str]:
        return sorted(with_reserve(lambda: os.listdir(directory)))

    def sync_dir(self, directory: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        descriptor = with_reserve(lambda: os.open(directory, flags))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def delete(self, path: str) -> None:
        os.unlink(path)

    def delete_gently(self, path: str, pause: Callable[[], None]) -> None:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags)
        except OSError:
            # To remove the name takes no descriptor, and no right to the file: in a shortage it waits for none.
            self.delete(path)
            return
        try:
            # First: what is shorter than it was could be taken for damaged, what has no name is gone.
            os.unlink(path)
            found = os.fstat(descriptor)
            # Somebody keeps it by another name: it gives back nothing, and is theirs.
            size = 0 if found.st_nlink else found.st_size
            # Whole pages: who reads it still finds it too short, and no zeros in it.
            for left in range((size - 1) // GIVEN_BACK_SIZE * GIVEN_BACK_SIZE, 0, -GIVEN_BACK_SIZE):
                # Closed, it gives back the rest at once.
                with suppress(OSError):
                    os.ftruncate(descriptor, left)
                pause()
        finally:
            os.close(descriptor)

    def free_space(self, directory: str) -> FreeSpace:
        found = os.statvfs(directory)
        return FreeSpace(os.stat(directory).st_dev, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> File:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            # The kernel gives this lock up however the process dies; a
            # file with a pid would stay behind.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as cause:
            os.close(descriptor)
            # The system's own message names neither the directory nor what to look for.
            text = "in use by another process" if isinstance(cause, BlockingIOError) else ""
            raise OSError(cause.errno, text or cause.strerror, path) from cause
        return RealFile(descriptor)


def keep_bookies_off(directories: Iterable[str]) -> ExitStack:
    """Let no bookie start on these directories until what is returned is closed; writes nothing.

    A directory that no bookie ever had is not kept.

    Raises:
        BlockingIOError: a bookie runs on one of them.
    """
    with ExitStack() as kept:
        for directory in directories:
            path = f"{directory}/{LOCK_NAME}"
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            kept.callback(os.close, descriptor)
            try:
                # Shared: checks do not disturb each other, and a bookie's own is exclusive.
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError as cause:
                raise BlockingIOError(cause.errno, "a bookie runs on it", directory) from cause
        return kept.pop_all()


def _open_direct(path: str, descriptor: int) -> RealFile:
    """A file that owns ``descriptor`` and bypasses the page cache where its file system allows it."""
    flags = os.O_WRONLY | os.O_DIRECT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        direct = with_reserve(lambda: os.open(path, flags))
    except OSError as cause:
        if cause.errno in _NO_DIRECT_IO:
            return RealFile(descriptor)
        os.close(descriptor)
        raise
    return DirectFile(descriptor, direct)


def _is_aligned(buffer: Buffer) -> bool:
    if len(buffer) % ALIGNMENT or not len(buffer):
        return False
    address: int = np.frombuffer(buffer, np.uint8).ctypes.data
    return address % ALIGNMENT == 0
