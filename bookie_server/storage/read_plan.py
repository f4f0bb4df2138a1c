"""Finding entries, in two steps: the loop thread plans where they are, any thread fetches them.

A plan is immutable: cached runs by reference, blocks by location, wanted ids. What the plan does not
find in cache, snapshot or index is *absent*; what it finds but cannot be read with a good checksum
is *damaged*, and never absent; what the byte limit leaves out is *not reached*. Damage of one block
concerns the ids in that block only. A block that could not be looked at for want of descriptors or
memory counts as damaged for the reader, but is not named as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bookie_server.core.presence import Presence
from bookie_server.storage.disk.damage import Damage
from bookie_server.storage.disk.descriptors import is_shortage
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.logs.entry_log import file_name
from bookie_server.storage.logs.rows import Block, Row
from bookie_server.storage.logs.write_cache import pieces_of
from bookie_server.storage.stored import Stored, size_bytes_of
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.digest import crc32c_of
from bookie_server.wire.limits import ENTRY_SIZE_MAX
from bookie_server.wire.record import (
    LENGTH_SIZE,
    MalformedRecordsError,
    Run,
    parse_run,
)
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import NO_ENTRY_ID

PREAD_SIZE_MAX = 1024 * 1024
"""Neighbouring blocks are fetched with one read up to this size."""
SPANS_MAX = 8_192
"""About the most spans of one outcome; of entries with gaps between them there are two for each."""
_PLAN_ITEMS_MAX = 4096
"""Most places looked at for one plan; the ids behind them are reported as not reached."""
_PLAN_IDS_MAX = 65_536
"""About the most ids looked at for one plan; more of the smallest records fit no reply."""
_RECORD_SIZE_MAX = LENGTH_SIZE + ENTRY_SIZE_MAX


@dataclass(frozen=True, slots=True)
class Span:
    """The presence of all ids in ``first..last`` that were asked for; a stripe asks for some only."""

    first: int
    last: int
    presence: Presence


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Where the asked entries are. The loop thread makes it, any thread executes it."""

    ledger_id: int
    first: int
    last: int
    stripe: Stripe
    size_bytes_max: int
    stored: tuple[Stored, ...]
    """Ascending, spans disjoint."""
    planned_last: int
    """The highest id looked for; asked ids behind it are reported as not reached."""
    spans_max: int = SPANS_MAX

    @property
    def needs_disk(self) -> bool:
        """Whether executing it blocks on files."""
        return any(isinstance(item.place, Row) for item in self.stored)

    @property
    def resting(self) -> dict[int, tuple[str, Block]]:
        """Directory and block of the entries that rest in entry logs."""
        return {
            entry_id: (item.directory, item.place.block)
            for item in self.stored
            if isinstance(item.place, Row)
            for entry_id in item.ids
        }

    @property
    def memory_bytes(self) -> int:
        """Most memory that it takes to execute it, to join its records into a reply, and to send that.

        gRPC sends a copy, so a reply counts twice; what was fetched is let go of before there is one.
        Until then at most half of what is kept is not wanted, and one read of the disk is looked through.
        """
        if not self.stored:
            return 0
        sizes = [size_bytes_of(item.place) for item in self.stored]
        # One entry comes whatever its size, and it lies in the first place.
        reply = min(sum(sizes), max(self.size_bytes_max, min(sizes[0], _RECORD_SIZE_MAX)))
        kept, looked_through = 2 * reply, max(PREAD_SIZE_MAX, *sizes)
        fetched = min(sum(sizes), kept + looked_through) if self.needs_disk else reply
        return reply + fetched


