"""Bugs in the order of what is written and synced, which the crash states must notice."""

from __future__ import annotations

from bookie_server.identity import claim_identity
from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.contents import Contents
from bookie_server.storage.disk.overlay import OverlayFile
from bookie_server.storage.disk.stamps import is_blank
from bookie_server.storage.identity.cookie_file import _replace
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.index.rebuild import rebuild_rows
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_files import JournalFiles
from bookie_server.storage.logs.entry_log import _LogWriter, write_entry_log
from bookie_server.storage.recovery import _Recovery
from tests.mutants.planting import DirectedMutants

_STATES = "tests/bookie_server/storage/test_crash_states.py"
_STARTS = "tests/bookie_server/storage/test_whole_starts.py"
_CRASHES = "tests/bookie_server/storage/test_crashes.py"
_LAPS = "tests/bookie_server/storage/test_laps.py"
_EXPLORED = "test_no_crash_loses_denies_or_invents_anything[{}-0]"
_STARTED = "test_no_crash_of_a_start_keeps_the_next_from_starting[new_bookie]"

mutant = DirectedMutants()

mutant(
    "journal_name_unsynced",
    "the directory is not synced behind the name of a new journal file",
    _STATES,
    _EXPLORED.format("roll"),
).edit(JournalFiles.begin, {"self._files.sync_dir(self._directory)": "pass"})
mutant(
    "journal_renamed_unsynced",
    "a journal file gets its name before its header is synced",
    _STATES,
    _EXPLORED.format("roll"),
).edit(JournalFiles.begin, {"following.file.sync()": "pass"})
mutant(
    "roll_record_unwritten",
    "a journal file is left without the record that names the next one, so nobody misses that",
    _STATES,
    _EXPLORED.format("lost_journal"),
).edit(
    Journal._roll,
    {"self._write_durably(record, self._size_of(record))": "pass"},
)
mutant(
    "lap_not_counted",
    "a journal file that is written again bears the stamps of the lap before",
    _STATES,
    _EXPLORED.format("laps"),
).edit(JournalFiles.retire, {"lap + 1": "lap"})
mutant(
    "kept_file_without_header",
    "a journal file that is written again keeps the header of the lap before",
    _STATES,
    _EXPLORED.format("laps"),
).edit(
    JournalFiles.begin,
    {
        "following.file.write_at(0, [encode_file_header(header)])": (
            "following.lap > 1 or following.file.write_at(0, [encode_file_header(header)])"
        )
    },
)
mutant(
    "damage_taken_for_a_torn_write",
    "a sector that bears no stamp counts as one that was not reached",
    _LAPS,
    "test_a_damaged_header_of_the_last_group_is_not_taken_for_the_end[ones-3]",
).edit(is_blank, {"(_laps(data, offset) < lap)": "(_laps(data, offset) != lap)"})
mutant(
    "log_unsynced",
    "BOOKKEEPER-447: the index is committed before the entry log that it names is synced",
    _STATES,
    _EXPLORED.format("checkpoint"),
).edit(_LogWriter._sync, {"self._file.sync()": "pass"})
mutant(
    "log_name_unsynced",
    "the directory is not synced behind the name of a new entry log",
    _STATES,
    _EXPLORED.format("checkpoint"),
).edit(write_entry_log, {"files.sync_dir(directory)": "pass"})
mutant(
    "mark_before_the_index",
    "a directory's marks move before its index has the entries in front of them",
    _STATES,
    _EXPLORED.format("checkpoint"),
).edit(
    Checkpoints._write_directory,
    {
        "try:\n    if ledger_ids:": "try:\n    index.commit(IndexDelta(state, marks))\n    if ledger_ids:"
    },
)
mutant(
    "journal_deleted_before_the_mark",
    "journal files are deleted when a checkpoint begins, not when all directories have committed it",
    _STATES,
    _EXPLORED.format("checkpoint"),
).edit(
    Checkpoints._write,
    {
        "handles = {": (
            "for number, directory in enumerate(self._settings.journal_directories):\n"
            "    doomed = [id for id in file_ids(self._files, directory) if id < plan.marks[number].file_id]\n"
            "    for file_id in doomed:\n"
            '        self._files.delete(f"{directory}/{file_name(file_id)}")\n'
            "    self._files.sync_dir(directory)\n"
            "handles = {"
        )
    },
)
mutant(
    "journal_deleted_for_one_mark",
    "journal files go when one directory's mark is behind them, not when all are",
    _STATES,
    _EXPLORED.format("deletion"),
).edit(
    Checkpoints._write,
    {
        "min(index.marks[journal_index] for index in self._indexes)": (
            "self._indexes[0].marks[journal_index]"
        )
    },
)
mutant(
    "leftover_unsynced",
    "a log that a killed process had not synced is listed after damage, and its journal deleted",
    _STATES,
    _EXPLORED.format("kept"),
).edit(rebuild_rows, {"file.sync()": "pass"})
mutant(
    "index_renamed_unsynced",
    "a snapshot of the index replaces the old one before it is synced",
    _STATES,
    _EXPLORED.format("snapshot"),
).edit(DirectoryIndex._replace_file, {"file.sync()": "pass"})
mutant(
    "leftovers_kept",
    "entry logs that a crash left behind are kept for ever",
    _STATES,
    _EXPLORED.format("deletion"),
).edit(_Recovery.settle, {"self._delete_orphans(contents)": "pass"})
mutant(
    "sealed_start_unsynced",
    "a start that writes nothing answers for what the process before it had not synced",
    _STATES,
    _EXPLORED.format("sealed"),
).edit(OverlayFile.sync, {"self._content.below.sync()": "pass"})
mutant(
    "cookie_renamed_unsynced",
    "a cookie file replaces the old one before it is synced",
    _STARTS,
    _STARTED,
).edit(_replace, {"file.sync()": "pass"})
mutant(
    "cookie_in_the_metadata_first",
    "the metadata has the cookie before the disks have theirs",
    _STARTS,
    _STARTED,
).edit(
    claim_identity,
    {
        "locks = await asyncio.to_thread(": (
            "await cookies.write_cookie(_cookie(settings, cluster_id), recorded)\n"
            "recorded = await cookies.read(bookie_id)\n"
            "locks = await asyncio.to_thread("
        )
    },
)
mutant(
    "limbo_of_one_directory",
    "limbo that a crash kept from one of two directories is forgotten by the second start",
    _CRASHES,
    "test_limbo_that_only_one_directory_heard_of_is_kept_for_good",
).edit(_Recovery.restore, {"len(known) == 1": "True"})
mutant(
    "marks_of_the_others",
    "for a directory that lost its index the marks of the others count",
    _CRASHES,
    "test_a_crash_within_the_start_behind_a_lost_index_costs_nothing_more",
).edit(_Recovery.load, {" + [ORIGIN for _ in lost]": ""})
mutant(
    "burial_without_tombstones",
    "a burial takes the tombstones and writes none, and the marks move on behind them",
    _STATES,
    _EXPLORED.format("burial"),
).edit(Contents.begin_burial, {"plan_burial(tombstones, drops)": "plan_burial([], drops)"})
mutant(
    "burial_without_room_forgotten",
    "the tombstones of a burial without room are not written later",
    _STATES,
    _EXPLORED.format("burial_without_room"),
).edit(Contents.return_burial, {"[*plan.tombstones, *self._new_tombstones]": "[]"})
mutant(
    "late_add_of_a_deleted_ledger",
    "an add that another journal has brings a deleted ledger back",
    _STATES,
    _EXPLORED.format("burial"),
).edit(Contents._is_deleted, {"ledger_id not in self.tombstones": "True"})
mutant(
    "snapshot_without_the_half_committed",
    "a burial's snapshot leaves out what one directory has committed of a checkpoint",
    _STATES,
    _EXPLORED.format("burial_without_room"),
).edit(DirectoryIndex._replace_file, {"if self._hidden_rows else []": "if False else []"})

CRASHES = mutant.all()
