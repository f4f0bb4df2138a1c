"""Known bugs of recovery, planted in its rules and where its flow decides."""

from __future__ import annotations

from dataclasses import replace

from bookie_server.wire.messages import ReadRequest
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig, coverage_threshold
from spark_bookkeeper.ledger.protocol.recovery_rules import (
    EntryReadResult,
    FenceProgress,
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
    start = "max(last_add_confirmed, last_fragment_first_entry - 1)"
    patch.edit(first_entry_to_recover, {start: "last_add_confirmed"})


@mutant("start_beyond", "recovery begins one entry too late", "I3", "I5", "I1", "P")
def _start_beyond(patch: Patch) -> None:
    patch.edit(first_entry_to_recover, {") + 1": ") + 2"})


@mutant("unknown_is_neg", "a timeout counts as a denial", "I11", "I1")
def _unknown_is_neg(patch: Patch) -> None:
    patch.edit(EntryReadResult.no_copy, {"if status.is_evidence_of_absence": "if True"})


@mutant("negative_generous", "one denial ends a ledger", "I11", "I1")
def _negative_generous(patch: Patch) -> None:
    patch.edit(EntryReadResult.result, {">= self.quorum.coverage": ">= 1"})


@mutant("positive_strict", "one copy is not enough where somebody denies it", "L1", "I1")
def _positive_strict(patch: Patch) -> None:
    patch.edit(
        EntryReadResult.result, {"if self.has_copy": "if self.has_copy and not self.negatives"}
    )


@mutant("coverage_too_small", "WQ - AQ answers pass for coverage", "I10", "I11")
def _coverage_too_small(patch: Patch) -> None:
    fewer = "return max(1, cohort_size - ack_quorum)"
    patch.edit(coverage_threshold, {"threshold = cohort_size - ack_quorum + 1": fewer})


@mutant("striped_coverage_as_ensemble", "coverage is counted over the ensemble", "I10")
def _striped_coverage_as_ensemble(patch: Patch) -> None:
    in_write_sets = "self._each_holds(self.coverage, responders)"
    patch.edit(QuorumConfig.covers, {in_write_sets: "len(responders) >= self.coverage"})


@mutant("fence_short", "one fenced bookie is enough to begin reading", "I10")
def _fence_short(patch: Patch) -> None:
    patch.edit(FenceProgress.is_covered, {"self._quorum.covers(self._answered)": "self._answered"})


@mutant("fence_short_and_recread_nofence", "the one is harmless only by the other's fences", "I1")
def _fence_short_and_recread_nofence(patch: Patch) -> None:
    _fence_short(patch)
    _recread_nofence(patch)


@mutant("silence_is_fenced", "a bookie that did not answer counts as fenced", "I10")
def _silence_is_fenced(patch: Patch) -> None:
    proof = "if status is Status.OK or status.is_evidence_of_absence"
    patch.edit(FenceProgress.on_answer, {proof: "if True"})


@mutant("gap_ignored", "entries behind one that never existed are kept", "I5", "I3", "P")
def _gap_ignored(patch: Patch) -> None:
    behind = "[e for each in self._answers.values() for e in each.copies if e > entry_id]"
    ends = "self.ends_ledger = self.is_decided ="
    skips = f"self.next_entry = min({behind}, default=entry_id)"
    ends_at_last = f"{ends} self.next_entry == entry_id\nreturn not self.is_decided"
    patch.edit(RecoveryWindow._decide_next, {f"{ends} True": f"{skips}\n{ends_at_last}"})


@mutant(
    "write_back_skipped", "what recovery found is not stored again", "I3", where="product and model"
)
def _write_back_skipped(patch: Patch) -> None:
    patch.edit(RecovererTwin._store, {"if not window.found": "if True"})
    patch.edit(WriteBack.store, {"in _chunks(entries, size_bytes_max)": "in ()"})


@mutant("write_back_at_one", "one bookie is enough for a write-back", "I3")
def _write_back_at_one(patch: Patch) -> None:
    patch.edit(QuorumConfig.can_acknowledge, {"self.ack_quorum": "1"})


@mutant(
    "commit_rec_ens",
    "BOOKKEEPER-355: recovery commits its ensemble",
    "I14",
    "I1",
    where="product and model",
)
def _commit_rec_ens(patch: Patch) -> None:
    replace_in_model, replace_in_product = RecovererTwin._replace, WriteBack._replace

    def replaced(self: RecovererTwin, first_entry: int) -> None:
        replace_in_model(self, first_entry)
        fragments = self._written_to.fragments

        def commit(metadata: LedgerMetadata) -> LedgerMetadata:
            return metadata if metadata.is_closed else replace(metadata, fragments=fragments)

        self._model.register.update(self.name, self._versioned, commit, lambda _: None)

    async def replace_and_commit(
        self: WriteBack, failed: dict[int, str], first_entry: int
    ) -> tuple[int, ...]:
        positions = await replace_in_product(self, failed, first_entry)

        def commit(metadata: LedgerMetadata) -> LedgerMetadata:
            if metadata.is_closed:
                return metadata
            first = self.fragments[0].first_entry
            kept = [f for f in metadata.fragments if f.first_entry < first]
            return replace(metadata, fragments=(*kept, *self.fragments))

        ledgers = self._cluster.ledgers
        await ledgers.update(self._ledger_id, commit, known=await ledgers.read(self._ledger_id))
        return positions

    patch.method(RecovererTwin, "_replace", replaced)
    patch.method(WriteBack, "_replace", replace_and_commit)


@mutant(
    "read_changed_ens",
    "BOOKKEEPER-581: reads follow the changed ensemble",
    "I11",
    where="product and model",
)
def _read_changed_ens(patch: Patch) -> None:
    begun_with, changed = "self._start_fragment.ensemble", "self._written_to.last_fragment.ensemble"
    patch.edit(RecovererTwin._read, {begun_with: changed})
    patch.edit(
        _Recovery.reads_from, {"self._metadata.last_fragment": "self._write_back.fragments[-1]"}
    )
