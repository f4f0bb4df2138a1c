"""A recoverer: the flow of ``spark_bookkeeper.ledger.recovery``, every verdict the product's.

It is a twin because the product's is a coroutine, and this model has no event loop. What it decides
itself is only what the coroutine reads like: mark, fence, read, write back, close; abort on what
cannot be decided and begin anew, with nothing remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bookie_server.wire.messages import ReadRequest, Section, Status
from bookie_server.wire.record import parse_run
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.model import Fragment, LedgerMetadata, LedgerState, Stop, Versioned
from spark_bookkeeper.ledger.protocol.placement import replace_bookies
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.recovery_rules import (
    BookieAnswer,
    FenceProgress,
    RecoveryWindow,
    first_entry_to_recover,
)
from spark_bookkeeper.ledger.protocol.transitions import closed_by_recovery, marked_in_recovery
from tests.simulation.rules.history import Ended, Judged, ReadBegun
from tests.simulation.rules.messages import (
    Answer,
    FencingLacRequest,
    LacAnswer,
    ReadAnswer,
    Request,
)
from tests.simulation.rules.samples import DIGEST_TYPE, KEY, LEDGER

if TYPE_CHECKING:
    from tests.simulation.rules.model import Model

WINDOW_ENTRIES = 3
_ATTEMPTS_MAX = 4
"""During the chaos; afterwards a recoverer goes on until the ledger is closed."""


class RecovererTwin:
    """One client that wants the ledger closed."""

    def __init__(self, model: Model, name: str, *, is_immortal: bool = False) -> None:
        self.name = name
        self.is_done = False
        self._model = model
        self._heap = model.heap
        self._draw = model.choices.stream(name)
        self._dies = 0 if is_immortal else model.swarm.recoverer_dies
        self._attempts_left = 1_000 if is_immortal else _ATTEMPTS_MAX
        self._attempt = 0
        """Answers of an earlier attempt are nobody's."""

    def start(self) -> None:
        """Begin, or begin anew."""
        if self.is_done:
            return
        self._attempt += 1
        self._model.register.read(self._mark)

    # -- the flow -------------------------------------------------------------------------------

    def _mark(self, versioned: Versioned) -> None:
        if self._is_dead():
            return
        if versioned.metadata.state is LedgerState.IN_RECOVERY:
            self._model.marks["recovery joined"] += 1
        self._model.register.update(self.name, versioned, marked_in_recovery, self._marked)

    def _marked(self, outcome: Versioned | Stop[None]) -> None:
        assert isinstance(outcome, Versioned)
        if self._is_dead():
            return
        if outcome.metadata.is_closed:
            self._finish(outcome)
            return
        self._versioned = outcome
        self._quorum = QuorumConfig.of(outcome.metadata)
        self._start_fragment = outcome.metadata.last_fragment
        self._written_to = outcome.metadata
        self._progress: FenceProgress | None = FenceProgress(self._quorum)
        self._waiting = self._quorum.ensemble_size
        self._has_read = False
        self._is_storing = False
        self._read_ahead: RecoveryWindow | None = None
        for position, bookie_id in enumerate(self._start_fragment.ensemble):
            self._call(bookie_id, FencingLacRequest(), partial(self._fenced, position))

    def _fenced(self, position: int, answer: Answer) -> None:
        progress = self._progress
        if progress is None:
            return
        self._waiting -= 1
        lac = answer if isinstance(answer, LacAnswer) else LacAnswer(Status.UNREACHABLE)
        progress.on_answer(position, lac.status, lac.last_add_confirmed)
        if progress.is_covered:
            self._progress = None
            self._model.moment("recovery covered", None)
            first = self._start_fragment.first_entry
            self._read(first_entry_to_recover(progress.last_add_confirmed, first))
        elif not self._waiting:
            self._model.marks["recovery gives up fencing"] += 1
            self._abort()

    def _read(self, first_entry: int) -> None:
        last_entry = first_entry + WINDOW_ENTRIES - 1
        self._window: RecoveryWindow | None = RecoveryWindow(self._quorum, first_entry, last_entry)
        self._answers: dict[int, ReadAnswer] = {}
        self._waiting = self._quorum.ensemble_size
        if not self._has_read:
            self._has_read = True
            is_covered = self._model.is_fenced_off(self._versioned.metadata)
            self._model.history.reads_begun.append(ReadBegun(self.name, is_covered))
        self._asked = self._start_fragment.ensemble
        for position, bookie_id in enumerate(self._asked):
            stripe = Stripe(self._quorum.ensemble_size, self._quorum.write_quorum, position)
            request = ReadRequest(
                ledger_id=LEDGER,
                first_entry=first_entry,
                last_entry=last_entry,
                stripe=stripe if self._quorum.is_striped else None,
                is_fencing=True,
                master_key=KEY,
            )
            window = self._window
            self._call(bookie_id, request, partial(self._heard, window, position))

    def _heard(self, window: RecoveryWindow, position: int, answer: Answer) -> None:
        if self._window is not window:
            return
        self._waiting -= 1
        said = answer if isinstance(answer, ReadAnswer) else ReadAnswer({}, ())
        self._answers[position] = said
        window.on_answer(position, BookieAnswer(said.copies, frozenset(), said.missing))
        if not window.is_decided and self._waiting:
            return
        self._window = None
        if not window.is_decided and not window.found:
            self._model.marks["recovery aborts on what it cannot decide"] += 1
            self._abort()
            return
        if window.ends_ledger:
            self._judged(window.next_entry)
        if window.found and self._waiting:
            self._model.marks["entry decided before everybody answered"] += 1
        if self._is_storing:
            self._model.marks["window read while one is written back"] += 1
            self._read_ahead = window
        else:
            self._take(window)

    def _take(self, window: RecoveryWindow) -> None:
        """Write back what a window found, and read the next one meanwhile."""
        self._read_ahead = None
        self._is_storing = True
        if not window.ends_ledger:
            self._read(window.next_entry)
        self._store(window)

    def _judged(self, entry_id: int) -> None:
        deniers = fenced = 0
        for position in self._quorum.write_set(entry_id):
            answer, bookie_id = self._answers.get(position), self._asked[position]
            if answer is None or self._start_fragment.ensemble[position] != bookie_id:
                continue
            said = [p for p in answer.missing if p.first_entry <= entry_id <= p.last_entry]
            if any(part.status in (Status.NO_ENTRY, Status.NO_LEDGER) for part in said):
                deniers += 1
                fenced += answer.is_fenced
        config = self._model.swarm
        needed = config.write_quorum - config.ack_quorum + 1
        self._model.history.judged.append(Judged(self.name, entry_id, deniers, fenced, needed))
        behind = [a for a in self._answers.values() if any(e > entry_id for e in a.copies)]
        self._model.marks["entries behind a gap given up"] += bool(behind)

    # -- write-back -----------------------------------------------------------------------------

    def _store(self, window: RecoveryWindow) -> None:
        if not window.found:
            self._stored(window)
            return
        self._stored_at: set[int] = set()
        self._failed_at: dict[int, str] = {}
        self._refused: set[str] = set()
        self._chunk = window.found
        self._pending_window = window
        self._send(range(self._quorum.ensemble_size))

    def _send(self, positions: range | tuple[int, ...]) -> None:
        ensemble = self._written_to.last_fragment.ensemble
        for position in positions:
            mine = [e for e in self._chunk if position in self._quorum.write_set(e.first_entry)]
            if mine:
                run = parse_run(b"".join(bytes(entry.data) for entry in mine))
                section = Section(LEDGER, KEY, True, DIGEST_TYPE, run)
                answered = partial(self._wrote, self._pending_window, position)
                self._call(ensemble[position], section, answered)

    def _wrote(self, window: RecoveryWindow, position: int, answer: Answer) -> None:
        if self._pending_window is not window:
            return
        if answer is Status.OK:
            self._stored_at.add(position)
        else:
            self._failed_at[position] = self._written_to.last_fragment.ensemble[position]
            self._refused.add(self._failed_at[position])
        first, last = self._chunk[0].first_entry, self._chunk[-1].last_entry
        if self._quorum.can_acknowledge(self._stored_at, first, last):
            self._pending_window = _NOBODYS
            self._model.marks["entries written back"] += 1
            self._stored(window)
            return
        usable = set(range(self._quorum.ensemble_size)).difference(self._failed_at)
        if not self._quorum.can_acknowledge(usable, first, last):
            self._replace(first)

    def _replace(self, first_entry: int) -> None:
        ensemble = self._written_to.last_fragment.ensemble
        failed = self._failed_at
        usable = set(self._model.usable_bookies()) - self._refused
        replacement = replace_bookies(ensemble, failed, usable, self._draw)
        if not replacement.positions:
            self._model.marks["recovery finds nobody to write back to"] += 1
            self._pending_window = _NOBODYS
            self._abort()
            return
        self._model.marks["recovery writes back to another bookie"] += 1
        for position in replacement.positions:
            del failed[position]
        self._written_to = self._written_to.with_ensemble(first_entry, replacement.ensemble)
        self._send(replacement.positions)

    def _stored(self, window: RecoveryWindow) -> None:
        self._is_storing = False
        if window.ends_ledger:
            self._close(window.next_entry - 1)
        elif self._read_ahead is not None:
            self._take(self._read_ahead)

    # -- the end ------------------------------------------------------------------------------

    def _close(self, last_entry: int) -> None:
        first = self._start_fragment.first_entry
        written_to = tuple(f for f in self._written_to.fragments if f.first_entry >= first)

        def transform(metadata: LedgerMetadata) -> LedgerMetadata | Stop[Fragment]:
            return closed_by_recovery(metadata, self._start_fragment, written_to, last_entry, 0)

        done = partial(self._close_done, last_entry)
        self._model.register.update(self.name, self._versioned, transform, done)

    def _close_done(self, last_entry: int, outcome: Versioned | Stop[Fragment]) -> None:
        if self._is_dead():
            return
        if isinstance(outcome, Stop):
            self._model.marks["recovery begins anew on a moved fragment"] += 1
            self._abort()
            return
        if outcome.metadata.last_entry != last_entry:
            self._model.marks["recoverer adopts another end"] += 1
        self._finish(outcome)

    def _finish(self, outcome: Versioned) -> None:
        self.is_done = True
        self._model.history.ended.append(Ended(self.name, outcome.metadata.last_entry))

    def _abort(self) -> None:
        self._attempt += 1  # a window read ahead may fail as well: one end is enough
        self._attempts_left -= 1
        if self._attempts_left:
            # Jitter: recoverers in lock-step would go on disturbing each other.
            self._heap.after(800 + self._draw.below(2_000), self._begin_anew)
        else:
            self.is_done = True

    def _begin_anew(self) -> None:
        if not self._is_dead():
            self.start()

    def _is_dead(self) -> bool:
        odds = 0 if self.is_done or self._model.network.is_healed else self._dies
        if self._draw.one_in(odds):
            self._model.marks["recoverer dies"] += 1
            self.is_done = True
        return self.is_done

    def _call(self, bookie_id: str, request: Request, then: Callable[[Answer], None]) -> None:
        attempt = self._attempt

        def answered(answer: Answer) -> None:
            if attempt == self._attempt and not self._is_dead():
                then(answer)

        self._model.network.call(self.name, bookie_id, request, answered)


_NOBODYS = RecoveryWindow(QuorumConfig(1, 1, 1), 0, 0)
"""What a write-back waits for when it waits for nobody."""
