"""One ledger that cannot be read keeps its own rows from a rewrite, and no others'."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookkeeper_metadata.errors import NoSuchLedgerError
from spark_bookkeeper.datasource.optimize import run
from spark_bookkeeper.datasource.optimize.run import OptimizeReport, optimize_log, rewrite_here
from spark_bookkeeper.datasource.options.parse import parse_write_options
from spark_bookkeeper.ledger.errors import NotEnoughBookiesError
from spark_bookkeeper.log.rules.grouping import GroupLimits, groups_of
from tests.spark_bookkeeper.datasource.rows import ids
from tests.spark_bookkeeper.datasource.streaming import append
from tests.spark_bookkeeper.datasource.world import HERE, FakeSpark

LIMITS = GroupLimits(ranges_min=2)
RANGE_ROWS = 10


def optimize(world: FakeSpark) -> OptimizeReport:
    given = parse_write_options({"log": "orders"}, HERE)
    return optimize_log(world.session, "orders", LIMITS, rewrite_here(world.session, given))


def fill(world: FakeSpark, ranges: int) -> list[int]:
    """Ranges of ten rows; returns their ledgers."""
    for at in range(ranges):
        append(world, at * RANGE_ROWS, RANGE_ROWS)
    return list(world.client.ledgers)


def sizes(world: FakeSpark) -> list[int]:
    """Rows of each range that the log lists now."""
    return [item.rows for item in world.client.run(world.nodes().head()).head.ranges]


def test_the_ranges_on_either_side_of_a_lost_ledger_are_rewritten(world: FakeSpark) -> None:
    ledgers = fill(world, 12)
    lost = {at: world.client.ledgers.pop(ledgers[at]) for at in (3, 7, 8)}

    report = optimize(world)

    assert sizes(world) == [30, 10, 30, 10, 10, 30]
    assert report.failures == [
        f"rows from {at * RANGE_ROWS} on: BK_NO_SUCH_LEDGER: {NoSuchLedgerError(ledgers[at])}"
        for at in (3, 7, 8)
    ]
    assert world.tokens() == []
    for at, ledger in lost.items():
        world.client.ledgers[ledgers[at]] = ledger
    assert ids(world.read()) == list(range(120))


def test_a_ledger_that_is_short_of_rows_is_left_alone_as_well(world: FakeSpark) -> None:
    ledgers = fill(world, 7)
    world.client.ledgers[ledgers[3]].payloads.pop(0)

    report = optimize(world)

    assert sizes(world) == [30, 10, 30]
    assert [line.partition(":")[0] for line in report.failures] == ["rows from 30 on"]


def test_what_cannot_be_written_is_no_ledgers_fault(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without bookies to write to it would be tried again around each of the ledgers."""
    fill(world, 6)
    tries = 0

    def unavailable(**_: object) -> None:
        nonlocal tries
        tries += 1
        raise NotEnoughBookiesError(3, ())

    monkeypatch.setattr(world.client, "create_ledger", unavailable)

    report = optimize(world)

    assert sizes(world) == [10] * 6
    assert (tries, len(report.failures)) == (1, 1)


def test_a_log_of_which_everything_is_lost_is_not_tried_range_by_range(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "UNREADABLE_MAX", 3)
    for ledger_id in fill(world, 12):
        world.client.ledgers[ledger_id].payloads.pop(0)

    report = optimize(world)

    assert sizes(world) == [10] * 12
    assert len(report.failures) == 3


def test_any_number_is_grouped_around_as_long_as_something_is_rewritten(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next runs would begin with the same ledgers again, and never come further."""
    monkeypatch.setattr(run, "UNREADABLE_MAX", 2)
    ledgers = fill(world, 24)
    for at in range(3, 24, 4):
        world.client.ledgers[ledgers[at]].payloads.pop(0)

    report = optimize(world)

    assert sizes(world) == [30, 10] * 6
    assert len(report.failures) == 6


def test_a_wrong_password_is_no_ledgers_fault(world: FakeSpark) -> None:
    """Each ledger would be tried, one after the other."""
    fill(world, 6)
    given = parse_write_options({"log": "orders", "password": "wrong"}, HERE)

    report = optimize_log(world.session, "orders", LIMITS, rewrite_here(world.session, given))

    assert sizes(world) == [10] * 6
    assert len(report.failures) == 1
    assert report.failures[0].startswith("rows from 0 on: BK_UNAUTHORIZED")


def test_a_ledger_with_odd_marks_keeps_its_own_rows_only(world: FakeSpark) -> None:
    ledgers = fill(world, 7)
    odd = world.client.ledgers[ledgers[3]]
    marks = {**odd.metadata.custom_metadata, "sparkBatchId": b"9" * 70}
    odd.metadata = replace(odd.metadata, custom_metadata=marks)

    assert len(optimize(world).failures) == 1
    assert sizes(world) == [30, 10, 30]


def test_a_ledger_to_leave_alone_parts_its_neighbours(world: FakeSpark) -> None:
    fill(world, 7)
    ranges = world.client.run(world.nodes().head()).head.ranges
    limits = GroupLimits(ranges_min=2, unreadable=frozenset({ranges[3].ledger_id}))

    assert groups_of(ranges, limits) == [tuple(ranges[:3]), tuple(ranges[4:])]
