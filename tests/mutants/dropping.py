"""Bugs of who drops copies too many."""

from __future__ import annotations

from bookie_server.bookie import Bookie
from bookie_server.collection.peers import Peers
from bookie_server.collection.surplus import SurplusDropper
from bookie_server.core.admission import Admission
from bookie_server.integrity.integrity_check import IntegrityCheck
from bookie_server.storage.burial import delete_unused
from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.contents import Contents
from bookie_server.storage.index.directory import DirectoryIndex
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.replication.mending import LedgerMender
from tests.mutants.planting import DirectedMutants

_SURPLUS = "tests/bookie_server/collection/test_surplus.py"
_DROPPING = "tests/bookie_server/storage/test_dropping.py"
_COPIES = "tests/spark_bookkeeper/replication/test_dropped_copies.py"

mutant = DirectedMutants()

mutant(
    "open_ledger_dropped",
    "the copy of a ledger is dropped whose writer may change its ensemble",
    _SURPLUS,
    "test_what_may_be_counted_on_is_kept[open]",
).edit(
    SurplusDropper._known_surplus,
    {
        "not metadata.is_closed or ": "",
        "last_entry is None or last_entry > metadata.last_entry": "False",
    },
)
mutant(
    "last_fragment_alone_counts",
    "a bookie drops a ledger of which it is to hold the beginning",
    _SURPLUS,
    "test_what_may_be_counted_on_is_kept[own at first]",
).edit(
    SurplusDropper._known_surplus, {"in metadata.fragments for": "in metadata.fragments[-1:] for"}
)
mutant(
    "dropped_while_a_member_is_away",
    "a copy is dropped while a bookie that is to hold one is not there",
    _SURPLUS,
    "test_what_may_be_counted_on_is_kept[of a bookie that is away]",
).edit(Peers._holds, {"return False\nclient = self": "return address is None\nclient = self"})
mutant(
    "dropped_unasked",
    "a copy is dropped though the bookies that the metadata names may have none",
    _SURPLUS,
    "test_what_a_member_does_not_show_is_kept[has no such ledger]",
).edit(SurplusDropper._known_surplus, {"if await peers.hold_all(ledger_id, metadata)": "if True"})
mutant(
    "beginning_is_enough",
    "a copy is dropped though a member of the ensemble lacks an entry",
    _SURPLUS,
    "test_what_a_member_does_not_show_is_kept[lacks an entry]",
).edit(Peers._holds, {"not any(share.lacks(listed.held) for share in shares)": "bool(listed.held)"})
mutant(
    "silent_member_holds",
    "a copy is dropped while nobody knows what a member of the ensemble holds",
    _SURPLUS,
    "test_what_a_member_does_not_show_is_kept[is silent]",
).edit(
    Peers._holds,
    {"return is_known and not": "return not is_known or not"},
)
mutant(
    "silent_member_asked_again",
    "a look waits for a bookie that hangs as often as it has ledgers",
    _SURPLUS,
    "test_a_member_that_hangs_is_waited_for_once",
).edit(Peers._holds, {"self._silent.add(bookie_id)": "pass"})
mutant(
    "readonly_member_is_away",
    "copies stay for ever beside members that only serve reads",
    _SURPLUS,
    "test_a_member_that_only_serves_reads_is_enough",
).edit(Peers.__aenter__, {"await self._registry.readonly() | ": ""})
mutant(
    "connections_of_a_look_stay",
    "each look at copies too many leaves connections to all other bookies behind",
    _SURPLUS,
    "test_no_connection_outlives_its_look[False]",
).edit(
    Peers.__aexit__,
    {"await asyncio.gather(*(client.close() for client in self._clients.values()))": "pass"},
)
mutant(
    "damage_outlives_a_drop",
    "entries that were damaged before their ledger was dropped count as damaged when they come again",
    _SURPLUS,
    "test_what_was_damaged_of_a_dropped_ledger_is_forgotten",
).edit(Bookie.drop, {"self.verifier.forget(ledger_id)": "pass"})
mutant(
    "restored_metadata_believed",
    "copies are dropped for the sake of metadata that is a restored copy",
    _SURPLUS,
    "test_it_looks_at_every_interval_while_the_metadata_is_believed",
).edit(SurplusDropper.run, {"is_metadata_believed() and ": ""})
mutant(
    "suspects_of_others_forgotten",
    "a look at copies too many has adds taken of what a collection is about to delete",
    _SURPLUS,
    "test_it_waits_for_a_collection_that_suspects_ledgers",
).edit(SurplusDropper._drop, {"async with self._bookie.suspicion:": "if True:"})
mutant(
    "marked_ledger_dropped",
    "a copy is dropped of a ledger that lacks some",
    _SURPLUS,
    "test_a_marked_ledger_is_kept_and_one_that_somebody_mends",
).edit(SurplusDropper._drop_one, {"and await self._marks.read(ledger_id) is None": ""})
mutant(
    "dropped_without_the_lock",
    "a copy is dropped while somebody mends its ledger",
    _SURPLUS,
    "test_a_marked_ledger_is_kept_and_one_that_somebody_mends",
).edit(SurplusDropper._drop_one, {"is_renewed = (\nis_held": "is_renewed = (\nTrue"})
mutant(
    "dropped_at_an_old_answer",
    "a copy is dropped at the word of a follower that lags behind",
    _SURPLUS,
    "test_an_old_answer_drops_nothing",
).edit(
    LedgerStore.renew,
    {
        "(BadVersionError, NoNodeError):\nreturn False": "(BadVersionError, NoNodeError):\n    return True"
    },
)
mutant(
    "suspects_stay",
    "a bookie takes no copies any more of what it looked at",
    _SURPLUS,
    "test_a_lost_reply_drops_nothing_that_it_should_not[Fault.LOST_REPLY]",
).edit(SurplusDropper._drop, {"await self._bookie.suspect(())": "pass"})
mutant(
    "cancelled_release_forgotten",
    "a lock whose release was cancelled is never given back",
    "tests/metadata/test_underreplication.py",
    "test_a_lock_whose_release_was_cancelled_is_given_back_later",
).edit(Underreplication._give_back, {"else:": "finally:"})
mutant(
    "entries_behind_the_end_dropped",
    "the only copies are dropped of what an operator has ended a ledger before, in error",
    _SURPLUS,
    "test_entries_behind_the_end_of_their_ledger_are_kept",
).edit(SurplusDropper._known_surplus, {"last_entry is None or last_entry > metadata.last_entry": "False"})  # fmt: skip
mutant(
    "limbo_ends_in_denials_of_a_part",
    "limbo ends of a ledger that others hold a part of, and what it lost of that is denied",
    _COPIES,
    "test_limbo_of_a_ledger_that_others_hold_a_part_of_ends_without_a_denial",
).edit(IntegrityCheck.read, {"all(self._bookie_id in": "any(self._bookie_id in"})
mutant(
    "locks_stay",
    "a lock whose release got no reply is never given back",
    _SURPLUS,
    "test_a_lost_reply_drops_nothing_that_it_should_not[Fault.LOST_REQUEST]",
).edit(Underreplication._give_back, {"else:": "finally:"})
mutant(
    "limbo_dropped",
    "a ledger is dropped of which is not known what should be here",
    _DROPPING,
    "test_only_what_rests_in_logs_may_be_dropped",
).edit(Contents.may_drop, {" or self.ledgers[ledger_id].is_limbo": ""})
mutant(
    "dropped_in_a_checkpoint",
    "a ledger is dropped whose entries a checkpoint is writing",
    _DROPPING,
    "test_only_what_rests_in_logs_may_be_dropped",
).edit(Contents.may_drop, {"in self._caches": "in (self._cache,)"})
mutant(
    "may_drop_not_asked",
    "a ledger is dropped that is not at rest",
    _SURPLUS,
    "test_a_ledger_in_limbo_is_kept_and_one_that_is_in_no_log_yet",
).edit(Bookie.drop, {" and self._contents.may_drop(ledger_id)": ""})
mutant(
    "drop_does_not_fence",
    "what a bookie denies its former writer may add",
    _SURPLUS,
    "test_it_may_come_again_and_stays_then",
).edit(Contents._apply, {"handle.is_fenced = handle.is_dropped = True": "handle.is_dropped = True"}).edit(
    Admission.on_durable, {"if state.fence_ticket == ticket": "if False"}
)  # fmt: skip
mutant(
    "drops_without_room_forgotten",
    "drops that a full disk had no room for are in no index later",
    _DROPPING,
    "test_a_burial_without_room_is_made_again",
).edit(Contents.return_burial, {"self._dropped.update(self.ledgers.keys() & plan.drops)": "pass"})
mutant(
    "dropped_ledger_denied",
    "a bookie proves by its denial that an entry never was which it dropped",
    _COPIES,
    "test_what_was_dropped_is_not_denied_to_who_has_an_older_copy_of_the_metadata[(2, 2, 2)-1-]",
).edit(Contents._apply, {"handle.is_fenced = handle.is_dropped = True": "handle.is_fenced = True"})
mutant(
    "limbo_ends_in_denials",
    "limbo of a ledger that others hold ends, and what it lost is denied",
    _COPIES,
    "test_limbo_of_a_ledger_that_others_hold_ends_without_a_denial",
).edit(Contents.end_limbo, {"handle.is_dropped = handle.is_dropped or not may_deny": "pass"})
mutant(
    "drop_in_the_first_directory",
    "a burial writes a drop into the first index alone",
    _DROPPING,
    "test_what_is_dropped_is_so_in_every_directory[bury]",
).edit(Checkpoints._commit, {"dropped, tombstones = sorted(plan.drops),": "dropped, tombstones = sorted(plan.drops) if index.index == 0 else [],"})  # fmt: skip
mutant(
    "drop_in_the_first_directory_of_a_checkpoint",
    "a checkpoint writes a drop into the first index alone",
    _DROPPING,
    "test_what_is_dropped_is_so_in_every_directory[checkpoint]",
).edit(Checkpoints._write_directory, {"dropped = sorted(plan.dropped)": "dropped = sorted(plan.dropped) if index.index == 0 else []"})  # fmt: skip
mutant(
    "drops_count_for_nothing",
    "a log of dropped ledgers is taken for what damage has left",
    _DROPPING,
    "test_a_log_goes_once_all_of_it_is_dropped[False]",
).edit(delete_unused, {' or says_dropped(handles.get(id, b"\\0"))': ""})
mutant(
    "drop_takes_what_came_behind_it",
    "a start that finds a drop in an index forgets what came again with it",
    _DROPPING,
    "test_what_comes_again_in_the_same_checkpoint_is_kept",
).edit(DirectoryIndex._apply_group, {"self.move_rows(delta.moved)": "self.move_rows(delta.moved)\nself.bury(delta.dropped)"})  # fmt: skip
mutant(
    "drop_in_no_index",
    "a checkpoint forgets what was dropped, and its marks move on",
    _DROPPING,
    "test_a_start_finds_a_drop_in_the_journal_and_in_the_index",
).edit(Checkpoints._write_directory, {"dropped = sorted(plan.dropped)": "dropped = []"})
mutant(
    "named_though_dropped",
    "a mender names a bookie that has dropped meanwhile what it was sent",
    _COPIES,
    "test_what_is_dropped_between_its_copy_and_its_naming_is_copied_again",
).edit(LedgerMender._put_in_place, {"if metadata.is_closed and metadata is not known.metadata:": "if False:"})  # fmt: skip

DROPPING = mutant.all()
