"""Drivers killed at every named point of a micro-batch: its rows are visible once, or not yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.demo.stream import REPLAY_LINE
from spark_bookkeeper.ledger.errors import NoSuchEntryError
from tests.patience import seconds
from tests.spark.checkers import check_rows
from tests.spark.drivers import CALL_TIMEOUT_S, DRIVER_ENDED, DriverError
from tests.spark.held_source import Hold
from tests.spark.kills import query
from tests.spark.kills.campaign import Campaign
from tests.spark.kills.gate import Moment, Point, Trap
from tests.spark.kills.moves import held
from tests.spark.kills.query import FILES_PER_BATCH
from tests.spark.kills.scene import Scene
from tests.spark.leftovers import assert_nothing_left
from tests.spark.waits import wait_until
from tests.spark.witness import Witness

# Every kill costs a start of a JVM.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]


def kill_at(
    scene: Scene,
    point: Point,
    moment: Moment,
    nth: int = 1,
    run: Callable[..., object] = query.run,
    *,
    behind: Point | None = None,
    **arguments: Any,
) -> None:
    """Run a driver until it dies there."""
    with scene.gate() as gate, scene.driver() as driver:
        trap = gate.set(Trap(point, moment, nth, kill=driver.kill, behind=behind))
        options = scene.options(gate)
        running = driver.begin(run, source=scene.source.arguments, options=options, **arguments)
        with pytest.raises(DriverError, match=DRIVER_ENDED):
            running.result(seconds(CALL_TIMEOUT_S))
        trap.wait()


def kill_in_the_write(scene: Scene, hold: Hold, bk: BookKeeper) -> None:
    """Run a driver until bookies hold an entry of a ledger that is still open, and kill it."""
    with scene.gate() as gate, scene.driver() as driver:
        options = {**scene.options(gate), **held(hold, "all")}
        running = driver.begin(query.run, source=scene.source.arguments, options=options)
        hold.wait_for_held(1, lambda: not running.done())
        # What a task has appended is on its way, not yet at the bookies, when it is held.
        wait_until(
            lambda: any(
                holds_an_entry(bk, ledger_id)
                for epoch in scene.witness.tokens()
                for ledger_id in scene.witness.token_ledgers(epoch)
            ),
            "an entry at a bookie",
        )
        driver.kill()
        with pytest.raises(DriverError, match=DRIVER_ENDED):
            running.result(seconds(CALL_TIMEOUT_S))


def holds_an_entry(bk: BookKeeper, ledger_id: int) -> bool:
    """Whether an open ledger's first entry is anywhere."""
    with suppress(NoSuchEntryError):
        ledger = bk.open_ledger(ledger_id)
        return not ledger.is_closed and bool(list(ledger.read_unconfirmed(0, 0)))
    return False


def finish(
    scene: Scene, run: Callable[..., object] = query.run, **arguments: Any
) -> tuple[list[int], int]:
    """A driver that nothing happens to: its batches, and how many replays it said it skipped."""
    with scene.driver() as driver:
        source, options = scene.source.arguments, scene.options()
        batches = driver.call(run, source=source, options=options, **arguments)
        return batches, driver.log().count(REPLAY_LINE)


def test_four_kills_and_every_row_once(scene: Scene, hold: Hold, bk: BookKeeper) -> None:
    """In a write, with the multi not sent, with it applied unheard of, and in the sweep."""
    scene.add_batches(4)

    # given a driver that dies when bookies hold entries of a ledger that is still open
    kill_in_the_write(scene, hold, bk)
    assert scene.check_now() == 0

    # and one that dies before the multi of its second batch leaves
    kill_at(scene, Point.COMMIT, Moment.REQUEST, 2)
    assert scene.check_now() == 1

    # and one that dies when its multi is applied and nobody knows
    kill_at(scene, Point.COMMIT, Moment.REPLY)
    assert (scene.check_now(), scene.last_noted_batch()) == (2, 0)

    # and one that replays that batch, commits the next, and dies before its sweep
    kill_at(scene, Point.SWEEP, Moment.REQUEST, behind=Point.COMMIT)
    assert (scene.check_now(), scene.last_noted_batch()) == (3, 1)

    # when a driver is left alone
    batches, replays = finish(scene)

    # then it skips what was committed, once, and every row is there once
    assert batches == [2, 3]
    assert replays == 1
    scene.check_done()


BEFORE, BEHIND = 0, 1
"""Whether the batch is visible after the kill."""


