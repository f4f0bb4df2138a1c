"""Puts rewritten ranges in the place of those they were made of; rows, numbers and everything else stay.

Pure but for the chunks it asks for. A group is exchanged if the log still holds exactly the ranges it
was made of, wherever they stand by now: chunks change their names with every fold and cut, so names
say nothing. What is not equal is given up, group by group. The ranges taken out go to the garbage in
chunks of their own; what replaces chunks of level k is of level k, so the order of levels holds.

What was made for a chunk is used again as long as the head leads to it: a retry at a busy log then costs
what an append's does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from bookkeeper_metadata.foundation.invariant import invariant
from spark_bookkeeper.log.format.epoch import LedgerWritten
from spark_bookkeeper.log.format.model import (
    Chunk,
    ChunkRef,
    Garbage,
    GarbageReason,
    LedgerRange,
    LogHead,
)
from spark_bookkeeper.log.format.serde import REWRITTEN_VERSION
from spark_bookkeeper.log.rules.chunks import (
    FOLD,
    ChunkNames,
    fitted,
    index_of,
    range_size,
    spill,
)
from spark_bookkeeper.log.rules.transitions import Transition

OpenChunk = Callable[[ChunkRef], Awaitable[Chunk]]
Written = tuple[ChunkRef, bytes]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Neighbouring ranges as they were planned, and those that hold the same rows in their place."""

    planned: tuple[LedgerRange, ...]
    made: tuple[LedgerRange, ...]

    @property
    def first_row(self) -> int:
        return self.planned[0].first_row

    @property
    def next_row(self) -> int:
        return self.planned[-1].next_row

    def matches(self, ranges: Sequence[LedgerRange]) -> bool:
        """Whether ``ranges``, all that begin between its first and last row, are those planned."""
        if len(ranges) != len(self.planned):
            return False
        pairs = zip(ranges, self.planned, strict=True)
        return all(_identity(found) == _identity(planned) for found, planned in pairs)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A change of the head that exchanges some groups."""

    transition: Transition
    installed: frozenset[int]
    """Which of the replacements it brings about, by index."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What became of some neighbouring chunks and what is below them, or of the inline ranges."""

    refs: tuple[ChunkRef, ...]
    """In their place."""
    chunks: tuple[Written, ...]
    """To be written before."""
    garbage: tuple[ChunkRef, ...]
    """Of them: those that hold the ranges taken out."""
    installed: frozenset[int]


