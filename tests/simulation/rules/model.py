"""One schedule: a ledger, its bookies, writer and recoverers, and everything that befalls them.

Three phases: chaos, in which what the swarm allows goes wrong; heal, in which everything works
again; and liveness, in which a last recoverer must close the ledger. Then the history is completed
with what a reader would find, and the invariants are checked on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from bookie_server.wire.add_frames import parse_frame
from bookie_server.wire.messages import Section
from bookkeeper_metadata.foundation.invariant import InvariantViolation
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.ledger.protocol.events import Acknowledge, ChangeEnsemble, Effect, FailPending
from tests.simulation.kit.choices import Choices, Record
from tests.simulation.kit.quorums import no_ack_quorum_without, write_set
from tests.simulation.rules.bookie import BookieTwin
from tests.simulation.rules.checks import OUTCOMES, RULES, Check, violations
from tests.simulation.rules.heap import EndlessScheduleError, Heap
from tests.simulation.rules.history import Committed, History
from tests.simulation.rules.network import Network
from tests.simulation.rules.recoverer import RecovererTwin
from tests.simulation.rules.register import Register
from tests.simulation.rules.samples import created
from tests.simulation.rules.swarm import CHAOS_US, draw_swarm
from tests.simulation.rules.writer import WriterTwin

CALM_US = 4_000
"""Between healing and the last recoverer."""
LIVENESS_US = 80_000
"""In which it has to close the ledger."""


class Model:
    """Everything of one schedule."""

    def __init__(self, choices: Choices, *, is_traced: bool = False) -> None:
        self.choices = choices
        self.swarm = draw_swarm(choices.stream("swarm"))
        self.heap = Heap()
        self.trace: list[str] | None = [] if is_traced else None
        self.history = History(ack_quorum=self.swarm.ack_quorum)
        self.marks = self.history.marks
        self.written: dict[int, bytes] = {}
        """By entry: the record as its writer sent it."""
        self.is_over = False
        self._sections: dict[bytes, Section] = {}
        self._faults = choices.stream("faults")
        self._crashes_left = self.swarm.crashes
        swarm = self.swarm
        quorum = f"{swarm.ensemble_size}/{swarm.write_quorum}/{swarm.ack_quorum}"
        self.bookies = {b: BookieTwin(self, b) for b in self.swarm.bookie_ids}
        self.network = Network(self)
        self.register = Register(self, created(quorum))
        self.writer = WriterTwin(self, self.register.committed)
        count = self.swarm.recoverers
        self.recoverers = [RecovererTwin(self, f"recoverer{n}") for n in range(count)]

    def run(self) -> None:
        """Let it happen."""
        try:
            self._chaos()
            self._heal()
        except (InvariantViolation, ValueError) as error:
            self.history.failures.append(f"the product stops: {error}")
        except EndlessScheduleError as error:
            self.history.failures.append(str(error))
        self._complete()

    # -- what the parts ask for -----------------------------------------------------------------

    def section_of(self, data: bytes) -> Section:
        """A section as a bookie parses it, once for all bookies."""
        section = self._sections.get(data)
        if section is None:
            (section,) = parse_frame(data)
            self._sections[data] = section
            for index, entry_id in enumerate(section.run.entry_ids):
                self.written.setdefault(entry_id, bytes(section.run.record(index)))
        return section

    def usable_bookies(self) -> list[str]:
        """Who is registered as writable."""
        return [bookie_id for bookie_id, bookie in self.bookies.items() if bookie.is_up]

    def holders(self, metadata: LedgerMetadata, entry_id: int) -> int:
        """How many bookies of the entry's write set have ever had it on disk."""
        return sum(entry_id in bookie.ever_stored for bookie in self._write_set(metadata, entry_id))

    def is_fenced_off(self, metadata: LedgerMetadata) -> bool:
        """Whether every possible ack quorum of the last fragment has a bookie that takes no adds."""
        fenced = {name for name, bookie in self.bookies.items() if bookie.is_shut}
        return no_ack_quorum_without(metadata, fenced)

    def committed(self, commit: Committed) -> None:
        """Note what the register took."""
        self.history.committed.append(commit)
        if self.trace is not None:
            parts = (f"{f.first_entry}:{'+'.join(f.ensemble)}" for f in commit.metadata.fragments)
            state, last_entry = commit.metadata.state.name, commit.metadata.last_entry
            self.note(
                f"{commit.by} commits v{commit.version} {state} {last_entry} {' '.join(parts)}"
            )
        if commit.metadata.is_closed and not self.history.copies_at_close:
            for entry_id in range(commit.metadata.last_entry + 1):
                copies = self.holders(commit.metadata, entry_id)
                self.history.copies_at_close.append((entry_id, copies))

    def moment(self, name: str, bookie: BookieTwin | None) -> None:
        """Something faults may wait for has happened."""
        if self.network.is_healed:
            return
        swarm = self.swarm
        if swarm.release == name:
            self.network.release()
        if swarm.crash_trigger != name or bookie is None or not self._crashes_left:
            return
        if self._faults.one_in(swarm.crash_odds):
            self._crashes_left -= 1
            self.marks[f"power cut when: {name}"] += 1
            self.heap.after(0, bookie.power_cut, 300 + self._faults.below(9_000))

    def note(self, line: str) -> None:
        """Add to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.heap.now_us:>6} {line}")

    def note_effect(self, effect: Effect) -> None:
        """Add what the writer decided to the trace."""
        match effect:
            case Acknowledge(last_entry):
                self.note(f"writer acknowledges up to {last_entry}")
            case ChangeEnsemble():
                failed = ",".join(effect.failed.values())
                self.note(f"writer changes the ensemble from {effect.first_entry} on: {failed}")
            case FailPending(error):
                self.note(f"writer ends: {type(error).__name__}")
            case _:
                return

    # -- phases ---------------------------------------------------------------------------------

    def _chaos(self) -> None:
        swarm, draw = self.swarm, self._faults
        self.writer.start()
        at_us = swarm.recovery_us
        for number, recoverer in enumerate(self.recoverers):
            spread_us = draw.below(swarm.recovery_spread_us + 1) if number else 0
            self.heap.after(at_us + spread_us, recoverer.start)
        ids = swarm.bookie_ids
        for _ in range(swarm.crashes if not swarm.crash_odds else 0):
            bookie = self.bookies[ids[draw.below(len(ids))]]
            self.heap.after(draw.below(12_000), bookie.power_cut, 300 + draw.below(9_000))
        unharmed = list(ids)
        for _ in range(swarm.media_losses):
            bookie = self.bookies[unharmed.pop(draw.below(len(unharmed)))]
            self.heap.after(draw.below(14_000), bookie.lose_media, draw.below(3) != 0)
        self.heap.run_until(CHAOS_US)

    def _heal(self) -> None:
        self.note("everything is healed")
        for bookie in self.bookies.values():
            bookie.restart()
        self.network.heal()
        self.writer.wake_up()
        self.heap.run_until(CHAOS_US + CALM_US)
        last = RecovererTwin(self, "recoverer9", is_immortal=True)
        last.start()
        self.heap.run_until(CHAOS_US + CALM_US + LIVENESS_US, lambda: last.is_done)
        self.is_over = True
        self.heap.run_until(self.heap.now_us + LIVENESS_US)  # whoever waits for a timeout gets it

    def _complete(self) -> None:
        history = self.history
        metadata = self.register.committed.metadata
        history.is_closed = metadata.is_closed
        if not history.failures:
            history.unfinished = tuple(self.writer.unfinished)
        for ack in history.acked:
            copies = self._right_copies(metadata, ack.entry_id)
            history.acked_copies_left.append((ack.entry_id, copies))
        if metadata.is_closed:
            for entry_id in range(metadata.last_entry + 1):
                is_right = self._right_copies(metadata, entry_id) > 0
                history.contents.append((entry_id, is_right))

    def _right_copies(self, metadata: LedgerMetadata, entry_id: int) -> int:
        written = self.written.get(entry_id)
        return sum(
            entry_id in bookie.entries
            and entry_id not in bookie.damaged
            and bytes(bookie.entries[entry_id].data) == written
            for bookie in self._write_set(metadata, entry_id)
        )

    def _write_set(self, metadata: LedgerMetadata, entry_id: int) -> list[BookieTwin]:
        return [self.bookies[name] for name in write_set(metadata, entry_id)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one schedule went."""

    seed: int
    violations: tuple[str, ...]
    history: History
    record: dict[str, list[int]]
    events: int
    trace: tuple[str, ...]

    @property
    def trace_hash(self) -> str:
        """Of everything that happened; empty without a trace."""
        return sha256("\n".join(self.trace).encode()).hexdigest() if self.trace else ""


def run_schedule(
    seed: int,
    *,
    record: Record | None = None,
    is_traced: bool = False,
    checks: tuple[Check, ...] = OUTCOMES + RULES,
) -> Outcome:
    """One schedule, drawn from a seed or replayed from a record of decisions."""
    choices = Choices(seed, record)
    model = Model(choices, is_traced=is_traced)
    model.run()
    found = tuple(violations(model.history, checks))
    trace = tuple(model.trace or ())
    return Outcome(seed, found, model.history, choices.record, model.heap.events, trace)
