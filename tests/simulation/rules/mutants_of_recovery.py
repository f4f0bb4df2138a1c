"""Known bugs of recovery, planted in its rules and where its flow decides."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from bookie_server.wire.messages import ReadRequest, Status
from bookie_server.wire.record import Run as Records
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig, coverage_threshold
from spark_bookkeeper.ledger.protocol.recovery_rules import (
    EntryReadResult,
    FenceProgress,
    ReadResult,
    RecoveryWindow,
    first_entry_to_recover,
)
from spark_bookkeeper.ledger.recovery import _Recovery
from spark_bookkeeper.ledger.write_back import WriteBack
from tests.simulation.kit.patching import Always, Mutants, Patch
from tests.simulation.rules.recoverer import RecovererTwin

MUTANTS = Mutants()
mutant = MUTANTS.planted


@mutant("recread_nofence", "#2614: recovery reads do not fence", "I11", "I1")
def _recread_nofence(patch: Patch) -> None:
    patch.method(ReadRequest, "is_fencing", Always(False))


@mutant("start_minus1", "#2615: a fresh last fragment is recovered from entry 0", "I1", "L1", "P")
def _start_minus1(patch: Patch) -> None:
    patch.function(first_entry_to_recover, lambda lac, first: lac + 1, source="30cf3e19")


@mutant("start_beyond", "recovery begins one entry too late", "I3", "I5", "I1", "P")
def _start_beyond(patch: Patch) -> None:
    patch.function(
        first_entry_to_recover, lambda lac, first: max(lac, first - 1) + 2, source="30cf3e19"
    )


@mutant("unknown_is_neg", "a timeout counts as a denial", "I11", "I1")
def _unknown_is_neg(patch: Patch) -> None:
    original = EntryReadResult.no_copy

    def no_copy(self: EntryReadResult, position: int, status: Status) -> None:
        original(self, position, status)
        self.negatives.add(position)

    patch.method(EntryReadResult, "no_copy", no_copy)


@mutant("negative_generous", "one denial ends a ledger", "I11", "I1")
def _negative_generous(patch: Patch) -> None:
    def result(self: EntryReadResult) -> ReadResult:
        if self.has_copy:
            return ReadResult.EXISTS
        return ReadResult.NEVER_EXISTED if self.negatives else ReadResult.OPEN

    patch.method(EntryReadResult, "result", property(result), source="8c8e6594")


@mutant("positive_strict", "one copy is not enough where somebody denies it", "L1", "I1")
def _positive_strict(patch: Patch) -> None:
    def result(self: EntryReadResult) -> ReadResult:
        if self.has_copy and not self.negatives:
            return ReadResult.EXISTS
        is_denied = len(self.negatives) >= self.quorum.coverage
        return ReadResult.NEVER_EXISTED if is_denied else ReadResult.OPEN

    patch.method(EntryReadResult, "result", property(result), source="8c8e6594")


@mutant("coverage_too_small", "WQ - AQ answers pass for coverage", "I10", "I11")
def _coverage_too_small(patch: Patch) -> None:
    patch.function(
        coverage_threshold, lambda cohort, acks: max(1, cohort - acks), source="2696af5d"
    )


@mutant("striped_coverage_as_ensemble", "coverage is counted over the ensemble", "I10")
def _striped_coverage_as_ensemble(patch: Patch) -> None:
    def covers(self: QuorumConfig, responders: AbstractSet[int]) -> bool:
        return len(responders) >= self.coverage

    patch.method(QuorumConfig, "covers", covers, source="7b679eb8")


@mutant("fence_short", "one fenced bookie is enough to begin reading", "I10")
def _fence_short(patch: Patch) -> None:
    patch.method(
        FenceProgress, "is_covered", property(lambda self: bool(self._answered)), source="740c722f"
    )


@mutant("fence_short_and_recread_nofence", "the one is harmless only by the other's fences", "I1")
def _fence_short_and_recread_nofence(patch: Patch) -> None:
    _fence_short(patch)
    _recread_nofence(patch)


@mutant("silence_is_fenced", "a bookie that did not answer counts as fenced", "I10")
def _silence_is_fenced(patch: Patch) -> None:
    original = FenceProgress.on_answer

    def on_answer(self: FenceProgress, position: int, status: Status, lac: int) -> None:
        original(self, position, status, lac)
        self._answered.add(position)

    patch.method(FenceProgress, "on_answer", on_answer)


@mutant("gap_ignored", "entries behind one that never existed are kept", "I5", "I3", "P")
def _gap_ignored(patch: Patch) -> None:
    original = RecoveryWindow._decide_next

    def decide_next(self: RecoveryWindow) -> bool:
        exists = original(self)
        behind = [e for t in self._answers.values() for e in t.copies if e > self.next_entry]
        if self.ends_ledger and behind:
            self.ends_ledger = self.is_decided = False
            self.next_entry = min(behind)
            return True
        return exists

    patch.method(RecoveryWindow, "_decide_next", decide_next)


@mutant(
    "write_back_skipped", "what recovery found is not stored again", "I3", where="product and model"
)
def _write_back_skipped(patch: Patch) -> None:
    async def store(self: WriteBack, entries: list[Records]) -> None:
        return

    patch.method(
        RecovererTwin, "_store", lambda self, window: self._stored(window), source="b7e42e1b"
    )
    patch.method(WriteBack, "store", store, source="7cc577c9")


@mutant("write_back_at_one", "one bookie is enough for a write-back", "I3")
def _write_back_at_one(patch: Patch) -> None:
    original = QuorumConfig.can_acknowledge

    def can_acknowledge(
        self: QuorumConfig,
        positions: AbstractSet[int],
        first_entry: int = 0,
        last_entry: int | None = None,
    ) -> bool:
        return original(replace(self, ack_quorum=1), positions, first_entry, last_entry)

    patch.method(QuorumConfig, "can_acknowledge", can_acknowledge)


@mutant(
    "commit_rec_ens",
    "BOOKKEEPER-355: recovery commits its ensemble",
    "I14",
    "I1",
    where="product and model",
)
def _commit_rec_ens(patch: Patch) -> None:
    def replaced(self: RecovererTwin) -> None:
        fragments = self._written_to.fragments

        def commit(metadata: LedgerMetadata) -> LedgerMetadata:
            return metadata if metadata.is_closed else replace(metadata, fragments=fragments)

        self._model.register.update(self.name, self._versioned, commit, lambda _: None)

    original = WriteBack._replace

    async def replace_and_commit(
        self: WriteBack, failed: dict[int, str], first_entry: int
    ) -> tuple[int, ...]:
        positions = await original(self, failed, first_entry)

        def commit(metadata: LedgerMetadata) -> LedgerMetadata:
            if metadata.is_closed:
                return metadata
            first = self.fragments[0].first_entry
            kept = [f for f in metadata.fragments if f.first_entry < first]
            return replace(metadata, fragments=(*kept, *self.fragments))

        ledgers = self._cluster.ledgers
        await ledgers.update(self._ledger_id, commit, known=await ledgers.read(self._ledger_id))
        return positions

    patch.method(RecovererTwin, "replaced", replaced, source="0ed6b874")
    patch.method(WriteBack, "_replace", replace_and_commit)


@mutant(
    "read_changed_ens",
    "BOOKKEEPER-581: reads follow the changed ensemble",
    "I11",
    where="product and model",
)
def _read_changed_ens(patch: Patch) -> None:
    patch.method(
        RecovererTwin, "reads_from", lambda self: self._written_to.last_fragment, source="029e742f"
    )
    changed = property(lambda self: self._write_back.fragments[-1])
    patch.method(_Recovery, "reads_from", changed, source="0f4db641")
