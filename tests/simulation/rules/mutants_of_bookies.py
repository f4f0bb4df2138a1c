"""Known bugs of bookies, planted in the product's admission and verdicts (or in the model's disk)."""

from __future__ import annotations

from bookie_server.core.absence import status_of, status_of_absence
from bookie_server.core.admission import Admission
from bookie_server.core.effects import Effect, Persist, Reply, ReplyTo
from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.presence import Presence
from bookie_server.limbo import state_after_loss
from bookie_server.storage.contents import Contents
from bookie_server.storage.index.handle_state import encode_handle_state
from bookie_server.wire.messages import Section, Status
from bookkeeper_metadata.model import LedgerMetadata
from tests.simulation.kit.patching import Always, Mutants, Patch

MUTANTS = Mutants()
mutant = MUTANTS.planted


@mutant("fence_volatile", "BOOKKEEPER-500, -815: a restart forgets the fence", "I8", "I11", "I1")
def _fence_volatile(patch: Patch) -> None:
    original = encode_handle_state  # by this name, since the patch replaces the other one here too

    def encode(facts: LedgerHandleState) -> bytes:
        was, facts.is_fenced = facts.is_fenced, False
        try:
            return original(facts)
        finally:
            facts.is_fenced = was

    patch.function(encode_handle_state, encode)


@mutant("fence_answered_before_sync", "a fence is answered before it is durable", "I9")
def _fence_answered_before_sync(patch: Patch) -> None:
    original = Admission.fence

    def fence(self: Admission, ledger_id: int, key: bytes, to: ReplyTo) -> list[Effect]:
        return _answered_at_once(original(self, ledger_id, key, to))

    patch.method(Admission, "fence", fence)


@mutant(
    "negative_before_durable_fence",
    "a denial does not wait for the fence (as in Apache)",
    "I9",
    "I1",
)
def _negative_before_durable_fence(patch: Patch) -> None:
    original = Admission.fence

    def fence(self: Admission, ledger_id: int, key: bytes, to: ReplyTo) -> list[Effect]:
        effects = original(self, ledger_id, key, to)
        is_unknown = self._durable.ledgers.get(ledger_id) is None
        return _answered_at_once(effects) if is_unknown else effects

    patch.method(Admission, "fence", fence)


def _answered_at_once(effects: list[Effect]) -> list[Effect]:
    at_once: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Persist):
            at_once += effect.then
            at_once.append(Persist(effect.ticket, effect.ledger_id, effect.records, ()))
        else:
            at_once.append(effect)
    return at_once


@mutant("repeated_fence_at_once", "a repeated fence does not wait for the first", "I9")
def _repeated_fence_at_once(patch: Patch) -> None:
    original = Admission.fence

    def fence(self: Admission, ledger_id: int, key: bytes, to: ReplyTo) -> list[Effect]:
        if self._is_fenced(ledger_id):
            return [Reply(to, Status.OK)]
        return original(self, ledger_id, key, to)

    patch.method(Admission, "fence", fence)


@mutant("fence_needs_ledger", "a ledger nobody wrote here cannot be fenced", "I10", "I11")
def _fence_needs_ledger(patch: Patch) -> None:
    original = Admission.fence

    def fence(self: Admission, ledger_id: int, key: bytes, to: ReplyTo) -> list[Effect]:
        if ledger_id not in self._durable.ledgers and ledger_id not in self._unsettled:
            return [Reply(to, Status.NO_LEDGER)]
        return original(self, ledger_id, key, to)

    patch.method(Admission, "fence", fence)


@mutant("fence_unchecked", "adds are not checked against the fence", "I8")
def _fence_unchecked(patch: Patch) -> None:
    patch.constant(Admission, "_is_fenced", False)


@mutant("pending_fence_ignored", "an add slips in while the fence is being synced", "I8")
def _pending_fence_ignored(patch: Patch) -> None:
    def is_fenced(self: Admission, ledger_id: int) -> bool:
        facts = self._durable.ledgers.get(ledger_id)
        return facts is not None and facts.is_fenced

    patch.method(Admission, "_is_fenced", is_fenced, source="5aa1d292")


@mutant("add_acked_before_sync", "an add is answered before its group is synced", "S1")
def _add_acked_before_sync(patch: Patch) -> None:
    original = Admission.add

    def add(self: Admission, section: Section, to: ReplyTo) -> list[Effect]:
        return _answered_at_once(original(self, section, to))

    patch.method(Admission, "add", add)


@mutant("duplicate_acked_before_sync", "a duplicate does not wait for the first's sync", "S1")
def _duplicate_acked_before_sync(patch: Patch) -> None:
    def when_settled(self: Admission, ledger_id: int, answer: Effect) -> list[Effect]:
        is_reply = isinstance(answer, Reply)
        return [answer if is_reply else Reply(answer.to, Status.OK)]  # type: ignore[union-attr]

    patch.method(Admission, "_when_settled", when_settled, source="db47452a")


@mutant("pending_read_denied", "an entry being synced is denied", "I12")
def _pending_read_denied(patch: Patch) -> None:
    patch.constant(Admission, "is_pending", False)


@mutant("recovery_no_flag", "#4163: the recovery flag of an add is dropped", "L1")
def _recovery_no_flag(patch: Patch) -> None:
    patch.method(Section, "is_recovery", Always(False))


@mutant("corrupt_noentry", "#2908: a damaged copy is denied", "I12", "I1")
def _corrupt_noentry(patch: Patch) -> None:
    original = status_of

    def status(presence: Presence, absence: Status) -> Status:
        return absence if presence is Presence.DAMAGED else original(presence, absence)

    patch.function(status_of, status)


@mutant("limbo_forgotten", "BP-46, #2612: a disk that lost entries denies them", "I12", "I1")
def _limbo_forgotten(patch: Patch) -> None:
    original = status_of_absence

    def absence(facts: LedgerHandleState | None, *, is_storage_damaged: bool) -> Status:
        known = None if facts is None else LedgerHandleState()
        return original(known, is_storage_damaged=is_storage_damaged)

    patch.function(status_of_absence, absence)


@mutant("wiped_not_fenced", "BP-46: a lost disk forgets its fence", "I8", "I10")
def _wiped_not_fenced(patch: Patch) -> None:
    original = state_after_loss

    def forgetful(metadata: LedgerMetadata, bookie_id: str) -> LedgerHandleState | None:
        return original(metadata, bookie_id) and LedgerHandleState(is_limbo=True)

    patch.function(state_after_loss, forgetful)
    set_limbo = Contents.set_limbo
    patch.method(Contents, "set_limbo", lambda self, limbo, fenced: set_limbo(self, limbo, ()))


@mutant("closed_not_fenced", "a lost disk fences open ledgers only", "I8", "I1")
def _closed_not_fenced(patch: Patch) -> None:
    original = state_after_loss

    def forgiving(metadata: LedgerMetadata, bookie_id: str) -> LedgerHandleState | None:
        facts = original(metadata, bookie_id)
        return facts and LedgerHandleState(is_limbo=True, is_fenced=not metadata.is_closed)

    patch.function(state_after_loss, forgiving)
