"""Bugs of who mends ledgers, and of the marks by which that is asked for."""

from __future__ import annotations

from bookie_server.core.damaged_entries import DamagedEntries
from bookie_server.integrity.scrubber import Scrubber
from bookkeeper_metadata.underreplication import Underreplication, parse_mark
from spark_bookkeeper.replication.copying import LedgerCopier
from spark_bookkeeper.replication.mending import LedgerMender, _Look
from tests.mutants.planting import DirectedMutants

_DAMAGE = "tests/bookie_server/core/test_damaged_entries.py"
_LIMBO_ENDS = "tests/spark_bookkeeper/replication/test_limbo_ends.py"
_MARKS = "tests/metadata/test_underreplication.py"
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
mutant(
    "mark_known_by_its_version",
    "a worker that has lost its lock deletes a mark that is another by now",
    _MARKS,
    "test_a_mark_of_the_same_version_may_be_another[2]",
).edit(Underreplication.clear, {"parse_mark(node, path) != known": "node.version != known.version"})
mutant(
    "mark_known_by_its_words",
    "a mark that was made again and says the same is taken for the one before",
    _MARKS,
    "test_a_mark_of_the_same_version_may_be_another[1]",
).edit(parse_mark, {"node.version, node.created_ms": "node.version"})
mutant(
    "mark_compared_with_a_laggards",
    "what is marked now is asked of a server that does not know it yet",
    _MARKS,
    "test_a_server_that_lags_behind_has_no_mark_taken_for_the_one_before",
).edit(Underreplication.clear, {"await self._store.sync(path)": "pass"})
mutant(
    "mark_not_compared_again",
    "a clearing without a reply deletes what was marked behind it",
    _MARKS,
    "test_a_mark_that_is_made_behind_a_clearing_without_a_reply_is_not_taken_for_the_same",
).edit(
    Underreplication.clear,
    {"node = await read_back(self._store, path, self._random, lost)": "pass"},
)
mutant(
    "damage_takes_no_turns",
    "entries that can never be mended keep all others from being known to be damaged",
    _DAMAGE,
    "test_each_has_its_turn_though_none_is_ever_mended",
).edit(DamagedEntries.begin_turn, {"if self._left_out is not None": "if False"})
mutant(
    "turns_begin_at_ledgers",
    "the end of a ledger that has more damage than is kept in mind never has its turn",
    _DAMAGE,
    "test_each_has_its_turn_though_none_is_ever_mended",
).edit(DamagedEntries.begin_turn, {"self._left_out, None": "(self._left_out[0], 0), None"})
mutant(
    "read_damage_displaces",
    "what readers find anew puts out what is being mended",
    _DAMAGE,
    "test_a_turn_lasts_until_the_next_begins",
).edit(DamagedEntries.add, {"if self._left_out is not None:": "if False:"})
mutant(
    "walks_begin_no_turn",
    "the turns of damaged entries do not move on",
    _LIMBO_ENDS,
    "test_a_walk_finds_the_damage_that_the_one_before_had_no_room_for",
).edit(Scrubber.walk, {"self._bookie.verifier.begin_walk()": "pass"})
mutant(
    "refused_copy_is_named",
    "a bookie that refuses the copies is named all the same; in the worlds few seeds find it",
    "tests/spark_bookkeeper/replication/test_mending.py",
    "test_a_bookie_that_refuses_is_passed_over",
).edit(LedgerCopier._send, {"status is not Status.OK": "False"})

MENDING = mutant.all()
