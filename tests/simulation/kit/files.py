"""A file system that forgets what was not synced, for trying every crash of the real storage code.

What is written is visible at once and durable only after ``sync``; a crash keeps, drops or tears
every un-synced 512-byte sector independently, keeps or drops the growth of a file, and keeps or
drops every directory operation not covered by ``sync_dir``. Every changing call has a number;
faults and crashes are set by number.

A sync that fails has lost the file's dirty pages, which count as clean from then on. As Linux does
(``errseq_t``), every open file hears of that once, at its next sync; threads that share one hear of
it once together.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from random import Random

from bookie_server.storage.disk.files import File, FileSystem, FreeSpace
from bookie_server.wire.buffer import Buffer
from tests.simulation.kit.inode import BLOCK_SIZE, Inode

FATES = ("keep", "keep", "drop", "drop", "tear")
"""What may become of anything un-synced; torn is the rarest."""


class SimulatedCrash(BaseException):
    """The machine stops here; no handler of the code under test may run on."""


class SimFile(File):
    """A handle; calls through one whose machine crashed are refused."""

    def __init__(self, files: SimFileSystem, path: str, inode: Inode) -> None:
        self._files = files
        self._path = path
        self._inode = inode
        self._errors_heard = len(inode.errors)

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._files.step("write", self._path)
        content = b"".join(buffers)
        fitting = len(content)
        if self._files.capacity_bytes is not None:
            room_bytes = self._files.free_space(self._path).free_bytes
            fitting = self._inode.fitting(offset, len(content), room_bytes)
        self._inode.write(offset, content[:fitting])
        if fitting < len(content):
            raise OSError(errno.ENOSPC, "full", self._path)

    def read_at(self, offset: int, size: int) -> bytes:
        self._files.read_step(self._path)
        return bytes(self._inode.cached[offset : offset + size])

    def sync(self) -> None:
        try:
            self._files.step("sync", self._path, self._inode)
            unheard = self._inode.errors[self._errors_heard :]
            if unheard:
                raise OSError(unheard[-1], "an earlier write-back failed", self._path)
        finally:
            self._errors_heard = len(self._inode.errors)
        self._inode.sync()

    def size(self) -> int:
        return len(self._inode.cached)

    def close(self) -> None:
        self._files.locked.discard(self._path)


class SimFileSystem(FileSystem):
    """See the module. ``crash`` makes the file system that the next process finds."""

    def __init__(self) -> None:
        self.names_now: dict[str, Inode] = {}
        self._names_durable: dict[str, Inode] = {}
        self._pending: list[tuple[str, dict[str, Inode | None]]] = []
        self.locked: set[str] = set()
        self.steps = 0
        """Changing calls so far."""
        self.log: list[tuple[str, str]] = []
        """Operation and path of every changing call."""
        self.crash_at: int | None = None
        """Number of the changing call before which the machine stops."""
        self.fail_at: dict[int, int] = {}
        """Errors (errno) of changing calls, by number."""
        self.meanwhile: dict[int, Callable[[], object]] = {}
        """What another thread does just before a changing call, by number."""
        self.before_step: Callable[[], object] | None = None
        """Called before every changing call, to look at what a crash would leave."""
        self.capacity_bytes: int | None = None
        """Size of the disk; ``None``: it never fills."""
        self.unreadable: set[str] = set()
        """Paths whose content cannot be read: EIO."""

    def step(self, operation: str, path: str, inode: Inode | None = None) -> None:
        """Count a changing call; crash or fail if its number says so."""
        if (other := self.meanwhile.pop(self.steps, None)) is not None:
            other()
        if self.before_step is not None:
            self.before_step()
        number = self.steps
        self.steps += 1
        self.log.append((operation, path))
        if self.crash_at is not None and number >= self.crash_at:
            raise SimulatedCrash(f"{operation} {path}")
        if number in self.fail_at:
            if inode is not None:
                inode.lose(self.fail_at[number])
            raise OSError(self.fail_at[number], f"injected into {operation}", path)

    def read_step(self, path: str) -> None:
        """Refuse to read what was made unreadable."""
        if path in self.unreadable:
            raise OSError(errno.EIO, "injected", path)

    def crash(
        self,
        rng: Random,
        keep: Callable[[Random], str] = lambda rng: rng.choice(FATES),
        keep_name: Callable[[Random], str] | None = None,
    ) -> SimFileSystem:
        """What a disk may hold after a power loss now; ``keep`` draws each un-synced thing's fate,
        ``keep_name`` that of what was done in directories."""
        after = SimFileSystem()
        names = dict(self._names_durable)
        for _, changes in self._pending:
            if (keep_name or keep)(rng) != "drop":
                _rename(names, changes)
        survivors: dict[int, Inode] = {}
        for path, inode in names.items():
            if id(inode) not in survivors:
                survivors[id(inode)] = inode.survivor(rng, keep)
            after.names_now[path] = after._names_durable[path] = survivors[id(inode)]
        return after

    def after_kill(self) -> SimFileSystem:
        """What the next process of the same machine finds: everything visible, nothing synced anew."""
        after = SimFileSystem()
        after.names_now = self.names_now
        after._names_durable = self._names_durable
        after._pending = self._pending
        return after

    def twin(self) -> SimFileSystem:
        """Another machine in the same state, with what is not synced; its process was killed."""
        after = SimFileSystem()
        twins: dict[int, Inode] = {}

        def twin(inode: Inode) -> Inode:
            if id(inode) not in twins:
                twins[id(inode)] = inode.twin()
            return twins[id(inode)]

        after.names_now = {path: twin(inode) for path, inode in self.names_now.items()}
        after._names_durable = {path: twin(inode) for path, inode in self._names_durable.items()}
        for directory, changes in self._pending:
            renewed = {path: inode and twin(inode) for path, inode in changes.items()}
            after._pending.append((directory, renewed))
        return after

    def crash_images(self, rng: Random, count: int) -> Iterator[SimFileSystem]:
        """The extreme crash states, and ``count`` drawn ones; fewer where there are not as many."""
        unsynced = sum(inode.unsynced for inode in self.names_now.values())
        yield self.crash(rng, _drop)
        if unsynced or self._pending:
            yield self.crash(rng, _keep)
        if unsynced and self._pending:
            yield self.crash(rng, _keep, _drop)
            yield self.crash(rng, _drop, _keep)
        # A sector may be kept, dropped, and torn in many ways, a name be kept or dropped.
        for _ in range(min(count, 3 * unsynced + (1 << min(len(self._pending), 4)) - 2)):
            yield self.crash(rng)

    @property
    def is_torn(self) -> bool:
        """Whether a power loss has left a part of a sector somewhere."""
        return any(inode.is_torn for inode in self.names_now.values())

    def digest(self) -> bytes:
        """Of all names and bytes that are durable."""
        found = blake2b(digest_size=16)
        for path in sorted(self._names_durable):
            found.update(path.encode())
            found.update(self._names_durable[path].digest())
        return found.digest()

    def copy(self) -> SimFileSystem:
        """Another machine with the same visible content, all of it durable."""
        after = SimFileSystem()
        for path, inode in self.names_now.items():
            after.names_now[path] = after._names_durable[path] = inode.copy()
        return after

    def content(self, path: str) -> bytearray:
        """The visible bytes of a file, to look at or to damage; damage is durable at once."""
        inode = self.names_now[path]
        cached = inode.durable = inode.own()
        return cached

    def empty(self, directory: str) -> None:
        """Another disk stands in the place of this one, with nothing on it."""
        prefix = f"{directory}/"
        for names in (self.names_now, self._names_durable):
            for path in [path for path in names if path.startswith(prefix)]:
                del names[path]
        self._pending = [item for item in self._pending if item[0] != directory]

    def put(self, directory: str, other: SimFileSystem, source: str) -> None:
        """What ``source`` holds on another machine stands here in the place of ``directory``."""
        self.empty(directory)
        for name in other.names(source):
            inode = other.names_now[f"{source}/{name}"].copy()
            self.names_now[f"{directory}/{name}"] = inode
            self._names_durable[f"{directory}/{name}"] = inode

    def create(self, path: str) -> File:
        if path in self.names_now:
            raise FileExistsError(errno.EEXIST, "exists", path)
        self.step("create", path)
        inode = Inode()
        self._change(path, {path: inode})
        return SimFile(self, path, inode)

    def open(self, path: str, *, writable: bool = False) -> File:
        return SimFile(self, path, self._inode(path))

    def make_directory(self, path: str) -> None:
        """Directories need no record: a path's parent exists."""

    def names(self, directory: str) -> list[str]:
        prefix = f"{directory}/"
        return sorted(path[len(prefix) :] for path in self.names_now if path.startswith(prefix))

    def sync_dir(self, directory: str) -> None:
        self.step("sync_dir", directory)
        for where, changes in self._pending:
            if where == directory:
                _rename(self._names_durable, changes)
        self._pending = [item for item in self._pending if item[0] != directory]

    def rename(self, old: str, new: str) -> None:
        inode = self._inode(old)
        self.step("rename", new)
        self._change(new, {old: None, new: inode})

    def delete(self, path: str) -> None:
        self._inode(path)
        self.step("delete", path)
        self._change(path, {path: None})

    def free_space(self, directory: str) -> FreeSpace:
        if self.capacity_bytes is None:
            return FreeSpace(0, 1 << 62)
        inodes = {id(inode): inode for inode in self.names_now.values()}.values()
        used_bytes = sum(BLOCK_SIZE * len(inode.blocks) for inode in inodes)
        return FreeSpace(0, max(0, self.capacity_bytes - used_bytes))

    def lock(self, path: str) -> File:
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.locked.add(path)
        return SimFile(self, path, Inode())

    def _inode(self, path: str) -> Inode:
        try:
            return self.names_now[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from None

    def _change(self, path: str, changes: dict[str, Inode | None]) -> None:
        self._pending.append((path.rpartition("/")[0], changes))
        _rename(self.names_now, changes)


def _drop(_: Random) -> str:
    return "drop"


def _keep(_: Random) -> str:
    return "keep"


def _rename(names: dict[str, Inode], changes: dict[str, Inode | None]) -> None:
    for path, inode in changes.items():
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode
