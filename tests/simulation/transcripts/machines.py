"""The state machines of writers and bookies, addressed in words; see :mod:`.conversation`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bookie_server.core.admission import Admission
from bookie_server.core.effects import Compare, Persist, Remember, Reply
from bookie_server.core.effects import Effect as BookieEffect
from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.records import Add, Fence, JournalRecord, MasterKey
from bookie_server.wire.frame_limits import FrameLimits
from bookie_server.wire.messages import Section, Status
from bookie_server.wire.packaging import encode_records
from bookie_server.wire.record import Run, parse_run
from spark_bookkeeper.ledger.errors import LedgerFencedError
from spark_bookkeeper.ledger.protocol.events import (
    Acknowledge,
    ChangeEnsemble,
    Effect,
    FailPending,
    Release,
    SendSection,
)
from spark_bookkeeper.ledger.protocol.writer_state import WriterState
from tests.simulation.rules.samples import DIGEST, DIGEST_TYPE, KEY, LEDGER, created
from tests.simulation.transcripts.desk import Desk, Lines, span


class WriterDesk(Desk):
    """One writer's state machine, addressed in words."""

    def __init__(self, words: list[str]) -> None:
        metadata = created(words[0])
        limits = FrameLimits(size_bytes_target=1, in_flight_max=5)
        self._state = WriterState(LEDGER, metadata, DIGEST, KEY, limits)
        self._number = 0
        self._positions = {b: i for i, b in enumerate(self._state.ensemble)}

    def perform(self, name: str, words: list[str]) -> Lines:
        state = self._state
        match name:
            case "append":
                effects = state.append([word.encode() for word in words])
            case "answer":
                effects = self._answer(words)
            case "changed":
                effects = self._changed([] if words == ["nobody"] else words)
            case "retry":
                effects = state.retry_change()
            case "seal":
                state.seal()
                effects = []
            case "end":
                effects = state.end(LedgerFencedError(LEDGER))
            case _:
                raise AssertionError(f"a writer knows no {name}")
        return [self._say(effect) for effect in effects]

    def _answer(self, words: list[str]) -> list[Effect]:
        number = int(words.pop()[1:]) if words[-1].startswith("@") else self._number
        bookie_id, first_entry, status = words
        position = self._positions[bookie_id]
        return self._state.on_section_answer(position, number, int(first_entry), Status[status])

    def _changed(self, ensemble: list[str]) -> list[Effect]:
        before = self._state.ensemble
        members = tuple(bookie_id.rstrip("!") for bookie_id in ensemble) or before
        # "b1!" came back to its own position: it is replaced by itself.
        replaced = [i for i, b in enumerate(members) if b != before[i] or f"{b}!" in ensemble]
        self._number += 1
        self._positions.update({b: i for i, b in enumerate(members)})
        return self._state.on_ensemble_changed(members, replaced)

    def _say(self, effect: Effect) -> str:
        match effect:
            case SendSection():
                section = effect.section
                entries = span(range(section.first_entry, section.last_entry + 1))
                return f"send {effect.bookie_id} entries {entries} @{effect.ensemble_number}"
            case ChangeEnsemble():
                failed = " ".join(f"{p}={b}" for p, b in effect.failed.items())
                needed = ", needed" if effect.is_needed else ""
                excluded = f", excluded {' '.join(sorted(effect.excluded))}" * bool(effect.excluded)
                suspects = " ".join(effect.suspects) or "nobody"
                return (
                    f"change ensemble {' '.join(effect.ensemble)} from entry {effect.first_entry} on: "
                    f"failed {failed}, suspects {suspects}{excluded}{needed}"
                )
            case Acknowledge(last_entry):
                return f"acknowledge up to {last_entry}"
            case FailPending(error):
                return f"fail what is pending: {type(error).__name__}"
            case Release(size_bytes):
                return f"release {size_bytes} bytes"


class BookieDesk(Desk):
    """One bookie's admission over a dictionary, addressed in words."""

    def __init__(self, words: list[str]) -> None:
        self.ledgers: dict[int, LedgerHandleState] = {}
        self.tombstones: frozenset[int] = frozenset()
        self.entries: set[int] = set()
        self._admission = Admission(self)
        self._groups: list[Persist] = []
        self._lines: Lines = []

    def missing(self, run: Run) -> list[Run]:
        """The parts of a run that are not on disk."""
        if not self.entries.intersection(run.entry_ids):
            return [run]
        return [run.slice(i, i + 1) for i, e in enumerate(run.entry_ids) if e not in self.entries]

    def perform(self, name: str, words: list[str]) -> Lines:
        self._lines = []
        match name:
            case "add":
                self._run(self._admission.add(_section(words[1:]), self._teller(words[0])))
            case "recovery":
                section = _section(words[2:], is_recovery=True)
                self._run(self._admission.add(section, self._teller(words[1])))
            case "fence":
                self._run(self._admission.fence(LEDGER, KEY, self._teller(words[0])))
            case "settle":
                self._run(self._admission.settle(LEDGER, self._teller(words[0])))
            case "sync":
                self._sync()
            case "fail":
                self._fail()
            case "pending":
                is_pending = self._admission.is_pending(LEDGER, int(words[0]), int(words[1]))
                self._lines.append("yes" if is_pending else "no")
            case _:
                raise AssertionError(f"a bookie knows no {name}")
        return self._lines

    def _sync(self) -> None:
        group = self._groups.pop(0)
        for record in group.records:
            facts = self.ledgers.setdefault(LEDGER, LedgerHandleState())
            match record:
                case Add(run):
                    self.entries.update(run.entry_ids)
                case MasterKey(_, key):
                    facts.master_key = key
                case Fence():
                    facts.is_fenced = True
                case _:
                    raise AssertionError("no other record is written here")
        effects = self._admission.on_durable(group.ticket)
        self._run(group.then)
        self._run(effects)

    def _fail(self) -> None:
        group = self._groups.pop(0)
        self._run(self._admission.on_failed(group.ticket))
        self._run([Reply(effect.to, Status.UNKNOWN) for effect in group.then])

    def _run(self, effects: Iterable[BookieEffect]) -> None:
        for effect in effects:
            match effect:
                case Reply(to, status):
                    to(status)
                case Compare(run, _, to):
                    self._lines.append(f"compare entries {span(run.entry_ids)} with what is stored")
                    to(Status.OK)
                case Persist():
                    self._groups.append(effect)
                    what = ", ".join(_record(record) for record in effect.records)
                    self._lines.append(f"persist {what}; then answer")
                case Remember():
                    raise AssertionError("nobody sends an explicit LAC here")

    def _teller(self, who: str) -> Callable[[Status], None]:
        return lambda status: self._lines.append(f"tell {who} {status.name}")


def _section(words: list[str], *, is_recovery: bool = False) -> Section:
    ids = [int(word) for word in words]
    payloads = [bytes([65 + entry_id]) for entry_id in ids]
    parts = encode_records(
        DIGEST, LEDGER, ids[0], payloads, last_add_confirmed=-1, length_before=ids[0]
    )
    return Section(LEDGER, KEY, is_recovery, DIGEST_TYPE, parse_run(b"".join(parts)))


def _record(record: JournalRecord) -> str:
    match record:
        case Add(run):
            return f"add {span(run.entry_ids)}"
        case MasterKey():
            return "key"
        case Fence():
            return "fence"
        case _:
            return type(record).__name__
