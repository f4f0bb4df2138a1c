"""Logs of which little lives, and many small ones, become few; nothing is lost or found twice on the way."""

from __future__ import annotations

import errno
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_server.core.presence import Presence
from bookie_server.core.records import Add, Replace, Tombstone
from bookie_server.storage.compaction.rules import LogShare, choose_logs, is_wasteful
from bookie_server.storage.disk.errors import NoRoomError
from bookie_server.storage.logs.entry_log import log_ids
from bookie_server.storage.logs.id_pattern import IdPattern
from bookie_server.storage.logs.rows import Block, LedgerRows, Row, pack_row
from tests.simulation.kit.storage_model import READ_SIZE, Model, open_small, run_of, started

_LEDGERS = "/ledgers0"
_MERGED_AT = 8


def logs(model: Model) -> list[int]:
    return log_ids(model.files, _LEDGERS)


def rows_of(model: Model, ledger_id: int) -> list[Row]:
    (index,) = model.storage.checkpoints._indexes
    return list(index.rows[ledger_id])


def trickled(checkpoints: int = 10, ledgers: int = 2) -> Model:
    """One entry of each ledger for each checkpoint."""
    model = started(directories=1)
    for number in range(checkpoints):
        for ledger_id in range(1, ledgers + 1):
            model.write([Add(run_of(ledger_id, [number]))])
        model.checkpoint()
    return model


def test_many_small_logs_and_rows_become_one() -> None:
    model = trickled()
    assert len(logs(model)) == 10

    chosen = choose_logs(model.storage.checkpoints.survey(0), 50, _MERGED_AT)
    assert chosen == logs(model)
    model.compact(0, chosen)

    assert logs(model) == [11]
    for ledger_id in (1, 2):
        assert [row.pattern for row in rows_of(model, ledger_id)] == [IdPattern(0, 10, 0, 1)]
    assert choose_logs(model.storage.checkpoints.survey(0), 50, _MERGED_AT) == []
    model.restart()
    model.check(model.storage, "restarted")
    assert logs(model) == [11]


def test_a_trickle_keeps_few_logs_however_long_it_lasts() -> None:
    model = started(directories=1)
    most = 0
    for number in range(300):
        model.write([Add(run_of(1, [number]))])
        model.checkpoint()
        while chosen := choose_logs(model.storage.checkpoints.survey(0), 50, _MERGED_AT):
            model.compact(0, chosen)
        most = max(most, len(logs(model)))
    assert most <= 3 * _MERGED_AT
    assert len(rows_of(model, 1)) <= 3 * _MERGED_AT


def test_what_is_left_of_a_sparse_log_is_copied_and_it_is_deleted() -> None:
    model = started(directories=1)
    for ledger_id in range(1, 11):
        model.write([Add(run_of(ledger_id, range(10), size=1000))])
    model.checkpoint()
    model.write([Tombstone(2, 10)])
    model.bury()
    assert logs(model) == [1]

    (share,) = model.storage.checkpoints.survey(0)
    assert share.live_bytes < 0.2 * share.size_bytes
    assert choose_logs([share], 20, _MERGED_AT) == [1]
    model.compact(0, [1])

    assert logs(model) == [2]
    (share,) = model.storage.checkpoints.survey(0)
    assert share.live_bytes > 0.8 * share.size_bytes


@pytest.mark.conformance("S6")
def test_a_damaged_block_pins_its_log() -> None:
    """Without its row the bookie would deny entries that it once acknowledged."""
    model = trickled(checkpoints=4, ledgers=1)
    (broken,) = [row for row in rows_of(model, 1) if row.pattern.start == 2]
    model.files.content(f"{_LEDGERS}/{broken.block.log_id:016x}.log")[broken.block.offset] ^= 1
    result = model.storage.checkpoints.compact(0, logs(model))
    assert result.pinned == {broken.block.log_id}

    model.show(result)
    model.storage.contents.finish_burial(
        model.storage.checkpoints.bury(burial)
        if (burial := model.storage.contents.begin_burial())
        else pytest.fail("three logs are emptied")
    )

    assert logs(model) == [broken.block.log_id, 5]
    outcome = model.storage.execute(
        model.storage.contents.plan_read(1, 0, 3, size_bytes_max=READ_SIZE)
    )
    assert outcome.of(Presence.DAMAGED) == [(2, 2)]
    assert outcome.of(Presence.ABSENT) == []


@pytest.mark.conformance("S6")
def test_what_is_replaced_or_deleted_meanwhile_is_left_alone() -> None:
    model = trickled()
    result = model.storage.checkpoints.compact(0, logs(model))
    model.write([Replace(run_of(1, [3, 4], salt=9))])
    model.write([Tombstone(2, 2)])
    model.show(result)
    model.check(model.storage, "moved")
    model.checkpoint()
    model.bury()
    model.check(model.storage, "buried")
    model.restart()
    model.check(model.storage, "restarted")


def test_a_reader_that_planned_before_is_told_that_its_log_is_gone() -> None:
    model = trickled()
    plan = model.storage.contents.plan_read(1, 0, 9, size_bytes_max=READ_SIZE)
    model.compact(0, logs(model))

    outcome = model.storage.execute(plan)

    assert outcome.is_outdated
    again = model.storage.contents.plan_read(1, 0, 9, size_bytes_max=READ_SIZE)
    assert not model.storage.execute(again).is_outdated


