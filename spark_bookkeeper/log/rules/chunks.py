"""How a log's list of ranges is cut into chunks: immutable nodes of bounded size, and indexes of them.

Pure. Ranges stand inline in the head until they exceed ``INLINE_BYTES_MAX``, then all of them spill
into chunks of at most ``CHUNK_BYTES_MAX``. When the head lists ``REFS_MAX`` chunks of one level, the
oldest ``FOLD`` of them move into one index chunk of the next level: a head never lists more than
``REFS_MAX`` per level, and each level multiplies what it reaches by ``FOLD``. With 300 bytes per
range, each committed by itself, three levels hold 10^7 ranges under a head of 32 KiB.

Names of chunks carry the epoch that wrote them and a serial that its commit never repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bookkeeper_metadata.foundation.invariant import invariant
from spark_bookkeeper.log.format.model import Chunk, ChunkRef, LedgerRange
from spark_bookkeeper.log.format.serde import encode_chunk, range_to_pb

INLINE_BYTES_MAX = 8 * 1024
"""Encoded ranges kept in the head. Every commit parses and encodes all of them: with 64 KiB, 300
ranges, that was 20 ms of a small commit's 23. Smaller makes more chunks for planning to read."""
CHUNK_BYTES_MAX = 256 * 1024
"""Encoded size of a chunk; well below ZooKeeper's 1 MiB limit."""
RANGE_BYTES_MAX = 4 * 1024
"""Encoded size of a range; column bounds that do not fit are left out, last ones first."""
REFS_MAX = 128
"""Chunk references of one level a head lists before it folds."""
FOLD = 64
"""References an index chunk holds."""
_CHUNK_HEADER_BYTES = 16
_PART_HEADER_BYTES = 4


class ChunkNames:
    """Serials of one epoch's chunks; a serial taken is never given again, used or not."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._next = 0

    def take(self) -> int:
        """A serial that no other chunk of this epoch has."""
        self._next += 1
        return self._next - 1


def fits_inline(sizes: Iterable[int]) -> bool:
    """Whether ranges of these encoded sizes (bytes) stay in the head."""
    return sum(sizes) <= INLINE_BYTES_MAX


def fitted(item: LedgerRange) -> tuple[LedgerRange, int]:
    """The range with as many column bounds as it may have, and its encoded size in bytes."""
    size = range_size(item)
    # Bounds only help to skip ledgers. Without them a filter reads more, never less.
    while item.columns and size > RANGE_BYTES_MAX:
        item = replace(item, columns=item.columns[:-1])
        size = range_size(item)
    return item, size


def spill(
    ranges: Sequence[LedgerRange], sizes: Sequence[int], names: ChunkNames
) -> tuple[tuple[ChunkRef, bytes], ...]:
    """Cut ``ranges`` into as few chunks of ``CHUNK_BYTES_MAX`` as their order allows."""
    groups: list[list[LedgerRange]] = [[]]
    group_bytes = _CHUNK_HEADER_BYTES
    for item, size in zip(ranges, sizes, strict=True):
        if groups[-1] and group_bytes + size > CHUNK_BYTES_MAX:
            groups.append([])
            group_bytes = _CHUNK_HEADER_BYTES
        groups[-1].append(item)
        group_bytes += size
    return tuple(leaf_of(tuple(group), names) for group in groups)


def leaf_of(ranges: tuple[LedgerRange, ...], names: ChunkNames) -> tuple[ChunkRef, bytes]:
    """A chunk of these ranges: its reference, and its encoded value."""
    return _encode(Chunk(0, ranges=ranges), len(ranges), ranges[-1].commit_ms, names)


def fold(
    refs: tuple[ChunkRef, ...], names: ChunkNames
) -> tuple[tuple[ChunkRef, ...], tuple[tuple[ChunkRef, bytes], ...]]:
    """Move the oldest references of a crowded level into index chunks, level by level."""
    made: list[tuple[ChunkRef, bytes]] = []
    level = 0
    while any(ref.level >= level for ref in refs):
        above = tuple(ref for ref in refs if ref.level > level)
        crowd = tuple(ref for ref in refs if ref.level == level)
        below = tuple(ref for ref in refs if ref.level < level)
        # Half of the level stays behind: folding one reference at a time would write an index chunk
        # with every commit from then on.
        while len(crowd) > REFS_MAX:
            made_index = index_of(crowd[:FOLD], names)
            made.append(made_index)
            above, crowd = (*above, made_index[0]), crowd[FOLD:]
        refs = (*above, *crowd, *below)
        level += 1
    return refs, tuple(made)


def index_of(refs: tuple[ChunkRef, ...], names: ChunkNames) -> tuple[ChunkRef, bytes]:
    """A chunk of references of one level: its own reference, one level up, and its encoded value."""
    chunk = Chunk(refs[0].level + 1, chunks=refs)
    return _encode(chunk, sum(below.ranges for below in refs), refs[-1].last_commit_ms, names)


def _encode(
    chunk: Chunk, range_count: int, last_commit_ms: int, names: ChunkNames
) -> tuple[ChunkRef, bytes]:
    parts: tuple[ChunkRef | LedgerRange, ...] = (*chunk.chunks, *chunk.ranges)
    value = encode_chunk(chunk)
    invariant(len(value) <= CHUNK_BYTES_MAX, "chunks are cut to their limit")
    ref = ChunkRef(
        names.epoch,
        names.take(),
        chunk.level,
        parts[0].first_row,
        sum(part.rows for part in parts),
        range_count,
        sum(part.size_bytes for part in parts),
        last_commit_ms,
    )
    return ref, value


def range_size(item: LedgerRange) -> int:
    """Bytes of the range in a head or a chunk."""
    return range_to_pb(item).ByteSize() + _PART_HEADER_BYTES
