"""The writer: the product's ``WriterState``, driven as ``WriteHandle`` and its ensemble changes do.

It appends at its own pace, and then closes, stays, dies, or pauses and goes on as a zombie that
knows nothing of what happened meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVarTuple

from bookie_server.wire.frame_limits import FrameLimits
from bookie_server.wire.messages import Status
from bookie_server.wire.record import encode_lac_packet
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import LedgerMetadata, Stop, Transform, Versioned
from spark_bookkeeper.ledger.errors import (
    AddQuorumTimeoutError,
    LedgerFencedError,
    NotEnoughBookiesError,
)
from spark_bookkeeper.ledger.protocol.events import (
    Acknowledge,
    ChangeEnsemble,
    Effect,
    FailPending,
    Release,
    SendSection,
)
from spark_bookkeeper.ledger.protocol.placement import Replacement, replace_bookies
from spark_bookkeeper.ledger.protocol.transitions import closed_by_writer, put_in_force
from spark_bookkeeper.ledger.protocol.writer_state import WriterState
from tests.simulation.rules.history import Acked, Ended
from tests.simulation.rules.messages import Answer
from tests.simulation.rules.samples import DIGEST, KEY, LEDGER

if TYPE_CHECKING:
    from tests.simulation.rules.model import Model

Ts = TypeVarTuple("Ts")

QUARANTINE_US = 4_000
LOOK_AGAIN_US = 2_500
_LIMITS = FrameLimits(size_bytes_target=2, size_bytes_max=64, in_flight_max=4)


class WriterTwin:
    """The single writer of the ledger."""

    def __init__(self, model: Model, created: Versioned) -> None:
        self.state = WriterState(LEDGER, created.metadata, DIGEST, KEY, _LIMITS)
        self.is_alive = True
        self.is_closing = False
        self.is_closed = False
        """Whether its close has ended, one way or another."""
        self._model = model
        self._heap = model.heap
        self._draw = model.choices.stream("writer")
        self._known = created
        self._quarantined_until_us: dict[str, int] = {}
        self._is_paused = False
        self._backlog: list[Callable[[], None]] = []
        self._knows_end = False
        self._is_looking = False
        self._appended_bytes = 0
        self._released_bytes = 0

    def start(self) -> None:
        """Begin to append, and plan the end."""
        swarm = self._model.swarm
        self._append(swarm.appends)
        match swarm.writer_ends:
            case 2:
                self._heap.after(swarm.writer_ends_us, self._die)
            case 3:
                self._heap.after(swarm.writer_ends_us, self._pause)
            case _:
                return

    @property
    def unfinished(self) -> list[str]:
        """Operations nobody has answered."""
        found: list[str] = []
        if not self.is_alive:
            return found
        if self.state.error is None and not self.state.is_settled:
            found.append(f"append of entry {self.state.last_add_confirmed + 1}")
        elif self._released_bytes != self._appended_bytes and self.state.error is not None:
            found.append(f"release of {self._appended_bytes - self._released_bytes} bytes")
        if self.is_closing and not self.is_closed:
            found.append("close")
        return found

    def wake_up(self) -> None:
        """Go on after a pause, with everything that arrived meanwhile."""
        if not self._is_paused:
            return
        self._is_paused = False
        self._model.note("writer wakes up")
        if self._model.register.committed.metadata.is_closed:
            self._model.marks["zombie wakes up after the close"] += 1
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self._do(action)

    # -- what it does ---------------------------------------------------------------------------

    def _append(self, left: int) -> None:
        self._do(partial(self._push, left))
        if left > 1:
            self._heap.after(self._model.swarm.append_interval_us, self._append, left - 1)

    def _push(self, left: int) -> None:
        if self.state.error is None and not self.is_closing:
            count = 1 + self._draw.below(2)
            first = self.state.last_add_pushed + 1
            payloads = [bytes([65 + n % 26]) * (1 + n % 3) for n in range(first, first + count)]
            self._appended_bytes += sum(map(len, payloads))
            self._run(self.state.append(payloads))
            timeout_us = self._model.swarm.quorum_timeout_us
            if timeout_us:
                self._later(timeout_us, self._end_if_pending, self.state.last_add_pushed)
        if left == 1 and self._model.swarm.writer_ends == 0:
            self.close()

    def _end_if_pending(self, entry_id: int) -> None:
        if self.state.error is None and self.state.last_add_confirmed < entry_id:
            self._model.marks["writer gives up waiting"] += 1
            self._run(self.state.end(AddQuorumTimeoutError(LEDGER, 1)))

    def close(self) -> None:
        """Take no more, wait for what is in flight, then close at the last acknowledged entry."""
        if not self.is_closing:
            self.state.seal()
            self.is_closing = True
            self._close_if_settled()

    def _die(self) -> None:
        self.is_alive = False
        self._model.note("writer dies")

    def _pause(self) -> None:
        self._is_paused = True
        self._model.note("writer pauses")
        self._heap.after(500 + self._draw.below(12_000), self.wake_up)

    def _do(self, action: Callable[[], None]) -> None:
        """Do it now, after the pause, or never."""
        if not self.is_alive:
            return
        if self._is_paused:
            self._backlog.append(action)
        else:
            action()

    def _later(self, delay_us: int, action: Callable[[*Ts], None], *arguments: *Ts) -> None:
        self._heap.after(delay_us, self._do, partial(action, *arguments))

    def _update(
        self,
        transform: Transform[BookKeeperError],
        then: Callable[[Versioned | Stop[BookKeeperError]], None],
    ) -> None:
        register = self._model.register
        register.update("writer", self._known, transform, lambda o: self._do(partial(then, o)))

    # -- effects ------------------------------------------------------------------------------

    def _run(self, effects: list[Effect]) -> None:
        model = self._model
        for effect in effects:
            model.note_effect(effect)
            match effect:
                case SendSection():
                    section = model.section_of(effect.section.data)
                    answered = partial(self._answered, effect)
                    model.network.call("writer", effect.bookie_id, section, answered)
                case Acknowledge(last_entry):
                    self._acknowledged(last_entry)
                case ChangeEnsemble():
                    self._begin_change(effect)
                case FailPending(error):
                    self._failed(error)
                case Release(size_bytes):
                    self._released_bytes += size_bytes
        if self.is_closing:
            self._close_if_settled()

    def _answered(self, sent: SendSection, answer: Answer) -> None:
        assert isinstance(answer, Status)
        self._do(partial(self._take_answer, sent, answer))

    def _take_answer(self, sent: SendSection, status: Status) -> None:
        state, marks = self.state, self._model.marks
        is_current = state.ensemble[sent.position] == sent.bookie_id
        if status is Status.FENCED and sent.ensemble_number == state._members.number:
            self._knows_end = True
            marks["writer is fenced"] += 1
        if not is_current:
            marks["answer of a bookie replaced since"] += 1
        if status is not Status.OK and sent.run_first_entry <= state.last_add_confirmed:
            marks["failure after the last acknowledgement"] += 1
        if status is not Status.OK and state.is_changing:
            marks["failure during a change"] += 1
        self._run(
            state.on_section_answer(
                sent.position, sent.ensemble_number, sent.run_first_entry, status
            )
        )

    def _acknowledged(self, last_entry: int) -> None:
        model, state = self._model, self.state
        acked = model.history.acked
        for entry_id in range(len(acked), last_entry + 1):
            holders = model.holders(model.register.committed.metadata, entry_id)
            acked.append(Acked(entry_id, holders, model.swarm.ack_quorum, self._knows_end))
        if model.swarm.rest_us:
            self._later(model.swarm.rest_us, self._tell_lac, state.last_add_confirmed)

    def _tell_lac(self, last_entry: int) -> None:
        """Tell the ensemble the LAC if no entry has carried it meanwhile."""
        state = self.state
        if state.error is None and state.last_confirmed_sent < last_entry:
            self._model.marks["explicit LAC told"] += 1
            packet = encode_lac_packet(DIGEST, LEDGER, last_entry)
            for bookie_id in state.ensemble:
                self._model.network.call("writer", bookie_id, packet, lambda _: None)

    def _failed(self, error: BookKeeperError) -> None:
        if isinstance(error, NotEnoughBookiesError):
            self._model.marks["writer runs out of bookies"] += 1
        if isinstance(error, NotEnoughBookiesError | AddQuorumTimeoutError):
            self.is_closing = True  # a writer that was not fenced closes its ledger by itself

    # -- ensemble change ----------------------------------------------------------------------

    def _begin_change(self, change: ChangeEnsemble) -> None:
        now_us = self._heap.now_us
        for bookie_id in change.suspects:
            self._quarantined_until_us[bookie_id] = now_us + QUARANTINE_US
        self._later(150, self._commit_change, change)

    def _replacement(
        self, ensemble: tuple[str, ...], failed: dict[int, str], excluded: frozenset[str]
    ) -> Replacement:
        now_us = self._heap.now_us
        avoided = {b for b, until in self._quarantined_until_us.items() if until > now_us}
        usable = set(self._model.usable_bookies()) - excluded
        usable -= avoided & set(failed.values())  # left alone for a while
        return replace_bookies(ensemble, failed, usable, self._draw, avoided=avoided)

    def _commit_change(self, change: ChangeEnsemble) -> None:
        if self.state.error is not None:
            return
        marks = self._model.marks
        replacement = self._replacement(change.ensemble, dict(change.failed), change.excluded)
        if not replacement.positions:
            marks["nobody to replace a bookie with"] += 1
            self._changed(change.ensemble, ())
            return
        if replacement.ensemble == change.ensemble:
            marks["member returns to its position"] += 1
        if len(replacement.positions) < len(change.failed):
            marks["partial replacement"] += 1

        def transform(metadata: LedgerMetadata) -> LedgerMetadata | Stop[BookKeeperError]:
            return put_in_force(LEDGER, metadata, change.first_entry, replacement.ensemble)

        self._update(transform, partial(self._change_done, replacement))

    def _change_done(
        self, replacement: Replacement, outcome: Versioned | Stop[BookKeeperError]
    ) -> None:
        marks = self._model.marks
        if isinstance(outcome, Stop):
            marks["change of ensemble meets a recovery"] += 1
            self._knows_end = True
            self._run(self.state.end(outcome.reason))
            return
        old, self._known = self._known, outcome
        is_new = len(outcome.metadata.fragments) > len(old.metadata.fragments)
        marks["change of ensemble, new fragment" if is_new else "change of ensemble in place"] += 1
        self._changed(replacement.ensemble, replacement.positions)

    def _changed(self, ensemble: tuple[str, ...], positions: tuple[int, ...]) -> None:
        self._run(self.state.on_ensemble_changed(ensemble, positions))
        if self.state.error is None and self.state.failed_bookies and not self._is_looking:
            self._is_looking = True
            self._heap.after(LOOK_AGAIN_US, self._look)

    def _look(self) -> None:
        self._is_looking = False
        self._do(self._look_now)

    def _look_now(self) -> None:
        state = self.state
        if state.error is not None or not state.failed_bookies or self._model.is_over:
            return
        excluded = state.excluded_bookies
        if self._replacement(state.ensemble, state.failed_bookies, excluded).positions:
            self._model.marks["change tried again later"] += 1
            self._run(state.retry_change())
        else:
            self._is_looking = True
            self._heap.after(LOOK_AGAIN_US, self._look)

    # -- the end ------------------------------------------------------------------------------

    def _close_if_settled(self) -> None:
        state = self.state
        if self.is_closed or not (state.is_settled or state.error is not None):
            return
        self.is_closed = True
        if isinstance(state.error, LedgerFencedError):
            return
        last_entry = state.last_add_confirmed

        def transform(metadata: LedgerMetadata) -> LedgerMetadata | Stop[BookKeeperError]:
            return closed_by_writer(LEDGER, metadata, last_entry, state.length, state.error)

        self.is_closed = False
        self.is_closing = False  # asked for; `_close_done` answers
        self._update(transform, self._close_done)

    def _close_done(self, outcome: Versioned | Stop[BookKeeperError]) -> None:
        self.is_closed = True
        if isinstance(outcome, Stop):
            self._model.marks["close meets a recovery"] += 1
        else:
            self._model.marks["writer closes"] += 1
            self._model.history.ended.append(Ended("writer", outcome.metadata.last_entry))
