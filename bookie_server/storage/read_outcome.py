"""What a read found: records to send, and the presence of every id that was asked for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bookie_server.core.presence import Presence
from bookie_server.storage.disk.damage import Damage
from bookie_server.storage.logs.rows import Block
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.record import Run
from bookie_server.wire.stripe import Stripe


@dataclass(frozen=True, slots=True)
class Span:
    """The presence of all ids in ``first..last`` that were asked for; a stripe asks for some only."""

    first: int
    last: int
    presence: Presence


@dataclass(frozen=True, slots=True)
class ReadOutcome:
    """Records as chunks to send in this order, and the presence of every asked id."""

    ledger_id: int
    chunks: list[Buffer]
    spans: list[Span]
    size_bytes: int
    entry_count: int
    damage: list[Damage]
    """The blocks that cannot be read."""
    damaged_places: dict[int, tuple[str, Block]]
    """By entry that cannot be read: in which directory, and in which block, it should be."""
    is_short: bool
    """Of some entries reported as damaged nothing is known: there was no descriptor or no memory."""
    is_outdated: bool
    """An entry log of the plan is gone: its entries, if they are still stored, are elsewhere now."""

    def of(self, presence: Presence) -> list[tuple[int, int]]:
        """The spans with this presence, as ``(first, last)``."""
        return [(span.first, span.last) for span in self.spans if span.presence is presence]


@dataclass(slots=True)
class Collector:
    """Puts the outcome together, in ascending order of ids."""

    stripe: Stripe
    cursor: int
    """The next asked id that has no presence yet."""
    size_bytes_max: int
    spans_max: int
    chunks: list[Buffer] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    size_bytes: int = 0
    entry_count: int = 0
    is_full: bool = False
    damage: list[Damage] = field(default_factory=list)
    damaged_places: dict[int, tuple[str, Block]] = field(default_factory=dict)
    is_short: bool = False
    is_outdated: bool = False
    _joint: tuple[memoryview, int, int] | None = None
    """The last chunk as part of a larger buffer, so that neighbours become one chunk."""

    def take(self, run: Run, within: tuple[memoryview, int] | None = None) -> None:
        """Take as much of a run of asked ids as the limit allows.

        ``within`` says which buffer, and where in it, the run's bytes are.
        """
        is_one_span = self._is_one_span(run.entry_ids)
        if not is_one_span:
            # Each id may begin a span, behind one of ids that are absent.
            count = max(1, (self.spans_max - len(self.spans)) // 2)
            if count < len(run):
                self.is_full = True
                run = run.slice(0, count)
        room = self.size_bytes_max - self.size_bytes
        if run.size_bytes > room:
            self.is_full = True
            count = _count_within(run, room)
            # One entry comes whatever its size: a reply without any
            # would be asked for again for ever.
            if not count and self.entry_count:
                return
            run = run.slice(0, max(count, 1))
        self._mark(run.entry_ids, Presence.FOUND, is_one_span=is_one_span)
        self.size_bytes += run.size_bytes
        self.entry_count += len(run)
        self._append(run, within)

    def _append(self, run: Run, within: tuple[memoryview, int] | None) -> None:
        if within is None:
            self.chunks.append(run.data)
            self._joint = None
            return
        buffer, begin = within
        end = begin + run.size_bytes
        if self._joint is not None and self._joint[0] is buffer and self._joint[2] == begin:
            begin = self._joint[1]
            self.chunks[-1] = buffer[begin:end]
        else:
            self.chunks.append(buffer[begin:end])
        self._joint = buffer, begin, end

    def let_go_of_fetched(self, first_chunk: int, size_bytes: int) -> None:
        """Copy the chunks from this one on out of the bytes they were fetched with, if they are less than half.

        Of a block the reply may want one entry, and of thousands of blocks one each.
        """
        self._joint = None
        taken = self.chunks[first_chunk:]
        if 2 * sum(map(len, taken)) < size_bytes:
            self.chunks[first_chunk:] = map(bytes, taken)

    def mark(self, ids: Sequence[int], presence: Presence) -> None:
        """Record the presence of asked ids; asked ids passed over on the way to them are absent."""
        self._mark(ids, presence, is_one_span=self._is_one_span(ids))

    def _mark(self, ids: Sequence[int], presence: Presence, *, is_one_span: bool) -> None:
        if is_one_span:
            self._extend(ids[0], ids[-1], presence)
            return
        for entry_id in ids:
            self._extend(entry_id, entry_id, presence)

    def _is_one_span(self, ids: Sequence[int]) -> bool:
        """Whether all wanted ids between the two ends are there, whatever their number."""
        if isinstance(ids, range) and ids.step == 1:
            return True
        return self.stripe.rank(ids[-1]) - self.stripe.rank(ids[0]) + 1 == len(ids)

    def _extend(self, first: int, last: int, presence: Presence) -> None:
        if first > self.cursor:
            self.span(self.cursor, first - 1, Presence.ABSENT)
        self.span(first, last, presence)
        self.cursor = self.stripe.next(last + 1)

    def span(self, first: int, last: int, presence: Presence) -> None:
        """Append a span to the outcome, or extend the last one if its presence is the same."""
        before = self.spans[-1] if self.spans else None
        if before is not None and before.presence is presence:
            self.spans[-1] = Span(before.first, last, presence)
        else:
            self.spans.append(Span(first, last, presence))


def _count_within(run: Run, size_bytes: int) -> int:
    """How many records from the first on have so many bytes together, at most."""
    if isinstance(run.offsets, range):
        return min(len(run), size_bytes // run.offsets.step)
    count = 0
    while count < len(run) and run.end_of(count) <= size_bytes:
        count += 1
    return count
