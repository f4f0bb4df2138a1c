"""Each judge accepts a right history and refuses the wrong ones it is there for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.spark.checkers import (
    Block,
    Row,
    ViolationError,
    check_batches_ascend,
    check_batches_once,
    check_no_hole,
    check_nothing_orphaned,
    check_only_grows,
    check_order,
    check_rows,
    check_whole_batches,
)

RIGHT = [
    Block("q", 0, 10, 1_000, 0, 5),
    Block("q", 0, 11, 1_000, 5, 5),
    Block("p", 0, 12, 1_001, 10, 5),
    Block("q", 1, 13, 1_002, 15, 5),
]


def test_batches_of_two_queries_side_by_side_are_right() -> None:
    check_batches_once(RIGHT)
    check_batches_ascend(RIGHT)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([*RIGHT, replace(RIGHT[0], ledger_id=20)], "batch visible twice"),
        ([RIGHT[0], replace(RIGHT[1], commit_ms=2_000)], "batch committed twice"),
        ([*RIGHT, replace(RIGHT[3], batch_id=2)], "ledgers visible twice"),
    ],
)
def test_a_batch_or_a_ledger_twice_is_refused(wrong: list[Block], says: str) -> None:
    with pytest.raises(ViolationError, match=says):
        check_batches_once(wrong)


def test_batches_out_of_order_are_refused() -> None:
    with pytest.raises(ViolationError, match="batch 0 after 1"):
        check_batches_ascend([RIGHT[3], RIGHT[0]])


@pytest.mark.parametrize("seen", [[1, 2], [1, 2, 3, 3], [1, 2, 4], []])
def test_rows_lost_doubled_or_foreign_are_refused(seen: list[int]) -> None:
    check_rows([3, 1, 2], [1, 2, 3])

    with pytest.raises(ViolationError, match="rows too many"):
        check_rows(seen, [1, 2, 3])


@pytest.mark.parametrize("seen", [[1], [1, 2, 3], [3, 4], [1, 2, 1, 2]])
def test_a_batch_in_part_or_out_of_turn_is_refused(seen: list[int]) -> None:
    batches, right = [[1, 2], [3, 4]], [[], [2, 1], [1, 2, 3, 4]]
    assert [check_whole_batches(each, batches) for each in right] == [0, 1, 2]

    with pytest.raises(ViolationError, match="no whole number of batches"):
        check_whole_batches(seen, batches)


ROWS = [Row(0, 7, 5), Row(1, 7, 6), Row(2, 8, 1)]


@pytest.mark.parametrize("wrong", [Row(0, 8, 9), Row(2, 8, 9)])
def test_holes_are_refused(wrong: Row) -> None:
    check_no_hole(ROWS)

    with pytest.raises(ViolationError, match="follows 0"):
        check_no_hole([ROWS[0], wrong])


@pytest.mark.parametrize("wrong", [Row(1, 7, 4), Row(1, 7, 5)])
def test_rows_out_of_order_are_refused(wrong: Row) -> None:
    check_order(ROWS)

    with pytest.raises(ViolationError, match="stands behind 5"):
        check_order([ROWS[0], wrong])


@pytest.mark.parametrize("after", [RIGHT[1:], RIGHT[:2], [RIGHT[0], *RIGHT[2:], RIGHT[1]]])
def test_visible_ranges_that_vanish_or_move_are_refused(after: list[Block]) -> None:
    check_only_grows(RIGHT[:3], RIGHT)

    with pytest.raises(ViolationError, match="visible ranges changed"):
        check_only_grows(RIGHT[:3], after)


def test_orphans_lost_ledgers_and_nodes_left_are_refused() -> None:
    check_nothing_orphaned(ledgers=[1, 2], named=[1, 2], nodes=[])

    with pytest.raises(ViolationError, match="orphan ledgers"):
        check_nothing_orphaned(ledgers=[1, 2], named=[1], nodes=[])
    with pytest.raises(ViolationError, match="named and gone"):
        check_nothing_orphaned(ledgers=[1], named=[1, 2], nodes=[])
    with pytest.raises(ViolationError, match="nodes left"):
        check_nothing_orphaned(ledgers=[1], named=[1], nodes=["tokens/0000000001"])
