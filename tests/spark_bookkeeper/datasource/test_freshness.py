"""A read sees what was committed before it, also by a session whose metadata server lags behind."""

from __future__ import annotations

import pytest

from tests.spark_bookkeeper.datasource.lag import Lag
from tests.spark_bookkeeper.datasource.rows import RAW, raw_batch
from tests.spark_bookkeeper.datasource.streaming import EARLIEST, StreamQuery, ends, values
from tests.spark_bookkeeper.datasource.test_optimize import (
    collect,
    optimize,
    planned_before,
    read_later,
)
from tests.spark_bookkeeper.datasource.world import FakeSpark

OLD, NEW = [b"0", b"1"], [b"2", b"3"]


@pytest.fixture
def lag(world: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> Lag:
    """Of a log of two commits, of which the session has heard of the first only."""
    world.write([[raw_batch(*OLD)]], RAW, payloadformat="raw")
    lag = Lag(world, monkeypatch)
    world.write([[raw_batch(*NEW)]], RAW, payloadformat="raw")
    return lag


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"endingoffsets": "latest"},
        {"startingoffsets": "earliest"},
        {"startingoffsets": '{"row":1}'},
    ],
    ids=["default", "ending", "starting", "row"],
)
def test_a_batch_read_planned_behind_a_commit_has_its_rows(
    world: FakeSpark, lag: Lag, options: dict[str, str]
) -> None:
    """Where an action is planned, another process may have found the log."""
    found = world.find(**options)
    lag.begin()

    rows = values(world.read_planned(*found))

    assert rows == [*OLD, *NEW][4 - len(rows) :]
    assert rows[-2:] == NEW


def test_a_latest_start_skips_all_that_was_committed(world: FakeSpark, lag: Lag) -> None:
    lag.begin()

    assert values(world.read(startingoffsets="latest")) == []


@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_stream_started_behind_a_commit_has_its_rows_in_its_first_batch(
    world: FakeSpark, lag: Lag, is_available_now: bool
) -> None:
    query = StreamQuery(world, **EARLIEST)
    lag.begin()
    query.restart(is_available_now=is_available_now)

    assert values(query.trigger()) == [*OLD, *NEW]


def test_a_run_resumed_behind_a_commit_has_its_rows_in_its_first_batch(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write([[raw_batch(*OLD)]], RAW, payloadformat="raw")
    query = StreamQuery(world, **EARLIEST)
    query.trigger()
    lag = Lag(world, monkeypatch)
    world.write([[raw_batch(b"4")]], RAW, payloadformat="raw")
    lag.begin()
    query.restart()

    assert values(query.trigger()) == [b"4"]


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_stream_that_has_found_its_log_asks_again_where_it_begins_and_ends(
    world: FakeSpark, lag: Lag, is_available_now: bool, start: str
) -> None:
    """Spark may ask much later, and what was committed meanwhile was committed before the run."""
    query = StreamQuery(world, startingoffsets=start)
    lag.begin()
    if is_available_now:
        query.follower.pin_target()

    assert values(query.trigger()) == ([*OLD, *NEW] if start == "earliest" else [])
    assert ends(query)[0]["row"] == 4


def test_a_task_that_lags_behind_an_optimize_and_its_collection_finds_its_rows(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (*OLD, *NEW):
        world.write([[raw_batch(value)]], RAW, payloadformat="raw")
    planned = planned_before(world)
    lag = Lag(world, monkeypatch)
    assert optimize(world).ranges_after == 1
    collect(world)
    lag.begin()

    assert values(read_later(world, planned)) == [*OLD, *NEW]
    assert lag.is_over
