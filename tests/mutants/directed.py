"""Bugs that a directed test notices: of identity, limbo, held places, freshness, admission, deletion.

No seed has to be lucky for these, so they are told with the test that must fail. The rest of the
mutants lives with the simulations (``tests/simulation/*/mutants*.py``).
"""

from __future__ import annotations

from bookie_server.core.admission import Admission, _is_plausible
from bookie_server.identity import Identity, claim_identity
from bookie_server.integrity.limbo import (
    put_ledgers_in_limbo,
    state_after_loss,
    wait_until_unregistered,
)
from bookie_server.storage.identity.claim import mark_as_own
from bookie_server.storage.identity.inspection import _look
from bookie_server.storage.identity.start_plan import _Planner
from bookie_server.storage.recovery import _Recovery
from bookkeeper_metadata.cookies import CookieStore
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.connections import Connections
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.ensemble_change import EnsembleChanger
from spark_bookkeeper.ledger.last_confirmed import believable_claim, lac_evidence
from spark_bookkeeper.ledger.protocol.placement import choose_ensemble
from spark_bookkeeper.ledger.recovery import shut_out_writer
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.mutants.collection import COLLECTION
from tests.mutants.compaction import COMPACTION
from tests.mutants.crashes import CRASHES
from tests.mutants.doubt import DOUBT
from tests.mutants.dropping import DROPPING
from tests.mutants.mending import MENDING
from tests.mutants.planting import DirectedMutants
from tests.mutants.sockets import SOCKETS

_DISKS = "tests/bookie_server/storage/test_identity.py"
_CRASHES = "tests/bookie_server/storage/test_identity_crashes.py"
_DOUBT = "tests/bookie_server/storage/test_doubt.py"
_STARTS = "tests/bookie_server/test_identity.py"
_COOKIES = "tests/metadata/test_cookies.py"
_LIMBO = "tests/bookie_server/test_limbo.py"
_ADMISSION = "tests/bookie_server/core/test_admission.py"
_HELD = "tests/spark_bookkeeper/ledger/test_held_places.py"
_SHORTAGE = "tests/spark_bookkeeper/ledger/test_shortage.py"
_MOVED = "tests/spark_bookkeeper/ledger/test_moved_bookies.py"
_CLOSING = "tests/spark_bookkeeper/ledger/test_closing.py"
_READING = "tests/spark_bookkeeper/ledger/test_reading.py"
_LAC = "tests/spark_bookkeeper/ledger/test_last_confirmed.py"


mutant = DirectedMutants()

# -- identity: which directories a bookie may start on ------------------------------------------------

