"""What the tests of a query's fate do to it: run it, and hold its messages and tasks where they hurt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from spark_bookkeeper.log.cleaning.sweep import SweepReport
from tests.patience import seconds
from tests.spark.drivers import CALL_TIMEOUT_S, Driver
from tests.spark.held_source import Hold
from tests.spark.kills import query
from tests.spark.kills.gate import Gate, Message, Moment, Point, Trap
from tests.spark.kills.scene import DAYS_LATER, Scene
from tests.spark.leftovers import collect


def start(
    driver: Driver,
    scene: Scene,
    changes: Mapping[str, str] | None = None,
    *,
    name: str = "first",
    partitions: int | None = None,
) -> None:
    """Start the scene's query with some options changed."""
    scene.is_shuffled |= partitions is not None
    driver.call(
        query.start,
        name=name,
        source=scene.source.arguments,
        options={**scene.options(), **(changes or {})},
        partitions=partitions,
    )


def run(
    driver: Driver,
    scene: Scene,
    changes: Mapping[str, str] | None = None,
    *,
    partitions: int | None = None,
) -> list[int]:
    """Run it to its end; returns the batches it ran."""
    start(driver, scene, changes, name="run", partitions=partitions)
    found: list[int] = driver.call(query.end, name="run")
    return found


def held_at(point: Point) -> Trap:
    """Holds the first such request back until it is released."""
    return Trap(point, Moment.REQUEST, message=Message.HELD)


def held(hold: Hold, partitions: str) -> dict[str, str]:
    """The first attempts at these partitions stop halfway."""
    return {"holdFolder": str(hold.folder), "holdPartitions": partitions}


def through(gate: Gate) -> dict[str, str]:
    """Whatever is sent to ZooKeeper passes ``gate``."""
    return {"metadataServiceUri": gate.uri}


def start_to_commit(driver: Driver, scene: Scene, gate: Gate) -> Trap:
    """Start the scene's query on one more batch; its commit is held at ``gate`` when this returns."""
    scene.add_batches(1)
    commit = gate.set(held_at(Point.COMMIT))
    start(driver, scene, through(gate))
    commit.wait()
    return commit


@contextmanager
def frozen_collection(
    driver: Driver, scene: Scene, gate: Gate, point: Point
) -> Iterator[Callable[[], SweepReport]]:
    """A commit goes on when a collection that began before it, days later, is held at ``point``.

    Gives what lets the collection go on, and returns what it took.
    """
    with scene.gate() as other, ThreadPoolExecutor(1) as background:
        commit = start_to_commit(driver, scene, other)
        frozen = gate.set(held_at(point))
        collecting = background.submit(collect, gate.uri, scene.log, days_later=DAYS_LATER)
        try:
            frozen.wait()
            commit.release()

            def thaw() -> SweepReport:
                frozen.release()
                return collecting.result(seconds(CALL_TIMEOUT_S))

            yield thaw
        finally:
            frozen.release()
