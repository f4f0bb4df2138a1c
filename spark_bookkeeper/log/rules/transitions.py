"""Which changes to a log's head are legal, and what must be written before each.

Pure: head in, head out, with the chunks that have to exist before the new head may. Appending
numbers rows on. Ranges stand inline until they exceed ``INLINE_BYTES_MAX``, then all of them spill
into immutable chunks of at most ``CHUNK_BYTES_MAX``. When the head lists ``REFS_MAX`` chunks of one
level, the oldest ``FOLD`` of them move into one index chunk of the next level: a head never lists
more than ``REFS_MAX`` per level, and each level multiplies what it reaches by ``FOLD``. With 300
bytes per range, each committed by itself, three levels hold 10^7 ranges under a head of 32 KiB.

Names of chunks carry the epoch that wrote them and a serial that its commit never repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import NO_ENTRY_ID
from spark_bookkeeper.log.format.epoch import LedgerWritten
from spark_bookkeeper.log.format.model import (
    Chunk,
    ChunkRef,
    Garbage,
    GarbageReason,
    LedgerRange,
    LogHead,
    LogState,
    OpenLedger,
    Retention,
)
from spark_bookkeeper.log.format.serde import REWRITTEN_VERSION, encode_chunk, range_to_pb

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


@dataclass(frozen=True, slots=True)
class Transition:
    """A new head, and what must be there before it: chunks first, garbage in the same multi."""

    head: LogHead
    chunks: tuple[tuple[ChunkRef, bytes], ...] = ()
    """Chunks to create beforehand, unreferenced: safe to leave behind."""
    garbage: Garbage | None = None

    def kept_for(self, retention_ms: int | None) -> Transition:
        """The same, with its garbage kept that long; ``None``: as long as the collector does."""
        if self.garbage is None:
            return self
        return replace(self, garbage=replace(self.garbage, retention_ms=retention_ms))


class ChunkNames:
    """Serials of one epoch's chunks; a serial taken is never given again, used or not."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._next = 0

    def take(self) -> int:
        """A serial that no other chunk of this epoch has."""
        self._next += 1
        return self._next - 1


def append(
    head: LogHead, written: Sequence[LedgerWritten], names: ChunkNames, now_ms: int
) -> Transition:
    """The head after ``written`` (in row order) was appended at ``now_ms``.

    Commit times are monotone: a clock behind the last commit counts as standing still.
    """
    invariant(head.state is LogState.LIVE, "a log under deletion gets no rows")
    commit_ms = max(now_ms, head.last_commit_ms)
    added, added_sizes = _numbered(head.next_row, written, commit_ms)
    next_row = added[-1].next_row if added else head.next_row
    inline = (*head.ranges, *added)
    sizes = [*map(_size, head.ranges), *added_sizes]
    # The common commit: one small change of the head, and no other node is written.
    if sum(sizes) <= INLINE_BYTES_MAX:
        grown = replace(head, ranges=inline, next_row=next_row, last_commit_ms=commit_ms)
        return Transition(grown)
    # All of them, not only what is too much: spilling a few at a time would make many small chunks,
    # and a plan reads one node for each.
    spilled = _spill(inline, sizes, names)
    refs, folded = _fold((*head.chunks, *(ref for ref, _ in spilled)), names)
    grown = replace(head, chunks=refs, ranges=(), next_row=next_row, last_commit_ms=commit_ms)
    return Transition(grown, (*spilled, *folded))


def replace_all(
    head: LogHead, written: Sequence[LedgerWritten], names: ChunkNames, now_ms: int
) -> Transition:
    """The head after everything in it was overwritten by ``written``.

    What was there goes to the garbage; the base moves to what was the next row, because numbers
    are never reused.
    """
    emptied = replace(
        head, base_row=head.next_row, overwritten_row=head.next_row, chunks=(), ranges=()
    )
    transition = append(emptied, written, names, now_ms)
    if not head.chunks and not head.ranges:
        return transition
    garbage = Garbage(GarbageReason.OVERWRITE, now_ms, head.chunks, head.ranges)
    return replace(transition, garbage=garbage)


def register_open_ledger(head: LogHead, ledger_id: int, now_ms: int) -> LogHead:
    """The head after a writer outside Spark began its ledger: the log's last, and only open one."""
    invariant(head.state is LogState.LIVE, "a log under deletion gets no writer")
    invariant(head.open_ledger is None, "only the last ledger of a log may be open")
    return replace(head, open_ledger=OpenLedger(ledger_id, head.next_row, now_ms))


def record_end(
    head: LogHead, last_entry: int, size_bytes: int, names: ChunkNames, now_ms: int
) -> Transition:
    """The head once its open ledger is closed at ``last_entry``: no ledger is open any more.

    Its entries join the log, one row each. A ledger without entries joins the garbage: only a
    ledger whose metadata says CLOSED counts as empty, never one for which no bookie answered.
    """
    opened = head.open_ledger
    invariant(opened is not None, "only an open ledger can end")
    assert opened is not None
    # No commit from Spark may come in between, so rows are numbered without a gap.
    invariant(opened.first_row == head.next_row, "an open ledger begins where the ranges end")
    shut = replace(head, open_ledger=None)
    if last_entry != NO_ENTRY_ID:
        rows = last_entry + 1
        written = LedgerWritten(opened.ledger_id, last_entry, rows, size_bytes, head.schema_id)
        return append(shut, (written,), names, now_ms)
    empty = LedgerRange(
        opened.ledger_id, 0, NO_ENTRY_ID, head.next_row, 0, 0, head.schema_id, head.last_commit_ms
    )
    return Transition(shut, garbage=Garbage(GarbageReason.EMPTY_TAIL, now_ms, ranges=(empty,)))


