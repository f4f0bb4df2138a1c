"""Bugs of who mends ledgers, and of the marks by which that is asked for."""

from __future__ import annotations

from spark_bookkeeper.replication.mending import LedgerMender, _Look
from tests.mutants.planting import DirectedMutants

_FRAGMENTS = "tests/spark_bookkeeper/replication/test_many_fragments.py"

mutant = DirectedMutants()

mutant(
    "asked_for_every_share",
    "a member is asked for its whole list as often as the ledger has fragments",
    _FRAGMENTS,
    "test_a_member_is_asked_once_for_all_of_its_shares[quorums0]",
).edit(LedgerMender._list_of, {"look.lists[bookie_id] = listed": "pass"})
mutant(
    "named_one_by_one",
    "the whole metadata is written for every share of a few bytes",
    _FRAGMENTS,
    "test_small_shares_of_two_lost_bookies_change_the_metadata_once[quorums0]",
).edit(_Look.is_naming_due, {"len(self.taken) >= NAMED_AT_ONCE": "self.taken"})
mutant(
    "named_at_the_end_only",
    "a terabyte is copied before anybody is named for it",
    _FRAGMENTS,
    "test_what_is_copied_is_named_before_it_is_too_much[quorums0-WINDOW_BYTES]",
).edit(_Look.is_naming_due, {" or self.taken_bytes >= WINDOW_BYTES": ""})
mutant(
    "two_places_for_one",
    "a bookie is chosen for two places of one ensemble before it is named for either",
    _FRAGMENTS,
    "test_small_shares_of_two_lost_bookies_change_the_metadata_once[quorums0]",
).edit(LedgerMender._replace, {"(*refused, *members_soon)": "refused"})

MENDING = mutant.all()
