"""Bugs of who ends a ledger at an operator's word, which gives up what bookies in limbo have lost."""

from __future__ import annotations

from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.last_confirmed import look_into
from spark_bookkeeper.ledger.protocol.doubt import Doubt
from spark_bookkeeper.ledger.protocol.recovery_rules import EntryReadResult, FenceProgress
from spark_bookkeeper.ledger.recovery import _Recovery
from tests.mutants.planting import DirectedMutants

_DOUBT = "tests/spark_bookkeeper/ledger/test_recovery_in_doubt.py"
_RULES = "tests/spark_bookkeeper/ledger/protocol/test_recovery_rules.py"

mutant = DirectedMutants()

mutant(
    "given_up_with_a_silent_bookie",
    "what a silent bookie may have is given up",
    _DOUBT,
    "test_while_a_bookie_is_silent_nothing_is_given_up",
).edit(LedgerClient.recover_with_losses, {"if why := doubt.objection:": "if why := '':"}).edit(
    EntryReadResult.result, {"== self.quorum.write_quorum": ">= self.quorum.coverage"}
)
mutant(
    "others_not_asked",
    "what a bookie has that the metadata does not name is given up",
    _DOUBT,
    "test_entries_of_another_bookie_are_not_given_up",
).edit(Doubt.knowing_more, {"each.last_entry > self.last_entry": "False"})
mutant(
    "length_given_up",
    "a ledger's length is given up though a bookie that may know it is away",
    _DOUBT,
    "test_a_ledger_whose_length_is_lost_with_an_entry_is_ended",
).edit(_Recovery._length_up_to, {"if not _is_lost(error):": "if False:"})
mutant(
    "silence_is_loss",
    "an answer that never came counts as that of a bookie in limbo",
    _RULES,
    "test_what_is_given_up_ends_a_ledger_only_if_every_bookie_has_said_that_it_has_nothing",
).edit(EntryReadResult.no_copy, {"status is Status.UNKNOWN and not": "not"})
mutant(
    "anybody_is_given_up",
    "what a sound bookie cannot read at the moment is given up",
    _DOUBT,
    "test_what_a_sound_bookie_neither_gives_nor_denies_is_not_given_up",
).edit(Doubt.given_up_in, {" if each.status is Status.LIMBO": ""})
mutant(
    "listed_entries_given_up",
    "an entry is given up that a bookie lists and cannot give at the moment",
    _DOUBT,
    "test_what_a_bookie_lists_and_cannot_give_now_is_not_given_up",
).edit(EntryReadResult.no_copy, {"and not _may_have(self.given_up.get(position), self.entry_id)": "and position in self.given_up"})  # fmt: skip
mutant(
    "damage_is_loss",
    "entries are given up that a bookie has and cannot read",
    _DOUBT,
    "test_a_bookie_that_cannot_read_some_of_what_it_has_is_none_that_has_lost_it",
).edit(look_into, {"if listed.damaged_count:": "if False:"})
mutant(
    "anything_is_an_answer",
    "a bookie that does not know what it has counts as one that has lost it",
    _DOUBT,
    "test_only_a_bookie_that_says_what_it_has_is_not_silent[Status.UNKNOWN]",
).edit(
    Doubt.silent, {"each.status not in SAYS_WHAT_IS_WANTED": "each.status is Status.UNREACHABLE"}
)
mutant(
    "silence_is_a_fence",
    "a bookie that is given up counts as fenced though it did not answer",
    _RULES,
    "test_a_bookie_given_up_is_shut_out_by_its_limbo_but_not_by_its_silence",
).edit(FenceProgress.on_answer, {"status is Status.UNKNOWN and position": "position"})
mutant(
    "confirmed_given_up",
    "entries are given up that are left, for one of those before them is lost",
    _DOUBT,
    "test_what_is_proved_to_be_confirmed_is_kept_though_a_part_of_it_is_lost",
).edit(_Recovery.run, {"max(confirmed, self._doubt.last_add_confirmed)": "confirmed"})
mutant(
    "claims_are_proofs",
    "a LAC that re-replication put into a copy counts as proved",
    _DOUBT,
    "test_a_claim_proves_nothing",
).edit(look_into, {"known if NO_ENTRY_ID <= known < last_entry else NO_ENTRY_ID": "known"})

DOUBT = mutant.all()
