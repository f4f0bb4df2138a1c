"""Bugs of compaction, in what is copied, in what order, and in what goes."""

from __future__ import annotations

from bookie_server.compaction_loop import CompactionLoop
from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.compaction.rewrite import _Source, rewrite
from bookie_server.storage.compaction.rules import choose_logs
from bookie_server.storage.contents import Contents
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.logs.rows import LedgerRows
from tests.mutants.planting import DirectedMutants

_STATES = "tests/bookie_server/storage/test_crash_states.py"
_EXPLORED = "test_no_crash_loses_denies_or_invents_anything[{}-0]"
_COMPACTION = "tests/bookie_server/storage/test_compaction.py"
_COMPACTING = "tests/bookie_server/test_compacting.py"

mutant = DirectedMutants()

mutant(
    "moved_though_replaced",
    "a row is replaced though it points elsewhere by now",
    _STATES,
    _EXPLORED.format("compaction_overtaken"),
).edit(
    LedgerRows._move_few, {"if gone_count != sum(len(row.pattern) for row in added):": "if False:"}
)
mutant(
    "damaged_block_dropped",
    "a damaged block goes with its log, and the bookie denies its entries",
    _COMPACTION,
    "test_a_damaged_block_pins_its_log",
).edit(
    _Source._runs_of,
    {
        " and whole is not None": "",
        "self.pinned.add(block.log_id)": "pass",
    },
)
mutant(
    "unlinked_before_the_index",
    "BOOKKEEPER-530, #1534: the old logs go before the index names the new one",
    _STATES,
    _EXPLORED.format("compaction"),
).edit(
    rewrite,
    {
        "if moved:\n    state =": (
            "for log_id_ in chosen:\n"
            "    files.delete(f'{index.directory}/{file_name(log_id_)}')\n"
            "files.sync_dir(index.directory)\n"
            "if moved:\n    state ="
        )
    },
)
mutant(
    "moves_left_out_of_snapshots",
    "an index that is written anew has the rows of before a compaction, whose logs go",
    _STATES,
    _EXPLORED.format("compaction").replace("-0", "-1").replace("-0", "-2").replace("-0", "-1"),
).edit(DirectoryIndex._replace_file, {"parts[-1].moved = delta.moved": "pass"})
mutant(
    "moves_left_out_of_loads",
    "a start finds entries where they were before a compaction",
    _STATES,
    _EXPLORED.format("compaction"),
).edit(DirectoryIndex._apply_group, {"self.move_rows(delta.moved)": "pass"})
mutant(
    "emptied_logs_kept",
    "logs that a compaction has emptied stay until the next start",
    _COMPACTION,
    "test_many_small_logs_and_rows_become_one",
).edit(
    Contents.finish_compaction,
    {"result.directory_index, result.log_ids": "result.directory_index, ()"},
)
mutant(
    "copy_without_room_left_behind",
    "the part of a log that found no room stays, and takes what room there is",
    _COMPACTION,
    "test_a_compaction_without_room_at_any_call_changes_nothing_or_stops_the_bookie",
).edit(
    Checkpoints.compact,
    {'self._files.delete(f"{index.directory}/{log_name(log_id)}")': "pass"},
)
mutant(
    "merged_never",
    "logs are rewritten when little of them lives, however many small ones there are",
    _COMPACTION,
    "test_a_trickle_keeps_few_logs_however_long_it_lasts",
).edit(choose_logs, {"len(few) < merge_count": "True"})
mutant(
    "half_dead_for_an_hour",
    "a log that a living ledger keeps among deleted ones waits for the next major round",
    _COMPACTING,
    "test_a_log_that_is_half_dead_waits_for_no_major_round",
).edit(CompactionLoop._choose, {" or is_wasteful(open_shares, major_percent)": ""})
mutant(
    "unpaced",
    "one step follows the other as fast as the disk can",
    _COMPACTING,
    "test_the_next_step_waits_as_long_as_the_last_ones_bytes_take",
).edit(CompactionLoop.step, {"pace_s if copied_bytes else interval_s": "0"})
mutant(
    "compacts_into_the_reserve",
    "a copy takes what is kept for fences",
    _COMPACTING,
    "test_a_sparse_log_is_rewritten_on_a_disk_that_is_short_of_room",
).edit(CompactionLoop._room_bytes, {"if free_bytes is None:": "if True:"})

COMPACTION = mutant.all()