@pytest.mark.conformance("S6")
def test_a_compaction_without_room_at_any_call_changes_nothing_or_stops_the_bookie() -> None:
    calls = trickled()
    before = calls.files.steps
    calls.compact(0, logs(calls))
    outcomes: set[str] = set()
    for number in range(before, calls.files.steps):
        model = trickled()
        model.files.fail_at = {number: errno.ENOSPC}
        try:
            model.compact(0, logs(model))
        except NoRoomError:
            outcomes.add("later")
            assert len(logs(model)) == 10
            model.check(model.storage, f"no room at {number}")
            model.files.fail_at = {}
            model.compact(0, logs(model))
        except Exception as error:  # noqa: BLE001 - the bookie ends
            outcomes.add(type(error).__name__)
            model.storage.close()
            model.storage = open_small(model.files.crash(Random(number), lambda _: "keep"), 1)
        model.check(model.storage, f"after {number}")
    assert "later" in outcomes


def test_the_emptiest_logs_go_first_and_only_as_many_as_one_step_may_copy() -> None:
    mib = 1 << 20
    shares = [LogShare(n, 100 * mib, live * mib) for n, live in enumerate((90, 40, 10, 30, 19))]
    assert choose_logs(shares, 50, _MERGED_AT) == [2, 3, 4]
    assert choose_logs(shares, 15, _MERGED_AT) == [2]
    assert choose_logs(shares, 5, _MERGED_AT) == []
    large = [LogShare(n, 1000 * mib, 300 * mib) for n in range(3)]
    assert choose_logs(large, 50, _MERGED_AT) == [0]


def test_dead_shares_that_are_small_in_each_log_add_up() -> None:
    half = [LogShare(n, 100, 50) for n in range(3)]
    whole = [LogShare(n, 100, 100) for n in range(3, 9)]
    assert is_wasteful(half, 80)
    assert is_wasteful([*half, *whole[:4]], 80)
    assert not is_wasteful([*half, *whole], 80)
    assert not is_wasteful(half, 0)
    assert not is_wasteful([], 80)


def test_logs_of_one_size_are_merged_when_there_are_several() -> None:
    small = [LogShare(n, 5000, 4500) for n in range(_MERGED_AT - 1)]
    assert choose_logs(small, 50, _MERGED_AT) == []
    larger = LogShare(50, 1 << 20, 1 << 20)
    assert choose_logs([*small, larger], 50, _MERGED_AT) == []
    assert choose_logs([*small, larger, LogShare(51, 5000, 4500)], 50, _MERGED_AT) == [
        *range(7),
        51,
    ]


PATTERNS = st.builds(
    IdPattern, st.integers(0, 40), st.integers(1, 3), st.integers(4, 6), st.integers(1, 3)
).map(lambda p: p if p.count > 1 else IdPattern(p.start, p.size, 0, 1))


@pytest.mark.parametrize("few_rows", [0, 8, 1000])
@given(
    patterns=st.lists(PATTERNS, max_size=6),
    chosen=st.sets(st.integers(0, 5)),
    forgotten=st.sets(st.integers(0, 60)),
)
def test_moving_rows_keeps_every_id_where_it_belongs(
    few_rows: int, patterns: list[IdPattern], chosen: set[int], forgotten: set[int]
) -> None:
    rows = LedgerRows()
    for number, pattern in enumerate(patterns):
        rows.insert(Row(pattern, Block(number, 64, 10, 0, len(pattern))))
    homes = {id: row.block.log_id for row in rows for id in row.entry_ids}
    copied = sorted(id for id, log_id in homes.items() if log_id in chosen)
    new = LedgerRows()
    for entry_id in copied:
        new.insert(Row(IdPattern(entry_id, 1, 0, 1), Block(99, 64, 10, 0, 1)))
    lost = sorted(forgotten & homes.keys())
    if lost:
        rows.remove(lost)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bookie_server.storage.logs.rows._FEW_ROWS", few_rows)
        rows.move([(log_id, 64) for log_id in chosen], new)

    found = {id: row.block.log_id for row in rows for id in row.entry_ids}
    kept = {id: log_id for id, log_id in homes.items() if id not in forgotten}
    assert found == {id: 99 if log_id in chosen else log_id for id, log_id in kept.items()}
    spans = [(row.pattern.start, row.pattern.last) for row in rows]
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    assert b"".join(map(pack_row, rows)) == rows.packed()


def test_a_survey_counts_blocks_once_and_a_ledger_of_many_rows_piece_by_piece() -> None:
    """A look at 200,000 rows in one step kept all threads waiting for a fifth of a second."""
    rows = LedgerRows(
        b"".join(
            pack_row(Row(IdPattern(n, 1, 0, 1), Block(1 + n // 15_000, 64 + n // 2 * 10, 7, 0, 2)))
            for n in range(20_000)
        )
    )
    found: dict[int, tuple[int, int]] = {}
    pieces = 0
    for log_id, size_bytes, count in rows.shares():
        pieces += 1
        before = found.get(log_id, (0, 0))
        found[log_id] = before[0] + size_bytes, before[1] + count
    # A block at the end of a piece may count twice.
    assert 7 * 7_500 <= found[1][0] <= 7 * 7_503
    assert 2_500 <= found[2][1] <= 2_503
    assert pieces < 8
    assert rows.log_ids() == {1, 2}
    few = LedgerRows(rows.packed()[: 4 * 48])
    assert sorted(few.shares()) == [(1, 7, 1), (1, 7, 1)]
