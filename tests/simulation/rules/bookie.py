"""A bookie: the product's admission and verdicts over a disk that forgets what was not synced.

The twin is what surrounds them in ``bookie_server.bookie``: one journal that syncs in groups, a
dictionary for storage, fencing before every answer of a fencing request. A power cut loses what was
not synced and, restarted, the bookie knows what its facts' encoding kept. Media that lost something
come back in limbo, as ``bookie_server.integrity.limbo`` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bookie_server.core.absence import status_of, status_of_absence
from bookie_server.core.admission import Admission
from bookie_server.core.effects import Compare, Effect, Persist, Remember, Reply
from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.presence import Presence
from bookie_server.core.records import Add, ExplicitLac, Fence, MasterKey
from bookie_server.core.same_entries import same_entries
from bookie_server.integrity.limbo import state_after_loss
from bookie_server.storage.index.handle_state import decode_handle_state, encode_handle_state
from bookie_server.wire.messages import IdRange, ReadRequest, Section, Status
from bookie_server.wire.record import Run, parse_header
from tests.simulation.rules.history import Answered, Denied, Hinted, Refused, Stored
from tests.simulation.rules.messages import (
    Answer,
    FencingLacRequest,
    LacAnswer,
    ReadAnswer,
    Request,
    lac_of,
)
from tests.simulation.rules.samples import KEY, LEDGER

if TYPE_CHECKING:
    from tests.simulation.rules.model import Model
    from tests.simulation.rules.network import Call


class BookieTwin:
    """One bookie over all its incarnations. It is also what its admission sees as durable state."""

    def __init__(self, model: Model, bookie_id: str) -> None:
        self.bookie_id = bookie_id
        self.is_up = True
        self.calls: list[Call] = []
        """Arrived and not answered."""
        self.ledgers: dict[int, LedgerHandleState] = {}
        self.tombstones: frozenset[int] = frozenset()
        self.entries: dict[int, Run] = {}
        """On disk."""
        self.damaged: set[int] = set()
        self.ever_stored: set[int] = set()
        """By any incarnation, whatever became of it."""
        self.was_shut = False
        """By a fence on disk or by limbo, whatever became of it: no add of the writer may be stored."""
        self.was_asked_to_fence = False
        self.was_named_when_wiped = True
        self._model = model
        self._heap = model.heap
        self._draw = model.choices.stream(f"bookie {bookie_id}")
        self._admission = Admission(self)
        self._incarnation = 0
        self._is_recovery: dict[int, bool] = {}
        """By ticket of an add."""
        self._synced_hint: bytes | None = None
        self._queue: list[Persist] = []
        self._syncing: list[Persist] = []

    @property
    def facts(self) -> LedgerHandleState | None:
        return self.ledgers.get(LEDGER)

    @property
    def is_fenced(self) -> bool:
        """On disk."""
        return self.facts is not None and self.facts.is_fenced

    @property
    def is_shut(self) -> bool:
        """Whether it takes no add of the writer: fenced on disk, or in limbo, where a fence may be lost."""
        return self.is_fenced or (self.facts is not None and self.facts.is_limbo)

    def missing(self, run: Run) -> list[Run]:
        """The parts of a run that are not on disk."""
        held = self.entries
        if not any(entry_id in held for entry_id in run.entry_ids):
            return [run]
        return [run.slice(i, i + 1) for i, e in enumerate(run.entry_ids) if e not in held]

    # -- requests -----------------------------------------------------------------------------

    def handle(self, request: Request, answer: Callable[[Answer], None]) -> None:
        """Serve one request; ``answer`` is called at most once, and not after a power cut."""
        incarnation = self._incarnation

        def reply(what: Answer) -> None:
            if self._incarnation == incarnation:
                answer(what)

        match request:
            case Section():
                self._add(request, reply)
            case ReadRequest():
                self._read(request, reply)
            case bytes():
                self._run(self._admission.set_explicit_lac(LEDGER, KEY, request, reply))
            case FencingLacRequest():
                self._fence(lambda status: reply(self._lac(status)))

    def _add(self, section: Section, reply: Callable[[Answer], None]) -> None:
        model = self._model
        swarm = model.swarm
        if swarm.read_only and not model.network.is_healed and self._draw.one_in(swarm.read_only):
            model.marks["read-only"] += 1
            reply(Status.READ_ONLY)
            return

        def told(status: Status) -> None:
            if status is Status.OK:
                is_durable = all(e in self.entries for e in section.run.entry_ids)
                model.history.answered.append(Answered(self.bookie_id, "add", is_durable))
                model.moment("add answered", self)
            elif status is Status.LIMBO:
                model.marks["add refused in limbo"] += 1
            elif status is Status.FENCED:
                model.history.refused.append(Refused(self.bookie_id, self.was_asked_to_fence))
                model.marks["late add refused by a fence"] += 1
                if not self.is_fenced:
                    model.marks["add refused by a fence not yet durable"] += 1
            reply(status)

        effects = self._admission.add(section, told)
        for effect in effects:
            if isinstance(effect, Persist):
                self._is_recovery[effect.ticket] = section.is_recovery
                model.moment("add admitted", self)
        if not effects:
            model.marks["duplicate add waits"] += 1
        self._run(effects)

    def _fence(self, done: Callable[[Status], None]) -> None:
        model = self._model
        self.was_asked_to_fence = True
        if self.facts is None:
            model.marks["fence of an unknown ledger"] += 1

        def told(status: Status) -> None:
            if status is Status.OK:
                model.history.answered.append(Answered(self.bookie_id, "fence", self.is_fenced))
                model.moment("fence answered", self)
            done(status)

        effects = self._admission.fence(LEDGER, KEY, told)
        if any(isinstance(effect, Persist) for effect in effects):
            model.moment("fence admitted", self)
        elif not effects:
            model.marks["repeated fence waits"] += 1
        self._run(effects)

    def _lac(self, status: Status) -> LacAnswer:
        if status is not Status.OK:
            return LacAnswer(status)
        absence = status_of_absence(self.facts, is_storage_damaged=False)
        if absence is Status.UNKNOWN:
            return LacAnswer(Status.UNKNOWN)
        packet = None if self.facts is None else self.facts.explicit_lac
        hint = -1 if packet is None else lac_of(packet)
        if not self.entries:
            return LacAnswer(absence if packet is None else Status.OK, hint)
        newest = self.entries[max(self.entries)]
        if newest.first_entry in self.damaged:
            return LacAnswer(Status.UNKNOWN)
        carried = newest.last_add_confirmed()
        self._model.marks["explicit LAC says more than entries"] += hint > carried
        return LacAnswer(Status.OK, max(hint, carried))

    def _read(self, request: ReadRequest, reply: Callable[[Answer], None]) -> None:
        arrived = self._pending_ids()  # what is admitted later, the answer need not know

        def fenced(status: Status) -> None:
            if status is not Status.OK:
                missing = IdRange(request.first_entry, request.last_entry, status)
                reply(ReadAnswer({}, (missing,)))
            elif self._admission.is_pending(LEDGER, request.first_entry, request.last_entry):
                self._model.marks["read waits for what is pending"] += 1
                settled = self._admission.settle(
                    LEDGER, lambda _: reply(self._found(request, arrived))
                )
                self._run(settled)
            else:
                reply(self._found(request, arrived))

        if request.is_fencing:
            self._fence(fenced)
        else:
            fenced(Status.OK)

    def _found(self, request: ReadRequest, pending: set[int]) -> ReadAnswer:
        absence = status_of_absence(self.facts, is_storage_damaged=False)
        copies: dict[int, Run] = {}
        missing: list[IdRange] = []
        for entry_id in range(request.first_entry, request.last_entry + 1):
            if request.stripe is not None and not request.stripe.wants(entry_id):
                continue
            if entry_id in self.entries and entry_id not in self.damaged:
                copies[entry_id] = self.entries[entry_id]
                continue
            presence = Presence.DAMAGED if entry_id in self.damaged else Presence.ABSENT
            status = status_of(presence, absence)
            if status.is_evidence_of_absence:
                self._denies(entry_id, pending)
            elif status is Status.UNKNOWN:
                self._model.marks[f"unknown because {presence.value}"] += 1
            missing.append(IdRange(entry_id, entry_id, status))
        return ReadAnswer(copies, tuple(missing), self.is_fenced)

    def _denies(self, entry_id: int, pending: set[int]) -> None:
        # A disk that was wiped before the metadata named this bookie is nobody's evidence.
        had = entry_id in pending or (entry_id in self.ever_stored and self.was_named_when_wiped)
        self._model.history.denied.append(Denied(self.bookie_id, entry_id, had))
        self._model.moment("negative answered", self)

    def _pending_ids(self) -> set[int]:
        return {
            entry_id
            for persist in (*self._syncing, *self._queue)
            for record in persist.records
            if isinstance(record, Add)
            for entry_id in record.run.entry_ids
        }

    # -- effects and the disk -----------------------------------------------------------------

    def _run(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(to, status):
                    to(status)
                case Compare():
                    effect.to(self._compare(effect))
                case Persist():
                    self._queue.append(effect)
                    if not self._syncing:
                        self._sync()
                case Remember(_, packet):
                    self._hinted(packet)

    def _compare(self, effect: Compare) -> Status:
        ids = effect.run.entry_ids
        if any(e in self.damaged or e not in self.entries for e in ids):
            return Status.UNKNOWN
        stored = (self.entries[entry_id] for entry_id in ids)
        same = all(same_entries(effect.run, run, effect.digest_size) for run in stored)
        return Status.OK if same else Status.CONFLICT

    def _sync(self) -> None:
        self._syncing, self._queue = self._queue, []
        drawn = self._draw.below(16)
        delay_us = self._model.swarm.sync_us * (1 if drawn < 12 else drawn - 10)
        self._heap.after(delay_us, self._synced, self._incarnation)

    def _synced(self, incarnation: int) -> None:
        if incarnation != self._incarnation:
            return
        group = self._syncing
        self._apply(group)
        for persist in group:
            effects = self._admission.on_durable(persist.ticket)
            self._run(persist.then)
            self._run(effects)
        self._syncing = []
        if self._queue:
            self._sync()

    def _apply(self, group: Sequence[Persist]) -> None:
        for persist in group:
            for record in persist.records:
                facts = self.ledgers.setdefault(LEDGER, LedgerHandleState())
                match record:
                    case Add(run):
                        self._store(run, self._is_recovery.get(persist.ticket, False))
                    case MasterKey(_, key):
                        facts.master_key = key
                    case Fence():
                        facts.is_fenced = self.was_shut = True
                        self._model.moment("fence durable", self)
                    case ExplicitLac(_, packet):
                        self._synced_hint = packet
                        self._hinted(packet)
                    case _:
                        raise AssertionError("no other record is written here")

    def _store(self, run: Run, is_recovery: bool) -> None:
        model = self._model
        for index, entry_id in enumerate(run.entry_ids):
            one = run.slice(index, index + 1)
            lac = parse_header(one.data, one.offsets[0]).last_add_confirmed
            confirmed = model.writer.state.last_add_confirmed
            is_as_written = bytes(one.data) == model.written[entry_id]
            how = is_recovery, self.was_shut, lac, confirmed, is_as_written
            model.history.stored.append(Stored(self.bookie_id, entry_id, *how))
            self.entries[entry_id] = one
            self.ever_stored.add(entry_id)

    def _hinted(self, packet: bytes) -> None:
        """Keep the greatest LAC told; until a checkpoint in memory only, unless it was journalled."""
        facts = self.facts
        assert facts is not None
        told = lac_of(packet)
        confirmed = self._model.writer.state.last_add_confirmed
        self._model.history.hinted.append(Hinted(self.bookie_id, told, confirmed))
        if facts.explicit_lac is None or lac_of(facts.explicit_lac) < told:
            facts.explicit_lac = packet

    # -- faults -------------------------------------------------------------------------------

    def power_cut(self, down_us: int) -> None:
        """Lose what is not on disk, and come back after ``down_us``."""
        if not self.is_up:
            return
        model = self._model
        pending = [record for p in (*self._syncing, *self._queue) for record in p.records]
        if any(isinstance(record, Fence) for record in pending):
            model.marks["power cut before a fence was durable"] += 1
        if self._syncing and self._draw.one_in(3):
            model.marks["power cut between sync and answer"] += 1
            self._apply(self._syncing)
        elif pending:
            model.marks["power cut loses what was not synced"] += 1
        self._incarnation += 1
        self.is_up = False
        self._queue, self._syncing, self._is_recovery = [], [], {}
        calls, self.calls = self.calls, []
        model.network.bookie_went_down(calls)
        model.note(f"{self.bookie_id} loses its power")
        self._heap.after(down_us, self.restart)

    def restart(self) -> None:
        """Come back with what is on disk."""
        if self.is_up:
            return
        if self.facts is not None:
            if self.facts.explicit_lac is not None and self._draw.below(2):
                self.facts.explicit_lac = self._synced_hint
            self.ledgers = {LEDGER: decode_handle_state(encode_handle_state(self.facts))}
        self._admission = Admission(self)
        self.is_up = True
        self._model.note(f"{self.bookie_id} is back")
        self._model.moment("restarted", self)

    def lose_media(self, is_whole: bool) -> None:
        """Lose the disk, or the copies of some entries; a lost disk comes back in limbo."""
        model = self._model
        # Damaged copies cannot be written again in place: that needs somebody to replace them.
        if not is_whole and model.swarm.spares >= model.swarm.media_losses:
            model.marks["copies damaged"] += 1
            self.damaged |= {e for e in self.entries if self._draw.below(2) == 0}
            return
        model.marks["disk lost"] += 1
        self.power_cut(500)
        self.ledgers, self.entries, self.damaged, self._synced_hint = {}, {}, set(), None
        metadata = model.register.committed.metadata
        facts = state_after_loss(metadata, self.bookie_id)
        # Whoever is not named has nothing that anybody was promised, a fence included.
        self.was_named_when_wiped = self.was_shut = facts is not None
        if facts is not None:
            self.ledgers = {LEDGER: facts}
