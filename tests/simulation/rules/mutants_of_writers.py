"""Known bugs of writers, planted in ``WriterState``'s rules and where its driver decides."""

from __future__ import annotations

from spark_bookkeeper.ledger.explicit_lac import ExplicitLac
from spark_bookkeeper.ledger.protocol.membership import Membership
from spark_bookkeeper.ledger.protocol.runs import RunCutter
from spark_bookkeeper.ledger.protocol.transitions import closed_by_writer, put_in_force
from spark_bookkeeper.ledger.protocol.writer_state import WriterState
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.simulation.kit.patching import Mutants, Patch
from tests.simulation.rules.writer import WriterTwin

MUTANTS = Mutants()
mutant = MUTANTS.planted

mutant(
    "ack_before_meta", "#1591: acks while the metadata names other bookies", "I17", "I1", "I3"
).edit(WriterState._may_acknowledge, {" and not self.is_changing": ""})

mutant("unack_forgotten", "stores of a replaced bookie still count", "I17", "I2", "I3").edit(
    WriterState._adopt, {"run.stored.difference_update(replaced)": "pass"}
)

_UNACK = "run.stored.difference_update(replaced)"
_ADOPT = "self._members.adopt(ensemble, replaced)"
_SEND = "[self._send(run, p) for p in replaced if p in run.sections]"
mutant("pump_inside_unack", "#3005, #3041: the pump runs inside the un-ack loop", "I17", "I2").edit(
    WriterState._adopt,
    {
        _ADOPT: f"{_ADOPT}\nsent = []",
        _UNACK: f"{_UNACK}\nsent += {_SEND} + self._acknowledge()",
        "return [": "return sent or [",
    },
)

_KEPT = "kept = {p for p in replaced if self.ensemble[p] == ensemble[p]}"
mutant("cancelling_changes", "#4459: changes that cancel out resend nothing", "L3").edit(
    WriterState._adopt,
    {
        _ADOPT: f"{_KEPT}\n{_ADOPT}",
        "if position in run.sections": "if position in run.sections and position not in kept",
    },
)

_HEAD = "for run in [r for r in self._runs if not r.is_acknowledged][:1]"
mutant("only_head_resent", "a change resends the oldest run only", "L3").edit(
    WriterState._adopt, {"for run in self._runs\nif not run.is_acknowledged": _HEAD}
)

mutant("acked_runs_resent_only", "what is not acknowledged is not sent again", "L3").edit(
    WriterState._adopt, {"if not run.is_acknowledged\n": "if run.is_acknowledged\n"}
)

mutant("stale_answer_counts", "the answer of a bookie replaced since counts", "I17", "I2").edit(
    Membership.is_stale, {"ensemble_number < self._member_since[position]": "False"}
)

mutant("change_start_off_by_one", "a change begins at LAC + 2", "I17", "I3", "I5", "I2", "P").edit(
    WriterState._change, {"last_add_confirmed + 1": "last_add_confirmed + 2"}
)

_FEWER = "max(1, self.quorum.ack_quorum - 1)"
mutant("ack_quorum_minus_one", "entries are acknowledged one bookie early", "I17").edit(
    WriterState._is_complete,
    {">= self.quorum.ack_quorum": f">= {_FEWER}", ".can_acknowledge(": f"._each_holds({_FEWER}, "},
)

mutant(
    "acks_out_of_order", "a complete run is acknowledged past an incomplete one", "I17", "I6"
).edit(
    WriterState._acknowledge,
    {
        "break": "continue",
        "run.first_entry == confirmed + 1": "True",
        "= run.last_entry,": "= max(confirmed, run.last_entry),",
    },
)

mutant("fenced_ignored", "a writer that was fenced goes on (F15)", "I20", "L3").edit(
    WriterState._on_bookie_failed, {"self.end(LedgerFencedError(self.ledger_id))": "[]"}
)


@mutant("hopeless_goes_on", "a writer without an ack quorum waits for ever", "L3")
def _hopeless_goes_on(patch: Patch) -> None:
    patch.constant(Membership, "can_go_on", True)
    patch.constant(WriterState, "retry_change", [])


_GONE = "if not self._members.is_usable(position)"
mutant("late_failure_forgotten", "a failure during a change is forgotten", "L3").edit(
    WriterState._on_bookie_failed,
    {_GONE: f"{_GONE} or self.is_changing"},
)

_AHEAD = "self._take(), min(last_add_confirmed + 1, self._next_entry - 1)"
mutant("lac_ahead_of_acks", "entries carry a LAC that is not confirmed yet", "I7").edit(
    RunCutter.cut, {"self._take(), last_add_confirmed": _AHEAD}
)

_SENT = {"state.last_add_confirmed": "state.last_add_pushed"}
mutant(
    "close_beyond_lac", "a writer closes at what it sent", "I3", "I5", where="product and model"
).edit(WriterTwin._close_if_settled, _SENT).edit(WriteHandle.last_add_confirmed, _SENT)

_OVER = "replace(metadata, state=LedgerState.CLOSED, last_entry=last_entry, length=length)"
mutant("overwrite_closed", "BOOKKEEPER-584: a close overwrites a recovery's", "I4").edit(
    closed_by_writer, {"if metadata.state is": f"return {_OVER}\nif metadata.state is"}
)

mutant("change_despite_recovery", "a writer changes a ledger in recovery", "I19").edit(
    put_in_force, {" or metadata.state is LedgerState.IN_RECOVERY": ""}
)

_NOTED = "self._last_add_confirmed = last_add_confirmed"
mutant(
    "explicit_lac_ahead", "an explicit LAC is not confirmed yet", "I7", where="product and model"
).edit(ExplicitLac.on_acknowledged, {_NOTED: f"last_add_confirmed += 1\n{_NOTED}"}).edit(
    WriterTwin._acknowledged, {"state.last_add_confirmed": "state.last_add_confirmed + 1"}
)