def chunk_to_cut(refs: Iterable[ChunkRef], before_row: int) -> ChunkRef | None:
    """The one chunk of ``refs`` that holds rows on both sides of ``before_row``, if any does."""
    return next((ref for ref in refs if ref.first_row < before_row < ref.next_row), None)


def truncate(
    head: LogHead, before_row: int, opened: Mapping[str, Chunk], names: ChunkNames, now_ms: int
) -> Transition | None:
    """The head without the ranges that end at or below ``before_row``; ``None``: there are none.

    Ranges go whole: one that holds ``before_row`` inside stays, and the base is its first row.
    ``opened`` holds, by name, the chunks :func:`chunk_to_cut` names, level by level. Whole chunks
    go to the garbage by reference; of the one that is cut, what stays is written anew.
    """
    dropped_refs = [ref for ref in head.chunks if ref.next_row <= before_row]
    kept_refs = list(head.chunks[len(dropped_refs) :])
    dropped_ranges: list[LedgerRange] = []
    made: tuple[tuple[ChunkRef, bytes], ...] = ()
    if chunk_to_cut(kept_refs, before_row) is not None:
        kept_refs[0], made, below = _cut(kept_refs[0], before_row, opened, names)
        dropped_refs += below.chunks
        dropped_ranges += below.ranges
    inline = [item for item in head.ranges if item.next_row <= before_row]
    kept_ranges = head.ranges[len(inline) :]
    dropped_ranges += inline
    if not dropped_refs and not dropped_ranges:
        return None
    first: tuple[ChunkRef | LedgerRange, ...] = (*kept_refs, *kept_ranges)
    # The first row that is left, not before_row: ranges go whole, and a reader is told where
    # reading can begin.
    base_row = first[0].first_row if first else head.next_row
    cut = replace(head, base_row=base_row, chunks=tuple(kept_refs), ranges=kept_ranges)
    garbage = Garbage(GarbageReason.TRUNCATE, now_ms, tuple(dropped_refs), tuple(dropped_ranges))
    return Transition(cut, made, garbage)


def with_retention(head: LogHead, retention: Retention) -> LogHead:
    """The head with another retention, in the format that knows of one from then on."""
    return replace(head, retention=retention, format_version=REWRITTEN_VERSION)


def deleting(head: LogHead) -> LogHead:
    """The head of a log whose deletion begins; it is never anything else again."""
    return replace(head, state=LogState.DELETING)


def _numbered(
    first_row: int, written: Iterable[LedgerWritten], commit_ms: int
) -> tuple[tuple[LedgerRange, ...], list[int]]:
    """The ranges of ``written`` from ``first_row`` on, and their encoded sizes in bytes."""
    ranges: list[LedgerRange] = []
    sizes: list[int] = []
    row = first_row
    for ledger in written:
        columns = tuple(column.bounded() for column in ledger.columns)
        made = LedgerRange(
            ledger.ledger_id,
            0,
            ledger.last_entry,
            row,
            ledger.rows,
            ledger.size_bytes,
            ledger.schema_id,
            commit_ms,
            columns,
        )
        size = _size(made)
        # Bounds only help to skip ledgers. Without them a filter reads more, never less.
        while made.columns and size > RANGE_BYTES_MAX:
            made = replace(made, columns=made.columns[:-1])
            size = _size(made)
        ranges.append(made)
        sizes.append(size)
        row = made.next_row
    return tuple(ranges), sizes


def _spill(
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
    return tuple(_leaf(tuple(group), names) for group in groups)


def _leaf(ranges: tuple[LedgerRange, ...], names: ChunkNames) -> tuple[ChunkRef, bytes]:
    return _encode(Chunk(0, ranges=ranges), len(ranges), ranges[-1].commit_ms, names)


def _fold(
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
            index = _index(crowd[:FOLD], names)
            made.append(index)
            above, crowd = (*above, index[0]), crowd[FOLD:]
        refs = (*above, *crowd, *below)
        level += 1
    return refs, tuple(made)


def _cut(
    ref: ChunkRef, before_row: int, opened: Mapping[str, Chunk], names: ChunkNames
) -> tuple[ChunkRef, tuple[tuple[ChunkRef, bytes], ...], Chunk]:
    """What stays of a chunk, what must be written for that, and what goes of it and below it."""
    chunk = opened[ref.name]
    if chunk.level == 0:
        gone = tuple(item for item in chunk.ranges if item.next_row <= before_row)
        # The chunk is kept as it is: no range in it ends before the row, so nothing is rewritten.
        if not gone:
            return ref, (), Chunk(0)
        leaf = _leaf(chunk.ranges[len(gone) :], names)
        return leaf[0], (leaf,), Chunk(0, ranges=gone)
    dropped = tuple(below for below in chunk.chunks if below.next_row <= before_row)
    kept = list(chunk.chunks[len(dropped) :])
    made: tuple[tuple[ChunkRef, bytes], ...] = ()
    below = Chunk(0)
    if chunk_to_cut(kept, before_row) is not None:
        kept[0], made, below = _cut(kept[0], before_row, opened, names)
    if not dropped and not made:
        return ref, (), Chunk(0)
    index = _index(tuple(kept), names)
    return index[0], (*made, index), Chunk(0, below.ranges, (*dropped, *below.chunks))


def _index(refs: tuple[ChunkRef, ...], names: ChunkNames) -> tuple[ChunkRef, bytes]:
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


def _size(item: LedgerRange) -> int:
    return range_to_pb(item).ByteSize() + _PART_HEADER_BYTES