@dataclass(slots=True)
class Rewriting:
    """Exchanges ``replacements`` (in row order) in heads of one log, try after try."""

    replacements: Sequence[Replacement]
    names: ChunkNames
    _made: dict[str, _Part] = field(default_factory=dict)
    """By the names of the chunks they replace: parts that are in the store."""
    _tried: dict[str, _Part] = field(default_factory=dict)
    """The same of the try under way."""

    async def exchange(self, head: LogHead, open_chunk: OpenChunk, now_ms: int) -> Exchanged | None:
        """The change of ``head``; ``None``: none of the groups is there any more.

        ``open_chunk`` reads a chunk with all column bounds: what stays of it is written anew.
        """
        self._tried = {}
        refs, parts = await self._exchange_below(head.chunks, open_chunk)
        ranges, inline = self._exchange_ranges(head.ranges)
        if inline is not None:
            key = f"inline {sorted(inline.installed)}"
            # The head is another with every try, but what these groups take out of it is the same.
            self._tried[key] = inline = self._made.get(key, inline)
            parts.append(inline)
        if not parts:
            return None
        changed = replace(head, chunks=refs, ranges=ranges, format_version=REWRITTEN_VERSION)
        garbage = tuple(ref for part in parts for ref in part.garbage)
        written = tuple(chunk for part in parts for chunk in part.chunks)
        dropped = Garbage(GarbageReason.REWRITE, now_ms, garbage)
        installed = frozenset[int]().union(*(part.installed for part in parts))
        return Exchanged(Transition(changed, written, dropped), installed)

    def keep(self) -> None:
        """The chunks of the last try are in the store: the next tries need not write them again."""
        for names, part in self._tried.items():
            self._made[names] = replace(part, chunks=())

    async def _exchange_below(
        self, refs: Sequence[ChunkRef], open_chunk: OpenChunk
    ) -> tuple[tuple[ChunkRef, ...], list[_Part]]:
        """The references of one parent with what can be exchanged below them, and those parts."""
        found: list[ChunkRef] = []
        parts: list[_Part] = []
        for cluster in self._clusters(refs):
            names = ",".join(ref.name for ref in cluster)
            part = self._made.get(names)
            if part is None and self._is_wanted(cluster[0]):
                part = await self._exchange_cluster(cluster, open_chunk)
            if part is not None:
                self._tried[names] = part
                parts.append(part)
            found += cluster if part is None else part.refs
        return tuple(found), parts

    async def _exchange_cluster(
        self, cluster: Sequence[ChunkRef], open_chunk: OpenChunk
    ) -> _Part | None:
        chunks = [await open_chunk(ref) for ref in cluster]
        if cluster[0].level == 0:
            ranges, part = self._exchange_ranges([item for one in chunks for item in one.ranges])
            if part is None:
                return None
            leaves = self._leaves(ranges, len(cluster))
            refs = tuple(ref for ref, _ in leaves)
            return replace(part, refs=refs, chunks=(*leaves, *part.chunks))
        (chunk,) = chunks
        below, parts = await self._exchange_below(chunk.chunks, open_chunk)
        if not parts:
            return None
        made = index_of(below, self.names)
        return _Part(
            (made[0],),
            (*(written for part in parts for written in part.chunks), made),
            tuple(ref for part in parts for ref in part.garbage),
            frozenset[int]().union(*(part.installed for part in parts)),
        )

    def _clusters(self, refs: Sequence[ChunkRef]) -> Iterator[Sequence[ChunkRef]]:
        """Neighbours that are rewritten together: leaves that hold groups; indexes one by one.

        What will move below one index together stays together, so that a fold divides no cluster.
        """
        leaves = 0
        cluster: list[ChunkRef] = []
        for ref in refs:
            if ref.level == 0 and self._is_wanted(ref) and leaves % FOLD and cluster:
                cluster.append(ref)
            else:
                if cluster:
                    yield cluster
                cluster = [ref] if ref.level == 0 and self._is_wanted(ref) else []
                if not cluster:
                    yield (ref,)
            leaves += ref.level == 0
        if cluster:
            yield cluster

    def _is_wanted(self, ref: ChunkRef) -> bool:
        return bool(self._between(ref.first_row, ref.next_row))

    def _between(self, first_row: int, next_row: int) -> range:
        """Indexes of the replacements that hold some of these rows."""
        first = bisect_right(self.replacements, first_row, key=_next_row)
        return range(first, bisect_left(self.replacements, next_row, lo=first, key=_first_row))

    def _leaves(self, ranges: Sequence[LedgerRange], count_max: int) -> tuple[Written, ...]:
        """The ranges as leaf chunks; rewritten ones have bounds only where those do not make more
        leaves than there were."""
        leaves = spill(ranges, [range_size(item) for item in ranges], self.names)
        if len(leaves) <= count_max:
            return leaves
        bare = [
            item if item.first_commit_ms is None else replace(item, columns=()) for item in ranges
        ]
        return spill(bare, [range_size(item) for item in bare], self.names)

    def _exchange_ranges(
        self, ranges: Sequence[LedgerRange]
    ) -> tuple[tuple[LedgerRange, ...], _Part | None]:
        """Neighbouring ranges with what can be exchanged in them."""
        kept = list(ranges)
        removed: list[list[LedgerRange]] = []
        installed: list[int] = []
        if not ranges:
            return (), None
        for number in self._between(ranges[0].first_row, ranges[-1].next_row):
            wanted = self.replacements[number]
            first = bisect_left(kept, wanted.first_row, key=_first_row)
            end = bisect_left(kept, wanted.next_row, key=_first_row)
            if not wanted.matches(kept[first:end]):
                continue
            if not removed or removed[-1][-1].next_row != wanted.first_row:
                removed.append([])
            removed[-1] += kept[first:end]
            kept[first:end] = wanted.made
            installed.append(number)
        if not installed:
            return tuple(ranges), None
        # Never inline, because a hundred thousand of them do not fit into one node. A chunk's ranges
        # follow each other, so those of groups that are not neighbours go apart.
        spilled = tuple(
            chunk
            for stretch in removed
            for chunk in spill(stretch, [range_size(item) for item in stretch], self.names)
        )
        garbage = tuple(ref for ref, _ in spilled)
        return tuple(kept), _Part((), spilled, garbage, frozenset(installed))


def rewritten(sources: Sequence[LedgerRange], written: LedgerWritten) -> LedgerRange:
    """The range of one ledger that holds the rows of neighbouring ``sources``, under their numbers."""
    first, last = sources[0], sources[-1]
    rows = sum(item.rows for item in sources)
    invariant(written.rows == rows, "a rewritten ledger holds the rows of its sources")
    made = LedgerRange(
        written.ledger_id,
        0,
        written.last_entry,
        first.first_row,
        rows,
        written.size_bytes,
        first.schema_id,
        last.commit_ms,
        tuple(column.bounded() for column in written.columns),
        first.committed_since_ms,
    )
    return fitted(made)[0]


def _first_row(item: LedgerRange | Replacement) -> int:
    return item.first_row


def _next_row(item: Replacement) -> int:
    return item.next_row


def _identity(item: LedgerRange) -> tuple[int, ...]:
    return (
        item.ledger_id,
        item.first_entry,
        item.last_entry,
        item.first_row,
        item.rows,
        item.schema_id,
    )
