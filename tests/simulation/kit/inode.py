"""One file of the simulated disk: what is visible, what is durable, and what a power loss leaves of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

SECTOR_SIZE = 512
BLOCK_SIZE = 4096
"""What a disk with a capacity gives a file at a time."""


@dataclass(slots=True)
class Inode:
    cached: bytes | bytearray = b""
    """What is visible; copied before it is written to, so that images of one disk share it."""
    durable: bytes | bytearray = b""
    dirty: set[int] = field(default_factory=set)
    errors: list[int] = field(default_factory=list)
    """Errno of every failed write-back so far."""
    blocks: set[int] = field(default_factory=set)
    """Those that were ever written to; the rest are holes."""
    is_torn: bool = False
    """A crash left a part of a sector in it."""
    _digest: bytes = b""

    def fitting(self, offset: int, size: int, room_bytes: int) -> int:
        """How much of a write from ``offset`` on finds room."""
        at = offset
        while at < offset + size:
            block = at // BLOCK_SIZE
            if block not in self.blocks:
                if room_bytes < BLOCK_SIZE:
                    return at - offset
                room_bytes -= BLOCK_SIZE
            at = (block + 1) * BLOCK_SIZE
        return size

    def own(self) -> bytearray:
        """The visible bytes, no other image's any more."""
        if isinstance(self.cached, bytes):
            self.cached = bytearray(self.cached)
        return self.cached

    def write(self, offset: int, content: bytes) -> None:
        if not content:
            return
        cached = self.own()
        if len(cached) < offset:
            cached.extend(bytes(offset - len(cached)))
        cached[offset : offset + len(content)] = content
        last = offset + len(content) - 1
        self.dirty.update(range(offset // SECTOR_SIZE, last // SECTOR_SIZE + 1))
        self.blocks.update(range(offset // BLOCK_SIZE, last // BLOCK_SIZE + 1))

    def sync(self) -> None:
        if self.errors:
            # What was lost stays lost: only pages that were written since are dirty.
            durable = bytearray(self.durable)
            durable.extend(bytes(max(len(self.cached) - len(durable), 0)))
            for begin in (sector * SECTOR_SIZE for sector in self.dirty):
                durable[begin : begin + SECTOR_SIZE] = self.cached[begin : begin + SECTOR_SIZE]
            self.durable, self._digest = durable, b""
        elif self.dirty or len(self.durable) != len(self.cached):
            self.durable, self._digest = bytes(self.cached), b""
        self.dirty.clear()

    @property
    def unsynced(self) -> int:
        """How many things of it a power loss would decide about."""
        changed = sum(
            self.cached[at : at + SECTOR_SIZE] != self.durable[at : at + SECTOR_SIZE]
            for at in (sector * SECTOR_SIZE for sector in self.dirty)
        )
        return changed + (len(self.cached) > len(self.durable))

    def lose(self, error: int) -> None:
        """A failed sync: the dirty pages count as clean, yet the disk never got them."""
        self.dirty.clear()
        self.errors.append(error)

    def survivor(self, rng: Random, keep: Callable[[Random], str]) -> Inode:
        if not self.dirty and len(self.cached) == len(self.durable):
            return self._at_rest(bytes(self.durable), self.digest())
        content, is_torn = bytearray(self.durable), False
        if len(self.cached) > len(content) and keep(rng) != "drop":
            content.extend(bytes(len(self.cached) - len(content)))
        for sector in sorted(self.dirty):
            fate = keep(rng)
            if fate == "drop":
                continue
            begin = sector * SECTOR_SIZE
            fresh = self.cached[begin : begin + SECTOR_SIZE]
            if fate == "tear":
                whole, fresh = fresh, fresh[: rng.randrange(1, SECTOR_SIZE)]
                rest = content[begin + len(fresh) : begin + SECTOR_SIZE]
                is_torn |= rest != whole[len(fresh) :][: len(rest)]
            end = min(begin + len(fresh), len(content))
            if begin < end:
                content[begin:end] = fresh[: end - begin]
        if content == self.durable:
            return self._at_rest(bytes(self.durable), self.digest())
        after = self._at_rest(bytes(content), b"")
        after.is_torn |= is_torn
        return after

    def _at_rest(self, content: bytes, digest: bytes) -> Inode:
        """A file with this content, all of it durable."""
        return Inode(
            content, content, blocks=set(self.blocks), is_torn=self.is_torn, _digest=digest
        )

    def copy(self) -> Inode:
        """What is visible, all of it durable."""
        return self._at_rest(bytes(self.cached), b"")

    def twin(self) -> Inode:
        """The same file of another machine, with what is not synced."""
        return Inode(
            bytes(self.cached),
            bytes(self.durable),
            set(self.dirty),
            list(self.errors),
            set(self.blocks),
            self.is_torn,
        )

    def digest(self) -> bytes:
        """Of what is durable."""
        # What a test damages by hand changes without notice.
        if not self._digest or isinstance(self.durable, bytearray):
            self._digest = blake2b(self.durable, digest_size=16).digest()
        return self._digest