mutant(
    "emptied_directory_starts",
    "an emptied directory of a known bookie is taken for a new one (#544, #2305)",
    _DISKS,
    "test_an_emptied_directory_is_refused_by_name_until_it_is_said_to_be_lost",
).edit(_Planner._refuse_missing, {"if self._applicant.may_replace:": "if True:"})
mutant(
    "kept_records_are_believed",
    "records kept without a cookie are taken for all there are",
    _DISKS,
    "test_a_kept_directory_is_doubtful_before_its_cookie_is_there",
).edit(mark_as_own, {"mark_doubtful(files, path)": "pass"})
mutant(
    "doubted_too_late",
    "a directory gets its new cookie before it is said that records may be missing",
    _DISKS,
    "test_a_kept_directory_is_doubtful_before_its_cookie_is_there",
).edit(
    mark_as_own,
    {
        "    mark_doubtful(files, path)": "    pass",
        "for path in settings.directories:": (
            "for path in plan.doubtful:\n    mark_doubtful(files, path)\n"
            "for path in settings.directories:"
        ),
    },
)
mutant(
    "doubt_is_no_damage",
    "the storage opens kept records as if none could be missing",
    _DOUBT,
    "test_an_old_copy_that_is_kept_denies_nothing_and_shows_what_it_has",
).edit(_Recovery.load, {"if is_doubtful(self._files, directory):": "if False:"})
mutant(
    "old_disks_start",
    "disks that were all rolled back together are believed",
    _DISKS,
    "test_an_old_copy_of_a_disk_is_refused",
).edit(_Planner._count, {"start.number < max(applicant.starts, highest - 1)": "False"})
mutant(
    "clone_starts",
    "of two starts with one number the second is believed: the disks are a copy",
    _DISKS,
    "test_a_start_that_another_process_counted_on_other_disks_is_no_start_of_ours",
).edit(_Planner._count, {"applicant.starts: start.start_id,": ""})
mutant(
    "uncounted_clone_starts",
    "disks one start ahead are believed whichever start theirs followed",
    _DISKS,
    "test_a_start_counted_on_disk_only_has_to_follow_the_one_that_the_metadata_knows",
).edit(_Planner._count, {"applicant.starts + 1: start.previous_id,": ""})
mutant(
    "full_disk_bricks",
    "behind restored metadata each start that fails half way moves one disk further ahead",
    _DISKS,
    "test_a_full_disk_bricks_no_bookie_whose_metadata_is_older",
).edit(
    _Planner._count,
    {"number = highest + 1 if len(numbers) == 1 else highest": "number = highest + 1"},
)
mutant(
    "foreign_cluster_starts",
    "directories of a bookie of the same id in another cluster are taken",
    _DISKS,
    "test_directories_of_another_bookie_or_cluster_are_refused",
).edit(_Planner._refuse_foreign, {"cookie.cluster_id != self._applicant.cluster_id": "False"})
mutant(
    "swapped_directories_start",
    "a directory is known by its path, whatever its cookie says",
    _DISKS,
    "test_swapped_directories_are_refused_with_the_place_they_had",
).edit(_Planner._refuse_misplaced, {"and own == expected.directory_id": ""})
mutant(
    "forgotten_is_known",
    "the count of a bookie that was forgotten still calls empty directories lost ones",
    _DISKS,
    "test_disks_of_a_bookie_that_was_forgotten_stay_old_and_empty_ones_are_new",
).edit(_Planner.__init__, {" and not applicant.is_forgotten": ""})
mutant(
    "index_is_no_record",
    "a directory of which only the index is left counts as empty",
    _DISKS,
    "test_whatever_of_a_bookie_is_in_a_directory_makes_it_no_empty_one",
).edit(_look, {" or INDEX_NAME in names": ""})
mutant(
    "looked_at_before_the_locks",
    "what another process counted before it gave up the locks is not seen",
    "tests/bookie_server/test_identity.py",
    "test_a_start_that_began_before_another_one_ended_does_not_make_the_disks_strangers",
).edit(
    claim_identity,
    {"        recorded = await cookies.read(bookie_id)\n        plan": "        plan"},
)
mutant(
    "counted_before_cookies",
    "the start is counted in a directory before all of them have their cookies",
    _CRASHES,
    "test_a_start_that_a_crash_cut_short_is_finished_by_the_next[first]",
).edit(
    mark_as_own,
    {
        "for path, cookie in plan.cookies:": (
            "for path in settings.directories:\n"
            "    write_start(files, path, plan.start)\n"
            "for path, cookie in plan.cookies:"
        )
    },
)
mutant(
    "new_cookies_last",
    "a directory that replaces another gets its cookie last: a crash leaves a set without it",
    _CRASHES,
    "test_a_start_that_a_crash_cut_short_is_finished_by_the_next[adding]",
).edit(_Planner.plan, {"each.path not in self._fresh)": "each.path in self._fresh)"})

# -- identity: two processes, and what the metadata knows ------------------------------------------------

