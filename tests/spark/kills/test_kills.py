"""Drivers killed at every named point of a micro-batch: its rows are visible once, or not yet."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.spark.drivers import CALL_TIMEOUT_S, DRIVER_ENDED, DriverError
from tests.spark.kills.campaign import REPLAY
from tests.spark.kills.gate import Moment, Point, Trap
from tests.spark.kills.query import run_files
from tests.spark.kills.scene import Scene

# Every kill costs a start of a JVM.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, cluster: LocalCluster, bk: BookKeeper, tmp_path: Path
) -> Scene:
    return Scene(cluster, bk, tmp_path, request.node.name.removeprefix("test_")[:60])


def kill_at(scene: Scene, point: Point, moment: Moment, nth: int) -> None:
    """Run a driver until it dies there."""
    with scene.gate() as gate, scene.driver() as driver:
        trap = gate.set(Trap(point, moment, nth, kill=driver.kill))
        running = driver.begin(run_files, source=str(scene.source), options=scene.options(gate))
        ended_before(running, trap)


def ended_before(running: Future[object], trap: Trap) -> None:
    with pytest.raises(DriverError, match=DRIVER_ENDED):
        running.result(CALL_TIMEOUT_S)
    trap.wait()


def finish(scene: Scene) -> tuple[list[int], int]:
    """A driver that nothing happens to: its batches, and how many replays it said it skipped."""
    with scene.gate() as gate, scene.driver() as driver:
        batches = driver.call(run_files, source=str(scene.source), options=scene.options(gate))
        return batches, driver.log().count(REPLAY)


def test_four_kills_and_every_row_once(scene: Scene) -> None:
    """Before the write, with the multi on its way, applied unheard of, and in the sweep."""
    scene.add_batches(4)

    # given a driver that dies when its first task is about to say so
    kill_at(scene, Point.CLAIM, Moment.REQUEST, 1)
    assert scene.check_now() == 0

    # and one that dies before the multi of its second batch leaves
    kill_at(scene, Point.COMMIT, Moment.REQUEST, 2)
    assert scene.check_now() == 1

    # and one that dies when its multi is applied and nobody knows
    kill_at(scene, Point.COMMIT, Moment.REPLY, 1)
    assert (scene.check_now(), scene.last_noted_batch()) == (2, 0)

    # and one that replays that batch (whose first epoch a collection may sweep), and dies before
    # its last request of the next
    kill_at(scene, Point.SWEEP_JOB, Moment.REQUEST, 1)
    assert (scene.check_now(), scene.last_noted_batch()) == (3, 1)

    # when a driver is left alone
    batches, replays = finish(scene)

    # then it skips what was committed, once, and every row is there once
    assert batches == [2, 3]
    assert replays == 1
    scene.check_done()
