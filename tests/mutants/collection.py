"""Bugs of garbage collection, each in one of the layers that would hide it from a simulated cluster."""

from __future__ import annotations

from bookie_server.collection.collector import Collector
from bookie_server.collection.counter import CollectionCounter
from bookie_server.collection.rules import Comparison, still_gone, tombstones
from bookie_server.core.admission import Admission
from bookie_server.reads.fetching import Fetcher
from bookie_server.reads.reader import Reader
from bookie_server.storage.burial import delete_unused
from bookie_server.storage.identity.start_plan import _Planner
from bookkeeper_metadata.ledgers import LedgerStore
from tests.mutants.planting import DirectedMutants

_COLLECTOR = "tests/bookie_server/collection/test_collector.py"
_COUNTER = "tests/bookie_server/collection/test_counter.py"
_RULES = "tests/bookie_server/collection/test_rules.py"
_BURIAL = "tests/bookie_server/storage/test_burial.py"
_DELETING = "tests/bookie_server/test_deleting.py"
_LEDGERS = "tests/metadata/test_ledgers.py"

mutant = DirectedMutants()

mutant(
    "collected_at_first_sight",
    "a ledger is deleted that one listing left out",
    _COLLECTOR,
    "test_a_ledger_that_is_listed_again_counts_as_never_gone",
).edit(still_gone, {"each.ledger_id in known and ": ""})
mutant(
    "future_ids_collected",
    "a tombstone covers an id that is still to be given out",
    _COLLECTOR,
    "test_an_id_above_the_counter_is_left_alone",
).edit(still_gone, {" and each.ledger_id < bound": ""})
mutant(
    "stalled_creator_forgotten",
    "the id of a creator that stalls counts as a deleted ledger's",
    _COLLECTOR,
    "test_an_id_under_which_a_ledger_may_be_created_is_left_alone_for_ever",
).edit(Collector.collect, {"await self._ledgers.ids_being_created()": "()"})
mutant(
    "id_unseen_before_its_ledger",
    "the node that shows a drawn id goes before the ledger is there, as with Apache's clients",
    _LEDGERS,
    "test_a_drawn_id_is_shown_until_its_ledger_is_created_and_not_beyond_its_session",
).edit(LedgerStore._create_at, {"[Delete(drawn.node, 0)] if drawn is not None else []": "[]"})
mutant(
    "never_asked_by_name",
    "YBK-183: what a listing leaves out is deleted, though the ledger is there",
    _COLLECTOR,
    "test_a_listing_that_is_wrong_deletes_nothing_that_lives[cut short]",
).edit(Collector._delete, {"confirmed(batch, are_gone)": "batch"})
mutant(
    "unordered_listing_believed",
    "a listing that jumps back is believed all the same",
    _RULES,
    "test_a_listing_that_does_not_ascend_is_no_listing",
).edit(Comparison.see, {"if listed <= self._last_listed:": "if False:"})
mutant(
    "stretch_over_the_living",
    "a tombstone covers whatever lies between two deleted ledgers",
    _RULES,
    "test_one_tombstone_covers_a_stretch_in_which_nothing_is_known",
).edit(tombstones, {"each.is_next and ranges": "ranges"})
mutant(
    "stretch_over_the_new",
    "a tombstone covers a ledger that came to the bookie since the comparison",
    _COLLECTOR,
    "test_an_entry_that_comes_to_a_stretch_of_ids_is_not_covered_by_it",
).edit(tombstones, {" and not _is_between(others, ranges[-1][1], each.ledger_id)": ""})
mutant(
    "suspects_take_adds",
    "an entry is acknowledged between the last look at the metadata and the tombstone",
    _COLLECTOR,
    "test_a_ledger_created_at_the_last_moment_is_kept",
).edit(Admission.suspect, {"frozenset(ledger_ids)": "frozenset()"})
mutant(
    "doomed_take_adds",
    "an entry is taken behind a tombstone that is on its way to the disk",
    _DELETING,
    "test_adds_are_refused_from_the_moment_a_deletion_is_on_its_way",
).edit(Admission._refuse, {" or self._is_being_deleted(ledger_id)": ""})
mutant(
    "metadata_counts_first",
    "a collection counts in the metadata before the disks: a restored copy looks like the newest",
    _COUNTER,
    "test_disks_count_before_the_metadata",
).edit(
    CollectionCounter.count,
    {
        "writing = asyncio": (
            "await self._cookies.count_start(\n"
            "    self._bookie_id, replace(counter, collections=target), recorded\n"
            ")\n"
            "writing = asyncio"
        )
    },
)
mutant(
    "restored_copy_believed",
    "metadata restored from before the last collection deletes what was created since",
    _COUNTER,
    "test_metadata_of_before_the_last_collection_is_not_believed_until_it_is_accepted",
).edit(
    CollectionCounter.count,
    {"self._confirmed <= counter.collections <= self._start.collections": "True"},
)
mutant(
    "restored_copy_believed_by_a_start",
    "a start does not notice that the metadata has counted fewer collections than its disks",
    _COUNTER,
    "test_a_start_finds_metadata_that_counts_two_collections_less_than_the_disks",
).edit(_Planner._count, {" or collections > applicant.collections + 1": ""})
mutant(
    "log_of_others_deleted",
    "#4607: a log that no row names is deleted whoever its footer says is in it",
    _BURIAL,
    "test_a_log_whose_entries_were_all_replaced_is_no_deletion",
).edit(
    delete_unused,
    {'all(id in buried or says_dropped(handles.get(id, b"\\0")) for id in ledger_ids)': "True"},
)
mutant(
    "unread_log_forgotten",
    "a dead log that could not be read once is never deleted",
    _BURIAL,
    "test_a_dead_log_that_cannot_be_read_is_tried_again",
).edit(delete_unused, {'became["unread"].append(log_id)': "pass"})
mutant(
    "deleted_log_is_damage",
    "a reader that planned before takes a deleted log for a lost one",
    _DELETING,
    "test_a_read_planned_before_goes_on_behind_the_deletion_of_its_log",
).edit(Fetcher.fetch, {"range(_PLANS_OUTDATED_MAX)": "range(0)"})
mutant(
    "deleted_ledger_denied",
    "a bookie proves by its denial that a ledger it deleted was never there",
    _DELETING,
    "test_a_deleted_ledger_takes_gives_and_denies_nothing",
).edit(Reader._absence, {"ledger_id in self._contents.tombstones": "False"})

COLLECTION = mutant.all()