def plan_of(
    found: Iterable[Stored],
    ledger_id: int,
    first: int,
    last: int,
    *,
    stripe: Stripe,
    size_bytes_max: int,
    select: Callable[[Sequence[int]], Sequence[int]] | None = None,
) -> ReadPlan:
    """Plan a read of what was ``found`` of ``first..last``, up to about ``size_bytes_max`` bytes.

    ``select`` picks the ids that are wanted; without one those of the stripe are.
    """
    invariant(0 <= first <= last, "a read asks for at least one id")
    select = select or stripe.select
    first_wanted = stripe.next(first)
    stored: list[Stored] = []
    places = id_count = size = 0
    planned_last, looked_at = last, NO_ENTRY_ID
    for item in found:
        is_full = size >= size_bytes_max or places >= _PLAN_ITEMS_MAX or id_count >= _PLAN_IDS_MAX
        # A reply that says nothing of any wanted id would be asked for again for ever.
        if is_full and looked_at >= first_wanted:
            # What lies behind was not looked for: to report it as
            # absent would be a false denial.
            planned_last = looked_at
            break
        places, id_count, looked_at = places + 1, id_count + len(item.ids), item.ids[-1]
        if ids := select(item.ids):
            stored.append(Stored(ids, item.place, item.directory))
            size += stored[-1].size_bytes
    return ReadPlan(ledger_id, first, last, stripe, size_bytes_max, tuple(stored), planned_last)


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
class _Collector:
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
        if not self._is_one_span(run.entry_ids):
            # Each id may begin a span, behind one of ids that are absent.
            count = max(1, (self.spans_max - len(self.spans)) // 2)
            if count < len(run):
                self.is_full = True
                run = run.slice(0, count)
        room = self.size_bytes_max - self.size_bytes
        if run.size_bytes > room:
            self.is_full = True
            count = 0
            while count < len(run) and run.end_of(count) <= room:
                count += 1
            # One entry comes whatever its size: a reply without any
            # would be asked for again for ever.
            if not count and self.entry_count:
                return
            run = run.slice(0, max(count, 1))
        self.mark(run.entry_ids, Presence.FOUND)
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
        if self._is_one_span(ids):
            self._extend(ids[0], ids[-1], presence)
            return
        for entry_id in ids:
            self._extend(entry_id, entry_id, presence)

    def _is_one_span(self, ids: Sequence[int]) -> bool:
        """Whether all wanted ids between the two ends are there, whatever their number."""
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


def execute_plan(files: FileSystem, plan: ReadPlan) -> ReadOutcome:
    """Fetch what the plan names, on any thread. Errors of the disk become presences."""
    into = _Collector(
        plan.stripe, plan.stripe.next(plan.first), plan.size_bytes_max, plan.spans_max
    )
    for batch in _batches(plan.stored):
        if into.is_full or len(into.spans) >= plan.spans_max:
            into.is_full = True
            break
        if isinstance(batch[0].place, Run):
            for item in batch:
                assert isinstance(item.place, Run)
                for piece in pieces_of(item.place, item.ids):
                    if not into.is_full:
                        into.take(piece)
        else:
            _read_batch(files, plan.ledger_id, batch, into)
    # A reply that is full has not looked further: what it left out is not reached, never absent.
    if not into.is_full and into.cursor <= plan.planned_last:
        into.span(into.cursor, plan.planned_last, Presence.ABSENT)
        into.cursor = plan.stripe.next(plan.planned_last + 1)
    if into.cursor <= plan.last:
        into.span(into.cursor, plan.last, Presence.NOT_REACHED)
    return ReadOutcome(
        plan.ledger_id,
        into.chunks,
        into.spans,
        into.size_bytes,
        into.entry_count,
        into.damage,
        into.damaged_places,
        into.is_short,
        into.is_outdated,
    )


def _batches(stored: Sequence[Stored]) -> Iterator[list[Stored]]:
    """Group what one read can fetch: adjacent blocks of one log, or parts of one block."""
    batch: list[Stored] = []
    for item in stored:
        if batch and not _joins(batch, item):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def _joins(batch: Sequence[Stored], item: Stored) -> bool:
    first, before, place = batch[0].place, batch[-1].place, item.place
    if not (isinstance(first, Row) and isinstance(before, Row) and isinstance(place, Row)):
        return False
    if place.block.log_id != first.block.log_id or item.directory != batch[0].directory:
        return False
    # Late entries split a row, so several rows may stand for parts of one block.
    if place.block == before.block:
        return True
    end = place.block.offset + place.block.size_bytes
    is_next = place.block.offset == before.block.offset + before.block.size_bytes
    return is_next and end - first.block.offset <= PREAD_SIZE_MAX


def _read_batch(
    files: FileSystem, ledger_id: int, batch: Sequence[Stored], into: _Collector
) -> None:
    rows = [item.place for item in batch if isinstance(item.place, Row)]
    begin = rows[0].block.offset
    size = rows[-1].block.offset + rows[-1].block.size_bytes - begin
    path = f"{batch[0].directory}/{file_name(rows[0].block.log_id)}"
    buffer = memoryview(_read(files, path, begin, size)[0])
    first_chunk, fetched_bytes = len(into.chunks), len(buffer)
    for item, row in zip(batch, rows, strict=True):
        if into.is_full:
            break
        at, block = row.block.offset - begin, row.block
        within, error = buffer, None
        if len(buffer) < at + block.size_bytes:
            # The common read failed or came up short; only the blocks concerned may suffer.
            data, error = _read(files, path, block.offset, block.size_bytes)
            within, at = memoryview(data), 0
            fetched_bytes += len(data)
        content = within[at : at + block.size_bytes]
        runs = _sound_runs(ledger_id, item, row, content)
        if runs is None:
            into.mark(item.ids, Presence.DAMAGED)
            into.damaged_places |= dict.fromkeys(item.ids, (item.directory, block))
            if error is not None and is_shortage(error):
                into.is_short = True
            else:
                into.is_outdated |= isinstance(error, FileNotFoundError)
                detail = f"block of ledger {ledger_id}: {error or 'bad checksum'}"
                into.damage.append(Damage(path, block.offset, detail))
            continue
        for offset, run in runs:
            if not into.is_full:
                into.take(run, (within, at + offset))
    into.let_go_of_fetched(first_chunk, fetched_bytes)


def _read(files: FileSystem, path: str, offset: int, size: int) -> tuple[bytes, OSError | None]:
    """Read the bytes; none, and the error, where that fails: then the checksum will not hold."""
    try:
        with files.open(path) as file:
            return file.read_at(offset, size), None
    except OSError as error:
        return b"", error


def _sound_runs(
    ledger_id: int, item: Stored, row: Row, content: memoryview
) -> list[tuple[int, Run]] | None:
    """The wanted records of a block with their offsets in it; ``None`` when it is damaged."""
    if len(content) != row.block.size_bytes or crc32c_of(content) != row.block.checksum:
        return None
    try:
        whole = parse_run(content)
    except MalformedRecordsError:
        return None
    # The bytes are sound, yet not what the row promised: they are neither returned nor absent.
    if whole.ledger_id != ledger_id:
        return None
    if len(item.ids) == len(whole):
        return [(0, whole)]
    return [
        (whole.offsets[whole.entry_ids.index(piece.first_entry)], piece)
        for piece in pieces_of(whole, item.ids)
    ]