mutant(
    "both_start",
    "of two processes that start at once the one that lost the count goes on",
    _STARTS,
    "test_two_that_start_at_once_on_other_directories_are_told_apart",
).edit(claim_identity, {"raise StorageRefusedError(cause.path, _ANOTHER) from cause": "pass"})
mutant(
    "superseded_goes_on",
    "a process does not look whether another one has started under its id",
    _STARTS,
    "test_a_later_start_on_other_directories_ends_the_earlier_process",
).edit(Identity.watch, {"if start_id != self._counter.start_id:": "if False:"})
mutant(
    "older_metadata_accepts_itself",
    "restored metadata is trusted again from the second start on",
    _STARTS,
    "test_older_metadata_stays_marked_until_it_is_accepted",
).edit(
    claim_identity,
    {"plan.is_metadata_older or counter.is_metadata_older": "plan.is_metadata_older"},
)
mutant(
    "forgotten_starts_anew",
    "forgetting a bookie forgets its count, so that its old disks count as new again",
    _STARTS,
    "test_a_forgotten_bookie_may_begin_anew",
).edit(
    CookieStore.delete,
    {"StartCounter(recorded.counter.starts + 1, is_forgotten=True)": "StartCounter(0)"},
)
mutant(
    "cookie_read_from_a_laggard",
    "whether an id has a cookie is asked of a follower that may not know it yet",
    _COOKIES,
    "test_a_lagging_session_knows_of_a_cookie_all_the_same",
).edit(CookieStore._nodes, {"await self._store.sync(self._paths.root)": "pass"})

# -- limbo ---------------------------------------------------------------------------------------------

mutant(
    "limbo_of_a_laggards_ledgers",
    "which ledgers a lost disk may not deny is asked of a follower that may not know them all",
    _LIMBO,
    "test_an_emptied_bookie_denies_nothing_of_the_ledgers_that_name_it",
).edit(put_ledgers_in_limbo, {"await store.sync(root)": "pass"})
mutant(
    "limbo_of_the_last_fragment",
    "a lost disk denies what it stored of earlier fragments",
    _LIMBO,
    "test_an_emptied_bookie_denies_nothing_of_the_ledgers_that_name_it",
).edit(state_after_loss, {"metadata.bookie_ids": "metadata.last_fragment.ensemble"})
mutant(
    "registered_predecessor_ignored",
    "the metadata is asked while writers may still choose the killed predecessor",
    _STARTS,
    "test_a_look_at_the_metadata_waits_for_the_registration_of_a_killed_predecessor",
).edit(wait_until_unregistered, {"if not await registry.is_registered(bookie_id):": "if True:"})

# -- held places ------------------------------------------------------------------------------------------

mutant(
    "away_is_nobody",
    "a bookie that is away is not known by its cookie, so that no place is held for it",
    _HELD,
    "test_a_ledger_is_created_without_a_bookie_that_is_away",
).edit(LedgerContext._usable_and_away, {"frozenset(cookies) | ": ""})
mutant(
    "places_beyond_the_ack_quorum",
    "a ledger is made although too few bookies are there to acknowledge its entries",
    _HELD,
    "test_what_cannot_be_acknowledged_is_not_created",
).edit(choose_ensemble, {"max(wanted.ack_quorum, min(writable_min, wanted.write_quorum))": "0"})
mutant(
    "min_write_quorum_ignored",
    "minWriteQuorum asks for more copies than the ack quorum, and is not heard",
    _HELD,
    "test_more_copies_may_be_asked_for_than_acknowledge",
).edit(
    choose_ensemble,
    {"max(wanted.ack_quorum, min(writable_min, wanted.write_quorum))": "wanted.ack_quorum"},
)
mutant(
    "held_before_striped",
    "a place is held where striping over fewer bookies would do",
    _HELD,
    "test_a_ledger_is_striped_over_fewer_before_a_place_is_held",
).edit(
    choose_ensemble,
    {
        "min(wanted.ensemble_size, max(len(candidates), wanted.write_quorum))": "wanted.ensemble_size"
    },
)

# -- short of bookies -------------------------------------------------------------------------------------

