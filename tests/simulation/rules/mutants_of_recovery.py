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


_START = "max(last_add_confirmed, last_fragment_first_entry - 1)"
mutant(
    "start_minus1", "#2615: a fresh last fragment is recovered from entry 0", "I1", "L1", "P"
).edit(first_entry_to_recover, {_START: "last_add_confirmed"})

mutant("start_beyond", "recovery begins one entry too late", "I3", "I5", "I1", "P").edit(
    first_entry_to_recover, {") + 1": ") + 2"}
)

mutant("unknown_is_neg", "a timeout counts as a denial", "I11", "I1").edit(
    EntryReadResult.no_copy, {"if status.is_evidence_of_absence": "if True"}
)

mutant("negative_generous", "one denial ends a ledger", "I11", "I1").edit(
    EntryReadResult.result, {">= self.quorum.coverage": ">= 1"}
)

mutant("positive_strict", "one copy is not enough where somebody denies it", "L1", "I1").edit(
    EntryReadResult.result, {"if self.has_copy": "if self.has_copy and not self.negatives"}
)

_WQ_MINUS_AQ = "return max(1, cohort_size - ack_quorum)"
mutant("coverage_too_small", "WQ - AQ answers pass for coverage", "I10", "I11").edit(
    coverage_threshold, {"threshold = cohort_size - ack_quorum + 1": _WQ_MINUS_AQ}
)

_IN_WRITE_SETS = "self._each_holds(self.coverage, responders)"
mutant("striped_coverage_as_ensemble", "coverage is counted over the ensemble", "I10").edit(
    QuorumConfig.covers, {_IN_WRITE_SETS: "len(responders) >= self.coverage"}
)

_ONE_FENCED = {"self._quorum.covers(self._answered)": "self._answered"}
mutant("fence_short", "one fenced bookie is enough to begin reading", "I10").edit(
    FenceProgress.is_covered, _ONE_FENCED
)


@mutant("fence_short_and_recread_nofence", "the one is harmless only by the other's fences", "I1")
def _fence_short_and_recread_nofence(patch: Patch) -> None:
    patch.edit(FenceProgress.is_covered, _ONE_FENCED)
    _recread_nofence(patch)


mutant("silence_is_fenced", "a bookie that did not answer counts as fenced", "I10").edit(
    FenceProgress.on_answer, {"status is Status.OK or status.is_evidence_of_absence": "True"}
)

_BEHIND = "[e for each in self._answers.values() for e in each.copies if e > entry_id]"
_ENDS = "self.ends_ledger = self.is_decided ="
mutant("gap_ignored", "entries behind one that never existed are kept", "I5", "I3", "P").edit(
    RecoveryWindow._decide_next,
    {
        f"{_ENDS} True": f"self.next_entry = min({_BEHIND}, default=entry_id)\n"
        f"{_ENDS} self.next_entry == entry_id\n"
        "return not self.is_decided"
    },
)

mutant(
    "write_back_skipped", "what recovery found is not stored again", "I3", where="product and model"
).edit(RecovererTwin._store, {"if not window.found": "if True"}).edit(
    WriteBack.store, {"in cut_to_size(entries, size_bytes_max)": "in ()"}
)

mutant("write_back_at_one", "one bookie is enough for a write-back", "I3").edit(
    QuorumConfig.can_acknowledge, {"self.ack_quorum": "1"}
)


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


mutant(
    "read_changed_ens",
    "BOOKKEEPER-581: reads follow the changed ensemble",
    "I11",
    where="product and model",
).edit(
    RecovererTwin._read,
    {"self._start_fragment.ensemble": "self._written_to.last_fragment.ensemble"},
).edit(_Recovery.reads_from, {"self._metadata.last_fragment": "self._write_back.fragments[-1]"})
