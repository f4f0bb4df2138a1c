"""Known bugs of writers, planted in ``WriterState``'s rules and where its driver decides."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from bookie_server.wire.messages import Status
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import LedgerMetadata, LedgerState
from spark_bookkeeper.ledger.explicit_lac import ExplicitLac
from spark_bookkeeper.ledger.protocol.events import (
    Acknowledge,
    ChangeEnsemble,
    Effect,
)
from spark_bookkeeper.ledger.protocol.runs import PendingRun, RunCutter
from spark_bookkeeper.ledger.protocol.transitions import closed_by_writer, put_in_force
from spark_bookkeeper.ledger.protocol.writer_state import WriterState
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.simulation.kit.patching import Mutants, Patch
from tests.simulation.rules.writer import WriterTwin

MUTANTS = Mutants()
mutant = MUTANTS.planted


@mutant("ack_before_meta", "#1591: acks while the metadata names other bookies", "I17", "I1", "I3")
def _ack_before_meta(patch: Patch) -> None:
    patch.method(
        WriterState, "_may_acknowledge", lambda self: self.error is None, source="be22d145"
    )


@mutant("unack_forgotten", "stores of a replaced bookie still count", "I17", "I2", "I3")
def _unack_forgotten(patch: Patch) -> None:
    original = WriterState._adopt

    def adopt(self: WriterState, ensemble: tuple[str, ...], replaced: Collection[int]) -> object:
        stored = [(run, set(run.stored)) for run in self._runs]
        effects = original(self, ensemble, replaced)
        for run, was in stored:
            run.stored |= was
        return effects

    patch.method(WriterState, "_adopt", adopt)


@mutant("pump_inside_unack", "#3005, #3041: the pump runs inside the un-ack loop", "I17", "I2")
def _pump_inside_unack(patch: Patch) -> None:
    def adopt(
        self: WriterState, ensemble: tuple[str, ...], replaced: Collection[int]
    ) -> list[Effect]:
        self.ensemble = ensemble
        self._ensemble_number += 1
        for position in replaced:
            self._failed.pop(position, None)
            self._member_since[position] = self._ensemble_number
        effects: list[Effect] = []
        for run in list(self._runs):
            run.waiting.difference_update(replaced)
            if run.is_acknowledged:
                continue
            run.stored.difference_update(replaced)
            effects += [self._send(run, p) for p in replaced if p in run.sections]
            effects += self._acknowledge()
        return effects

    patch.method(WriterState, "_adopt", adopt, source="4acd5535")


@mutant("cancelling_changes", "#4459: changes that cancel out resend nothing", "L3")
def _cancelling_changes(patch: Patch) -> None:
    original = WriterState._adopt

    def adopt(
        self: WriterState, ensemble: tuple[str, ...], replaced: Collection[int]
    ) -> list[Effect]:
        kept = {p for p in replaced if self.ensemble[p] == ensemble[p]}
        effects = original(self, ensemble, replaced)
        return [e for e in effects if getattr(e, "position", None) not in kept]

    patch.method(WriterState, "_adopt", adopt)


@mutant("only_head_resent", "a change resends the oldest run only", "L3")
def _only_head_resent(patch: Patch) -> None:
    original = WriterState._adopt

    def adopt(
        self: WriterState, ensemble: tuple[str, ...], replaced: Collection[int]
    ) -> list[Effect]:
        effects = original(self, ensemble, replaced)
        firsts = [getattr(e, "run_first_entry", -1) for e in effects]
        return [e for e, first in zip(effects, firsts, strict=True) if first == min(firsts)]

    patch.method(WriterState, "_adopt", adopt)


@mutant("acked_runs_resent_only", "what is not acknowledged is not sent again", "L3")
def _acked_runs_resent_only(patch: Patch) -> None:
    original = WriterState._adopt

    def adopt(
        self: WriterState, ensemble: tuple[str, ...], replaced: Collection[int]
    ) -> list[Effect]:
        original(self, ensemble, replaced)
        acked = [run for run in self._runs if run.is_acknowledged]
        return [self._send(run, p) for run in acked for p in replaced if p in run.sections]

    patch.method(WriterState, "_adopt", adopt)


@mutant("stale_answer_counts", "the answer of a bookie replaced since counts", "I17", "I2")
def _stale_answer_counts(patch: Patch) -> None:
    patch.constant(WriterState, "_is_stale", False)


@mutant("change_start_off_by_one", "a change begins at LAC + 2", "I17", "I3", "I5", "I2", "P")
def _change_start_off_by_one(patch: Patch) -> None:
    original = WriterState._change

    def change(self: WriterState) -> list[Effect]:
        return [
            replace(effect, first_entry=effect.first_entry + 1)
            if isinstance(effect, ChangeEnsemble)
            else effect
            for effect in original(self)
        ]

    patch.method(WriterState, "_change", change)


@mutant("ack_quorum_minus_one", "entries are acknowledged one bookie early", "I17")
def _ack_quorum_minus_one(patch: Patch) -> None:
    def is_complete(self: WriterState, run: PendingRun) -> bool:
        fewer = replace(self.quorum, ack_quorum=max(1, self.quorum.ack_quorum - 1))
        return fewer.can_acknowledge(run.stored, run.first_entry, run.last_entry)

    patch.method(WriterState, "_is_complete", is_complete, source="74013db5")


@mutant("acks_out_of_order", "a complete run is acknowledged past an incomplete one", "I17", "I6")
def _acks_out_of_order(patch: Patch) -> None:
    def acknowledge(self: WriterState) -> list[Effect]:
        confirmed = self.last_add_confirmed
        for run in self._runs:
            if not run.is_acknowledged and self._is_complete(run):
                run.is_acknowledged = True
                self._unacknowledged_runs -= 1
                confirmed, self.length = max(confirmed, run.last_entry), run.length
        if confirmed == self.last_add_confirmed:
            return []
        self.last_add_confirmed = confirmed
        return [Acknowledge(confirmed)]

    patch.method(WriterState, "_acknowledge", acknowledge, source="4aeb985a")


@mutant("fenced_ignored", "a writer that was fenced goes on (F15)", "I20", "L3")
def _fenced_ignored(patch: Patch) -> None:
    original = WriterState._on_bookie_failed

    def bookie_failed(self: WriterState, position: int, status: Status) -> list[Effect]:
        return [] if status is Status.FENCED else original(self, position, status)

    patch.method(WriterState, "_on_bookie_failed", bookie_failed)


@mutant("hopeless_goes_on", "a writer without an ack quorum waits for ever", "L3")
def _hopeless_goes_on(patch: Patch) -> None:
    patch.constant(WriterState, "_can_go_on", True)
    patch.method(WriterState, "retry_change", lambda self: [], source="742641ae")


@mutant("late_failure_forgotten", "a failure during a change is forgotten", "L3")
def _late_failure_forgotten(patch: Patch) -> None:
    original = WriterState._on_bookie_failed

    def bookie_failed(self: WriterState, position: int, status: Status) -> list[Effect]:
        ends = status in (Status.FENCED, Status.UNAUTHORIZED)
        is_lost = self._changing is not None and not ends
        return [] if is_lost else original(self, position, status)

    patch.method(WriterState, "_on_bookie_failed", bookie_failed)


@mutant("lac_ahead_of_acks", "entries carry a LAC that is not confirmed yet", "I7")
def _lac_ahead_of_acks(patch: Patch) -> None:
    original = RunCutter.cut

    def cut(
        self: RunCutter, unacknowledged_runs: int, last_add_confirmed: int
    ) -> PendingRun | None:
        ahead = min(last_add_confirmed + 1, self._next_entry - 1)
        return original(self, unacknowledged_runs, ahead)

    patch.method(RunCutter, "cut", cut)


@mutant(
    "close_beyond_lac", "a writer closes at what it sent", "I3", "I5", where="product and model"
)
def _close_beyond_lac(patch: Patch) -> None:
    patch.method(
        WriterTwin, "end_of_ledger", lambda self: self.state.last_add_pushed, source="c2c65273"
    )
    patch.method(
        WriteHandle,
        "last_add_confirmed",
        property(lambda self: self.last_add_pushed),
        source="7d888174",
    )


@mutant("overwrite_closed", "BOOKKEEPER-584: a close overwrites a recovery's", "I4")
def _overwrite_closed(patch: Patch) -> None:
    def closed(
        ledger_id: int,
        metadata: LedgerMetadata,
        last_entry: int,
        length: int,
        ended: BookKeeperError | None,
    ) -> LedgerMetadata:
        return replace(metadata, state=LedgerState.CLOSED, last_entry=last_entry, length=length)

    patch.function(closed_by_writer, closed, source="4ff12d26")


@mutant("change_despite_recovery", "a writer changes a ledger in recovery", "I19")
def _change_despite_recovery(patch: Patch) -> None:
    original = put_in_force

    def changed(
        ledger_id: int, metadata: LedgerMetadata, first_entry: int, ensemble: tuple[str, ...]
    ) -> object:
        if metadata.state is LedgerState.IN_RECOVERY:
            return metadata.with_ensemble(first_entry, ensemble)
        return original(ledger_id, metadata, first_entry, ensemble)

    patch.function(put_in_force, changed)


@mutant(
    "explicit_lac_ahead", "an explicit LAC is not confirmed yet", "I7", where="product and model"
)
def _explicit_lac_ahead(patch: Patch) -> None:
    original = ExplicitLac.on_acknowledged

    def on_acknowledged(
        self: ExplicitLac, lac: int, ensemble: tuple[str, ...], *, is_settled: bool
    ) -> None:
        original(self, lac + 1, ensemble, is_settled=is_settled)

    patch.method(ExplicitLac, "on_acknowledged", on_acknowledged)
    patch.method(
        WriterTwin, "hint", lambda self: self.state.last_add_confirmed + 1, source="3158b388"
    )
