"""Known bugs of bookies, planted in the product's admission and in what it says of absent entries."""

from __future__ import annotations

from bookie_server.core.absence import status_of, status_of_absence
from bookie_server.core.admission import Admission
from bookie_server.integrity.limbo import state_after_loss
from bookie_server.storage.index.handle_state import encode_handle_state
from bookie_server.wire.messages import Section
from tests.simulation.kit.patching import Always, Mutants, Patch

MUTANTS = Mutants()
mutant = MUTANTS.planted
_AT_ONCE = "[*effect.then, Persist(effect.ticket, effect.ledger_id, effect.records, ())]"
"""The effects of a Persist whose answers do not wait for it."""
_REFUSE = "refusal = self._refuse(ledger_id, master_key)"

mutant(
    "fence_volatile", "BOOKKEEPER-500, -815: a restart forgets the fence", "I8", "I11", "I1"
).edit(encode_handle_state, {"_FENCED * handle.is_fenced": "0"})

mutant("fence_answered_before_sync", "a fence is answered before it is durable", "I9").edit(
    Admission.fence, {"return [effect]": f"return {_AT_ONCE}"}
)

mutant(
    "negative_before_durable_fence",
    "a denial does not wait for the fence (as in Apache)",
    "I9",
    "I1",
).edit(Admission.fence, {"return [effect]": f"return [effect] if handle else {_AT_ONCE}"})

_REPEATED = "if self._is_fenced(ledger_id):\n    return [Reply(to, Status.OK)]"
mutant("repeated_fence_at_once", "a repeated fence does not wait for the first", "I9").edit(
    Admission.fence, {_REFUSE: f"{_REPEATED}\n{_REFUSE}"}
)

_IS_KNOWN = "ledger_id in self._durable.ledgers or ledger_id in self._unsettled"
mutant("fence_needs_ledger", "a ledger nobody wrote here cannot be fenced", "I10", "I11").edit(
    Admission.fence, {_REFUSE: f"{_REFUSE} if {_IS_KNOWN} else Status.NO_LEDGER"}
)


@mutant("fence_unchecked", "adds are not checked against the fence", "I8")
def _fence_unchecked(patch: Patch) -> None:
    patch.constant(Admission, "_is_fenced", False)


mutant("pending_fence_ignored", "an add slips in while the fence is being synced", "I8").edit(
    Admission._is_fenced, {"return True": "pass"}
)

_PERSIST = "self._persist(section.ledger_id, section.master_key, records, answer)"
mutant("add_acked_before_sync", "an add is answered before its group is synced", "S1").edit(
    Admission.add, {f"return [{_PERSIST}]": f"effect = {_PERSIST}\nreturn {_AT_ONCE}"}
)

_OK = "return [answer if isinstance(answer, Reply) else Reply(answer.to, Status.OK)]"
mutant("duplicate_acked_before_sync", "a duplicate does not wait for the first's sync", "S1").edit(
    Admission._when_settled, {"state = self._unsettled.get(ledger_id)": _OK}
)


@mutant("pending_read_denied", "an entry being synced is denied", "I12")
def _pending_read_denied(patch: Patch) -> None:
    patch.constant(Admission, "is_pending", False)


@mutant("recovery_no_flag", "#4163: the recovery flag of an add is dropped", "L1")
def _recovery_no_flag(patch: Patch) -> None:
    patch.method(Section, "is_recovery", Always(False))


mutant("corrupt_noentry", "#2908: a damaged copy is denied", "I12", "I1").edit(
    status_of, {"return Status.UNKNOWN": "return absence"}
)

mutant("limbo_forgotten", "BP-46, #2612: a disk that lost entries denies them", "I12", "I1").edit(
    status_of_absence, {" or may_have_lost": ""}
)

_IN_LIMBO = "handle is not None and handle.is_limbo"
mutant("wiped_not_fenced", "BP-46: a lost disk forgets its fence", "I8").edit(
    Admission._refuse_writer, {_IN_LIMBO: "False"}
)

# What a bookie knows of a ledger has no word for its being closed: a directory number that cannot be
# says it here.
mutant("closed_not_fenced", "a lost disk refuses adds of open ledgers only", "I8", "I1").edit(
    state_after_loss, {"is_limbo=True": "is_limbo=True, directory_index=-1 - metadata.is_closed"}
).edit(Admission._refuse_writer, {_IN_LIMBO: f"{_IN_LIMBO} and handle.directory_index != -2"})

mutant("limbo_says_fenced", "a lost disk ends writers that nobody has fenced", "I24").edit(
    Admission._refuse_writer, {"Status.LIMBO": "Status.FENCED"}
)
