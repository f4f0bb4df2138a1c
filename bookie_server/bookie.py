"""Bookie: admission, journals and storage put together; everything but the network.

One event loop owns the state. The life of an add: ``add`` asks :class:`Admission`, a ``Persist``
goes to the ledger's journal thread, the synced group comes back to ``_on_group_done``, which applies
it to storage and only then lets the replies out. A read waits for what it
may not overtake, and is then answered by a :class:`~bookie_server.reads.reader.Reader`. Checkpoints
run beside all that in a thread of their own. The threads are :class:`~bookie_server.workers.Workers`;
nothing here knows of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from bookie_server.checkpoint_loop import CheckpointLoop
from bookie_server.core.admission import Admission
from bookie_server.core.damaged_entries import DamagedEntries
from bookie_server.core.effects import Compare, Effect, Persist, Remember, Reply, ReplyTo
from bookie_server.core.ledger_ranges import within
from bookie_server.core.records import Replace
from bookie_server.core.space import REQUEST_SIZE, Disk, Look, Mode, Space
from bookie_server.journal_thread import JournalWriter
from bookie_server.memory.budget import MemoryBudget, Room
from bookie_server.observing.measures import BookieMeasures
from bookie_server.reads.comparisons import Comparisons
from bookie_server.reads.damage_log import DamageLog
from bookie_server.reads.fetching import Fetcher
from bookie_server.reads.lac_watch import LacWatch
from bookie_server.reads.reader import Reader
from bookie_server.reads.verifying import Verifier
from bookie_server.settings import BookieSettings
from bookie_server.storage.engine import Storage
from bookie_server.storage.journal.journal_file import BLOCK_SIZE, JournalPosition
from bookie_server.wire.messages import (
    EntryList,
    IdRange,
    ListRequest,
    ReadLacReply,
    ReadLacRequest,
    ReadRequest,
    Section,
    Status,
    StoredReply,
)
from bookie_server.wire.record import Run
from bookie_server.workers import ThreadWorkers, Workers
from bookkeeper_metadata.foundation.tasks import settle

_LOGGER = logging.getLogger(__name__)
_IDLE_AFTER_S = 0.2
"""A stream without a frame for so long keeps no room for its next one while others wait for room."""


class Bookie:
    """Use within one event loop, between ``start`` and ``stop``."""

    def __init__(
        self, storage: Storage, settings: BookieSettings, workers: Workers | None = None
    ) -> None:
        self.storage = storage
        self._contents = storage.contents
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[Exception] = self._loop.create_future()
        """Completes with the reason when the bookie must stop and acknowledge nothing more."""
        self.measures = BookieMeasures()
        self._settings = settings
        self.space = Space(settings)
        """What the bookie takes now; without looks at its disks there is room until a write fails."""
        self._admission = Admission(storage.contents, lambda: self.space.mode)
        self._workers = workers or ThreadWorkers(settings.read_threads)
        self._journals: tuple[JournalWriter, ...] = ()
        self._is_applying = False
        self._when_answered: list[Callable[[], None]] = []
        self._pending_bytes = 0
        """Of entries, admitted and not durable yet."""
        self.adds_in_progress = MemoryBudget(
            settings.adds_in_progress_bytes_max, patience_s=_IDLE_AFTER_S
        )
        """Frames of adds, until they are answered."""
        self.reads_in_progress = MemoryBudget(
            settings.reads_in_progress_bytes_max,
            patience_s=settings.response_backpressure_timeout_ms / 1000,
        )
        """Records on their way to readers."""
        self.damage_log = DamageLog()
        damaged_entries = DamagedEntries()
        self._fetcher = Fetcher(storage, self._workers, self.damage_log, damaged_entries)
        self._reader = Reader(storage.contents, self._fetcher, damaged_entries)
        self.verifier = Verifier(
            storage.contents, self._fetcher, damaged_entries, self.reads_in_progress
        )
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._checkpoints = CheckpointLoop(
            storage,
            settings,
            self._workers,
            self.space,
            self.measures,
            # The snapshot's bytes are gone: writers that waited for room may go on.
            on_ended=self._look_for_room,
            fail=self.fail,
        )
        self._comparisons = Comparisons(storage.contents, self._fetcher, self._on_compared)
        self.suspicion = asyncio.Lock()
        """For who suspects ledgers: the next call of ``suspect`` undoes what the last one said."""
        self.lac_watch = LacWatch(storage.contents)

    async def start(self) -> None:
        """Start the journal threads and checkpoints."""
        self._journals = tuple(
            self._workers.write_journal(
                journal, self._settings.group_bytes_max, self._on_group_done, self._on_group_failed
            )
            for journal in self.storage.journals
        )
        self.measures.limbo_count = len(self.ledgers_in_limbo())
        # Sealed, it writes nothing, and so has nothing to write behind.
        if not self.space.is_sealed:
            self._checkpoints.start()

    async def stop(self) -> None:
        """Write what was admitted, checkpoint, and close the files."""
        self.lac_watch.close()
        # A checkpoint under way goes on in its thread; ``finish`` waits for it.
        await self._checkpoints.stop()
        for journal in self._journals:
            await journal.stop()
        # The journals have ended: nothing changes the contents while a worker's thread checkpoints.
        await self._workers.finish(self._write_last_checkpoint)
        self.storage.close()

    def fail(self, error: Exception) -> None:
        """Make the bookie stop; of several errors the first is reported."""
        if not self.failed.done():
            self.failed.set_result(error)

    # -- writing ----------------------------------------------------------------------------------

    def add(self, section: Section, to: ReplyTo, client: str = "") -> None:
        """Admit a section; ``to`` gets OK once its entries are durable, or why they will not be."""
        try:
            self._run(self._admission.add(section, to, client))
        except Exception:  # unanswered, it would end the stream of all the client's writers
            _LOGGER.exception("add. ledger_id=%d", section.ledger_id)
            to(Status.UNKNOWN)

    @property
    def pending_count(self) -> int:
        """Adds, fences and deletions that are not durable yet."""
        return self._admission.pending_count

    @property
    def has_room(self) -> bool:
        """Whether the write cache may take another frame."""
        return self._room.is_set()

    async def wait_for_room(self) -> None:
        """Wait until the write cache may take another frame."""
        await self._room.wait()

    def call_when_answered(self, call: Callable[[], None]) -> None:
        """Call it when all adds are answered that can be now."""
        if self._is_applying:
            self._when_answered.append(call)
        else:
            self._loop.call_soon(call)

    async def wait_until_settled(self) -> None:
        """Wait until everything admitted is durable."""
        await self._idle.wait()

    async def settle(self, ledger_id: int) -> Status:
        """OK once all that was admitted of the ledger is durable."""
        return await self._decide(partial(self._admission.settle, ledger_id))

    async def fence(self, ledger_id: int, master_key: bytes) -> Status:
        """Fence a ledger; OK means that the fence is durable."""
        return await self._decide(partial(self._admission.fence, ledger_id, master_key))

    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        """Remember an explicit LAC packet; it is a hint, so no answer waits for a sync."""
        decide = partial(self._admission.set_explicit_lac, ledger_id, master_key, packet)
        return await self._decide(decide)

    # -- reading ----------------------------------------------------------------------------------

    async def read(self, request: ReadRequest, room: Room | None = None) -> StoredReply:
        """Return the wanted entries, and a status for each id that is not among them.

        A fencing read returns nothing, absence included, before the fence is durable. What the
        records take of memory is put into ``room``, which is the caller's.
        """
        ledger_id = request.ledger_id
        if request.is_fencing:
            status = await self.fence(ledger_id, request.master_key)
            if status is not Status.OK:
                missing = IdRange(request.first_entry, request.last_entry, status)
                return StoredReply((), (missing,), -1)
        # An entry on its way to the disk is neither here nor absent: wait for its group. Behind
        # the fence, since from then on no more ordinary adds get on that way.
        if self._admission.is_pending(ledger_id, request.first_entry, request.last_entry):
            await self.settle(ledger_id)
        return await self._reader.read(request, room)

    async def read_lac(self, request: ReadLacRequest, room: Room | None = None) -> ReadLacReply:
        """Return the highest entry and the explicit LAC; if it ``is_fencing`` fence durably before.

        A ``long_poll`` waits for news and returns the new entries as well; see bookie.proto. ``room``
        as in a read; nothing of it is taken while fence or news are waited for.
        """
        poll = request.long_poll
        if poll is not None:
            if not await self.lac_watch.wait(request.ledger_id, poll.previous_lac, poll.timeout_ms):
                return ReadLacReply(Status.BUSY)
            return await self._reader.read_news(request.ledger_id, poll, room)
        if request.is_fencing:
            status = await self.fence(request.ledger_id, request.master_key)
            if status is not Status.OK:
                return ReadLacReply(status)
        return await self._reader.read_lac(request.ledger_id, room)

    def list_entries(self, request: ListRequest) -> EntryList:
        """List stored entries, a page at a time; UNKNOWN when some may be missing from the list."""
        return self._reader.list_entries(request)

    # -- limbo ------------------------------------------------------------------------------------

    def ledgers_in_limbo(self) -> Sequence[int]:
        """The ledgers of which entries, or a fence, may have been lost here."""
        return [each for each, handle in self._contents.ledgers.items() if handle.is_limbo]

    def end_limbo(self, ledger_id: int, *, may_deny: bool) -> None:
        """The ledger is closed, and its entries are here: from now on it may deny what it has not, if ``may_deny``.

        Lost with a crash before the next checkpoint, for which limbo is only longer.
        """
        self._contents.end_limbo(ledger_id, may_deny=may_deny)

    # -- deleting ---------------------------------------------------------------------------------

    @property
    def held_ledgers(self) -> Sequence[int]:
        """The ledgers of which anything is stored here, in no order."""
        return tuple(self._contents.ledgers)

    def is_deleted(self, ledger_id: int) -> bool:
        """Whether the ledger was deleted here."""
        return ledger_id in self._contents.tombstones

    def holds_entries(self, ledger_id: int) -> bool:
        """Whether any entry of the ledger is stored here."""
        return self._contents.last_entry(ledger_id) is not None

    async def suspect(self, ledger_ids: Iterable[int]) -> None:
        """Take no adds of these ledgers, and of no others, until the next call; returns once all
        that was admitted of them is durable."""
        for ledger_id in self._admission.suspect(ledger_ids):
            await self.settle(ledger_id)

    async def delete(self, ranges: Sequence[tuple[int, int]]) -> Status:
        """Delete ledgers for good, by ranges of their ids; OK means that this is durable.

        READ_ONLY: there is no room even for that; try again.
        """
        if not self.space.may_delete:
            return Status.READ_ONLY
        return await self._decide(partial(self._admission.delete, ranges))

    async def drop(self, ledger_id: int) -> Status:
        """Forget what is stored of a closed ledger that is suspected, and fence it; OK means that this is durable.

        READ_ONLY: there is no room even for that. BUSY: not everything of it is in entry logs yet.
        """
        if not self.space.may_delete:
            return Status.READ_ONLY
        if not (self.holds_entries(ledger_id) and self._contents.may_drop(ledger_id)):
            return Status.BUSY
        status = await self._decide(partial(self._admission.drop, ledger_id))
        if status is Status.OK:
            self.verifier.forget(ledger_id)
        return status

    def known_between(self, first: int, last: int) -> set[int]:
        """The ledgers among these ids of which anything is stored here, or on its way to be."""
        known = within(first, last, self._contents.ledgers)
        return {*known, *within(first, last, self._admission.unsettled_ledgers)}

    # -- carrying out effects -----------------------------------------------------------------------

    def _run(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(to, status):
                    to(status)
                case Persist():
                    size = effect.size_bytes
                    self._pending_bytes += size
                    self.space.promise(size + REQUEST_SIZE)
                    self._idle.clear()
                    journal = self._contents.journal_of(effect.ledger_id)
                    self._journals[journal].submit(effect)
                case Remember(ledger_id, packet):
                    self._contents.remember_lac(ledger_id, packet)
                    self.lac_watch.look(ledger_id)
                case Compare():
                    self._comparisons.begin(effect)

    def _on_compared(self, effect: Compare, found: Status | list[Run]) -> None:
        # Without an await in between: what was found to be damaged is so still.
        if effect.run.ledger_id in self._contents.tombstones:
            effect.to(Status.DELETED)
        elif isinstance(found, Status):
            effect.to(found)
        else:
            self._run(self._admission.replace(effect, found))

    def _on_group_done(self, group: Sequence[Persist], position: JournalPosition) -> None:
        try:
            self._apply_group(group, position)
        except Exception as error:  # noqa: BLE001 - memory and disk no longer agree
            self.fail(error)

    def _apply_group(self, group: Sequence[Persist], position: JournalPosition) -> None:
        records = [record for persist in group for record in persist.records]
        # Storage first: whatever admission forgets below it finds there from now on.
        self._contents.apply(records, position)
        for record in records:
            if isinstance(record, Replace):
                self.verifier.on_replaced(record.run)
        # The waiters run later, in tasks of their own, and find the records applied.
        self.lac_watch.on_applied(records)
        self._is_applying = True
        for persist in group:
            effects = self._admission.on_durable(persist.ticket)
            self._run(persist.then)
            self._run(effects)
        self._is_applying = False
        calls, self._when_answered = self._when_answered, []
        for call in calls:
            call()
        self._pending_bytes -= (done_bytes := sum([persist.size_bytes for persist in group]))
        self.space.promise(BLOCK_SIZE + done_bytes // 100)  # whole blocks, and a table of words
        self._look_for_room()
        if not self._admission.pending_count:
            self._idle.set()

    def _on_group_failed(self, group: Sequence[Persist], error: Exception) -> None:
        self.fail(error)
        for persist in group:
            self._run(self._admission.on_failed(persist.ticket))
            # No refusal: the group may be on disk, and then the next start replays it.
            self._run([Reply(effect.to, Status.UNKNOWN) for effect in persist.then])

    async def _decide(self, decide: Callable[[ReplyTo], Sequence[Effect]]) -> Status:
        """Carry out what admission decides, and wait for its answer."""
        answer: asyncio.Future[Status] = self._loop.create_future()
        self._run(decide(partial(settle, answer)))  # the caller may have gone away by the answer
        return await answer

    # -- room in memory and on the disks ---------------------------------------------------------------

    def begin_look(self) -> Look:
        """Call this before the disks are asked how much is free; see ``on_look``."""
        return self.space.begin_look(
            unjournalled_bytes=self._pending_bytes,
            unlogged_bytes=self._pending_bytes + self._contents.cached_bytes,
        )

    def on_look(self, look: Look, disks: Sequence[Disk]) -> None:
        """Decide anew what to take, from what a look at the disks found."""
        self.space.on_look(look, disks)
        self._look_for_room()

    def set_readonly_by_hand(self, is_wanted: bool) -> None:
        """Take no new entries, or take them again, whatever the disks say; recoveries may go on."""
        self.space.is_readonly_by_hand = is_wanted

    def _look_for_room(self) -> None:
        # On a full disk nobody waits for a checkpoint: adds are refused at once, and cost nothing.
        is_full = self.space.mode >= Mode.FULL
        if is_full or self._contents.cached_bytes < self._settings.cached_bytes_max:
            self._room.set()
        else:
            self._room.clear()
        self._checkpoints.look()

    def _write_last_checkpoint(self) -> None:
        """Write the last checkpoint, unless memory cannot be trusted."""
        if not self.failed.done() and not self.space.is_sealed:
            self._checkpoints.write_last()
