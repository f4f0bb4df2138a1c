"""Executing a plan: cached runs as they are, blocks of entry logs from the disk.

Damage of one block concerns the ids in that block only. A block that could not be looked at for want of descriptors or
memory counts as damaged for the reader, but is not named as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bookie_server.core.presence import Presence
from bookie_server.storage.disk.damage import Damage
from bookie_server.storage.disk.descriptors import is_shortage
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.logs.entry_log import file_name
from bookie_server.storage.logs.rows import Block, Row
from bookie_server.storage.logs.write_cache import pieces_of
from bookie_server.storage.read_outcome import Collector, ReadOutcome
from bookie_server.storage.read_plan import PREAD_SIZE_MAX, ReadPlan
from bookie_server.storage.stored import Stored
from bookie_server.wire.digest import crc32c_of
from bookie_server.wire.record import MalformedRecordsError, Run, parse_run, uniform_run


def execute_plan(files: FileSystem, plan: ReadPlan) -> ReadOutcome:
    """Fetch what the plan names, on any thread. Errors of the disk become presences."""
    into = Collector(plan.stripe, plan.stripe.next(plan.first), plan.size_bytes_max, plan.spans_max)
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


@dataclass(slots=True)
class _Fetched:
    """Neighbouring blocks of one log, or parts of one block, as far as one read gave them."""

    files: FileSystem
    ledger_id: int
    path: str
    begin: int
    """Where in the log ``buffer`` begins."""
    buffer: memoryview
    size_bytes: int
    """Of all that was read."""

    def take_together(self, items: Sequence[Stored], into: Collector) -> bool:
        """Take neighbouring ids from all their blocks as one run; false, and nothing done: each is worth a look of its own."""
        first, last = items[0].ids[0], items[-1].ids[-1]
        count = last - first + 1
        if count != sum(len(item.ids) for item in items):
            return False
        blocks = list(dict.fromkeys(map(_block_of, items)))
        begin = blocks[0].offset - self.begin
        end = blocks[-1].offset + blocks[-1].size_bytes - self.begin
        if not all(_is_sound(block, self._content_of(block)) for block in blocks):
            return False
        run = uniform_run(self.buffer[begin:end])
        if run is None or run.ledger_id != self.ledger_id:
            return False
        each = run.size_bytes // len(run)
        id_zero = blocks[0].offset - each * run.first_entry
        for item in items:
            # Or one block could give what the row of another stands for.
            block, place = _block_of(item), id_zero + each * item.ids[0]
            if not block.offset <= place <= block.offset + block.size_bytes - each * len(item.ids):
                return False
        at = first - run.first_entry
        into.take(run.slice(at, at + count), (self.buffer, begin + run.offsets[at]))
        return True

    def take(self, item: Stored, into: Collector) -> None:
        """Take what is wanted of one block."""
        block, within, error = _block_of(item), self.buffer, None
        at = block.offset - self.begin
        if len(within) < at + block.size_bytes:
            # The common read failed or came up short; only the blocks concerned may suffer.
            data, error = _read(self.files, self.path, block.offset, block.size_bytes)
            within, at = memoryview(data), 0
            self.size_bytes += len(data)
        runs = _sound_runs(self.ledger_id, item, block, within[at : at + block.size_bytes])
        if runs is None:
            self._note_damage(item, error, into)
            return
        for offset, run in runs:
            if not into.is_full:
                into.take(run, (within, at + offset))

    def _content_of(self, block: Block) -> memoryview:
        """As far as it was read."""
        at = block.offset - self.begin
        return self.buffer[at : at + block.size_bytes]

    def _note_damage(self, item: Stored, error: OSError | None, into: Collector) -> None:
        block = _block_of(item)
        into.mark(item.ids, Presence.DAMAGED)
        into.damaged_places |= dict.fromkeys(item.ids, (item.directory, block))
        if error is not None and is_shortage(error):
            into.is_short = True
        else:
            into.is_outdated |= isinstance(error, FileNotFoundError)
            detail = f"block of ledger {self.ledger_id}: {error or 'bad checksum, or not the entries of its row'}"
            into.damage.append(Damage(self.path, block.offset, detail))


def _read_batch(
    files: FileSystem, ledger_id: int, batch: Sequence[Stored], into: Collector
) -> None:
    first, last = _block_of(batch[0]), _block_of(batch[-1])
    path = f"{batch[0].directory}/{file_name(first.log_id)}"
    size = last.offset + last.size_bytes - first.offset
    buffer = memoryview(_read(files, path, first.offset, size)[0])
    first_chunk = len(into.chunks)
    fetched = _Fetched(files, ledger_id, path, first.offset, buffer, len(buffer))
    for items in _neighbours(batch):
        if not into.is_full and fetched.take_together(items, into):
            continue
        for item in items:
            if not into.is_full:
                fetched.take(item, into)
    into.let_go_of_fetched(first_chunk, fetched.size_bytes)


def _neighbours(batch: Sequence[Stored]) -> Iterator[Sequence[Stored]]:
    """The parts of a batch in which every id between the first and the last is wanted."""
    begin = 0
    for at, (before, item) in enumerate(pairwise(batch), 1):
        if item.ids[0] != before.ids[-1] + 1:
            yield batch[begin:at]
            begin = at
    yield batch[begin:]


def _block_of(item: Stored) -> Block:
    assert isinstance(item.place, Row)
    return item.place.block


def _read(files: FileSystem, path: str, offset: int, size: int) -> tuple[bytes, OSError | None]:
    """Read the bytes; none, and the error, where that fails: then the checksum will not hold."""
    try:
        with files.open(path) as file:
            return file.read_at(offset, size), None
    except OSError as error:
        return b"", error


def _is_sound(block: Block, content: memoryview) -> bool:
    return len(content) == block.size_bytes and crc32c_of(content) == block.checksum


def _sound_runs(
    ledger_id: int, item: Stored, block: Block, content: memoryview
) -> list[tuple[int, Run]] | None:
    """The wanted records of a block with their offsets in it; ``None`` when it is damaged."""
    if not _is_sound(block, content):
        return None
    try:
        whole = parse_run(content)
    except MalformedRecordsError:
        return None
    # The bytes are sound, yet not what the row promised: they are neither returned nor absent.
    if whole.ledger_id != ledger_id:
        return None
    if item.ids == whole.entry_ids:
        return [(0, whole)]
    if not set(item.ids) <= set(whole.entry_ids):
        return None
    return [
        (whole.offsets[whole.entry_ids.index(piece.first_entry)], piece)
        for piece in pieces_of(whole, item.ids)
    ]