mutant(
    "suspects_left_alone_for_ever",
    "a writer without its ack quorum waits for the end of a quarantine",
    _SHORTAGE,
    "test_a_writer_short_of_bookies_goes_on_as_soon_as_one_is_registered_again",
).edit(EnsembleChanger._look, {"frozenset[str]() if is_needed else": ""})
mutant(
    "every_try_ends_the_shortage",
    "bookies that are tried in vain start a writer's wait anew",
    _SHORTAGE,
    "test_trying_suspects_in_vain_lengthens_no_wait",
).edit(WriteHandle._wait_for_bookies, {"shortage is None and state.is_settled": "shortage is None"})
mutant(
    "taking_turns",
    "bookies that refuse every add replace each other for ever",
    _SHORTAGE,
    "test_bookies_that_refuse_at_once_do_not_take_turns_for_ever",
).edit(EnsembleChanger._left_alone, {"frozenset((*newly, *alone))": "frozenset(newly)"})
mutant(
    "address_learned_once",
    "a fence that nobody answers does not look where the bookies are now",
    _MOVED,
    "test_a_recovery_finds_them",
).edit(Connections.look_for_moves, {"await self._try_refresh()": "pass"})

# -- freshness, LAC limits ------------------------------------------------------------------------------

mutant(
    "opened_from_a_laggard",
    "an open answers from a follower that does not know the ledger or its end yet",
    _READING,
    "test_a_session_that_lags_behind_the_creation_finds_the_ledger_and_its_end",
).edit(LedgerClient._open, {"await self._sync()": "pass"})
mutant(
    "claims_are_believed",
    "an explicit LAC beyond every entry a bookie holds is believed",
    _LAC,
    "test_a_hint_is_believed_as_far_as_entries_reach",
).edit(believable_claim, {" if each.claimed <= held": ""})
mutant(
    "copied_lac_proves",
    "the LAC of an entry that re-replication packaged is taken for proof of that LAC",
    _LAC,
    "test_an_answer_is_worth_what_of_it_verifies",
).edit(lac_evidence, {"header.last_add_confirmed >= header.entry_id": "False"})

# -- admission, deletion ----------------------------------------------------------------------------------

mutant(
    "early_lac_admitted",
    "an add says that its own entry is confirmed already, and is stored",
    _ADMISSION,
    "test_an_impossible_lac_is_refused",
).edit(_is_plausible, {"may_know_itself=section.is_recovery": "may_know_itself=True"})
mutant(
    "re_replication_refused",
    "a recovery add with a LAC above its entry, as Apache's re-replication sends, is refused",
    _ADMISSION,
    "test_an_impossible_lac_is_refused",
).edit(_is_plausible, {"may_know_itself=section.is_recovery": "may_know_itself=False"})
mutant(
    "limbo_stored",
    "an add to a ledger in limbo is stored, where a fence may have been lost",
    _LIMBO,
    "test_an_emptied_bookie_denies_nothing_of_the_ledgers_that_name_it",
).edit(Admission._refuse_writer, {"handle is not None and handle.is_limbo": "False"})
mutant(
    "tombstone_ignored",
    "#4462: a late add creates a deleted ledger again",
    _ADMISSION,
    "test_a_deleted_ledger_is_not_created_again_by_a_late_add",
).edit(Admission._refuse, {"if ledger_id in self._durable.tombstones or": "if"})
mutant(
    "forced_deletion_fences_nobody",
    "a forced deletion leaves the writer unfenced: its late adds are acknowledged",
    _CLOSING,
    "test_a_forced_deletion_fences_the_writer_all_the_same",
).edit(shut_out_writer, {"if not versioned.metadata.is_closed:": "if False:"})
mutant(
    "deletion_of_any_version",
    "a deletion that was held up deletes a ledger created anew under its id",
    _CLOSING,
    "test_a_deletion_deletes_the_ledger_it_fenced_and_no_other",
).edit(LedgerClient.delete_ledger, {"delete(ledger_id, versioned.version)": "delete(ledger_id)"})

DIRECTED = mutant.all() | CRASHES | COLLECTION | COMPACTION | DOUBT | DROPPING | MENDING | SOCKETS
