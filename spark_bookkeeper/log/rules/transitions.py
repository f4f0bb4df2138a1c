"""Which changes to a log's head are legal, and what must be written before each.

Pure: head in, head out, with the chunks that have to exist before the new head may. Appending
numbers rows on; how the list of ranges is cut into chunks is in
:mod:`spark_bookkeeper.log.rules.chunks`.
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
from spark_bookkeeper.log.format.serde import REWRITTEN_VERSION
from spark_bookkeeper.log.rules.chunks import (
    ChunkNames,
    fits_inline,
    fitted,
    fold,
    index_of,
    leaf_of,
    range_size,
    spill,
)


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
    sizes = [*map(range_size, head.ranges), *added_sizes]
    # The common commit: one small change of the head, and no other node is written.
    if fits_inline(sizes):
        grown = replace(head, ranges=inline, next_row=next_row, last_commit_ms=commit_ms)
        return Transition(grown)
    # All of them, not only what is too much: spilling a few at a time would make many small chunks,
    # and a plan reads one node for each.
    spilled = spill(inline, sizes, names)
    refs, folded = fold((*head.chunks, *(ref for ref, _ in spilled)), names)
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
        made, size = fitted(made)
        ranges.append(made)
        sizes.append(size)
        row = made.next_row
    return tuple(ranges), sizes


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
        made_leaf = leaf_of(chunk.ranges[len(gone) :], names)
        return made_leaf[0], (made_leaf,), Chunk(0, ranges=gone)
    dropped = tuple(below for below in chunk.chunks if below.next_row <= before_row)
    kept = list(chunk.chunks[len(dropped) :])
    made: tuple[tuple[ChunkRef, bytes], ...] = ()
    below = Chunk(0)
    if chunk_to_cut(kept, before_row) is not None:
        kept[0], made, below = _cut(kept[0], before_row, opened, names)
    if not dropped and not made:
        return ref, (), Chunk(0)
    made_index = index_of(tuple(kept), names)
    return made_index[0], (*made, made_index), Chunk(0, below.ranges, (*dropped, *below.chunks))