@pytest.mark.full
@pytest.mark.parametrize("scene", ["files", "log"], indirect=True)
def test_a_kill_at_each_point_leaves_the_batch_whole_and_once(scene: Scene) -> None:
    points = [
        (Point.PLAN, Moment.DELIVERED, 1, BEFORE),
        (Point.CLAIM, Moment.REPLY, 1, BEFORE),
        (Point.LEDGER, Moment.REPLY, 1, BEFORE),
        (Point.CLOSE, Moment.DELIVERED, FILES_PER_BATCH, BEFORE),
        (Point.COMMIT, Moment.REQUEST, 1, BEFORE),
        (Point.COMMIT, Moment.REPLY, 1, BEHIND),
        (Point.COMMIT, Moment.DELIVERED, 1, BEHIND),
        (Point.SWEEP, Moment.REQUEST, 1, BEHIND),
        (Point.SWEEP, Moment.REPLY, 1, BEHIND),
    ]
    for point, moment, nth, is_visible in points:
        done = scene.check_now()
        scene.add_batches(1)

        kill_at(scene, point, moment, nth)

        # Neither is Spark told, nor anything half shown.
        assert (scene.check_now(), scene.last_noted_batch()) == (done + is_visible, done - 1)
        _, replays = finish(scene)
        assert (replays, scene.check_now()) == (is_visible, done + 1), (point, moment)
    scene.check_done()


@pytest.mark.full
def test_a_kill_in_the_sweep_of_what_an_earlier_driver_left_loses_nothing(scene: Scene) -> None:
    """Its epoch is swept beside the one that commits, step by step."""
    for point, moment in (
        (Point.SWEEP_CHILD, Moment.REPLY),
        (Point.SWEEP_TOKEN, Moment.REQUEST),
        (Point.SWEEP_EPOCH, Moment.REPLY),
        (Point.SWEEP_JOB, Moment.REQUEST),
    ):
        done = scene.check_now()
        scene.add_batches(1)
        kill_at(scene, Point.CLOSE, Moment.DELIVERED, FILES_PER_BATCH)
        assert scene.check_now() == done

        kill_at(scene, point, moment, behind=Point.COMMIT)

        assert (scene.check_now(), scene.last_noted_batch()) == (done + 1, done - 1)
        _, replays = finish(scene)
        assert (replays, scene.check_now()) == (1, done + 1), (point, moment)
    scene.check_done()


@pytest.mark.full
def test_a_foreach_batch_killed_between_two_logs_appends_to_each_once(
    scene: Scene, cluster: LocalCluster, bk: BookKeeper
) -> None:
    logs = [f"{scene.log}-a", f"{scene.log}-b"]
    witnesses = [Witness(cluster.metadata_service_uri, log) for log in logs]
    before = set(bk.list_ledgers())
    scene.add_batches(2)
    arguments: dict[str, Any] = {"logs": logs, "app_id": "two-logs"}

    kill_at(scene, Point.COMMIT, Moment.REQUEST, 2, query.run_into_two_logs, **arguments)
    visible = [len(list(witness.rows())) for witness in witnesses]
    batches, replays = finish(scene, query.run_into_two_logs, **arguments)

    assert visible == [query.BATCH_ROWS, 0]
    assert (batches, replays) == ([0, 1], 1)
    others = set()
    for log in logs:
        others |= {item.ledger_id for item in bk.open_log(log).ledgers()}
    for log, witness in zip(logs, witnesses, strict=True):
        check_rows((row.value for row in witness.rows()), range(2 * query.BATCH_ROWS))
        assert witness.txns() == {"two-logs": 1}
        own = {item.ledger_id for item in bk.open_log(log).ledgers()}
        assert_nothing_left(bk, log, before | (others - own), days_later=8)


@pytest.mark.full
@pytest.mark.parametrize("moment", [Moment.REQUEST, Moment.REPLY])
def test_a_query_in_complete_mode_killed_at_its_commit_replaces_the_log_once(
    scene: Scene, moment: Moment
) -> None:
    scene.add_batches(2)

    kill_at(scene, Point.COMMIT, moment, 2, query.run_complete, groups=7)
    seen = [row.value for row in scene.witness.rows()]
    batches, replays = finish(scene, query.run_complete, groups=7)

    is_applied = moment is Moment.REPLY
    assert (len(seen), sum(seen)) == (7, query.BATCH_ROWS * (1 + is_applied))
    assert (batches, replays) == ([1], is_applied)
    counts = [row.value for row in scene.witness.rows()]
    assert (len(counts), sum(counts)) == (7, query.BATCH_ROWS * 2)
    scene.check_nothing_left()


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("seed", "scene"), [(1, "files"), (2, "log")], indirect=["scene"])
def test_drivers_killed_at_random_points_add_every_row_once(scene: Scene, seed: int) -> None:
    counts = Campaign(scene, seed, drivers=10).run()

    assert counts.kills.total() >= 5, counts
