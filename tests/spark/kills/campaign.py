"""One query, driver after driver killed at points drawn from a seed, until its input is used up.

Late messages of dead drivers arrive while later ones run. After every death only whole batches are
visible, each once. A thread collects the log and looks at it all the time, and sees it only grow. At
the end every row is there once and nothing else is left.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random

from spark_bookkeeper.demo.stream import REPLAY_LINE
from spark_bookkeeper.log.errors import NoSuchLogError
from tests.patience import seconds
from tests.spark.checkers import Block, ViolationError, check_batches_once, check_only_grows
from tests.spark.drivers import CALL_TIMEOUT_S, DRIVER_ENDED, Driver, DriverError
from tests.spark.held_source import Hold
from tests.spark.kills import query
from tests.spark.kills.gate import Gate, Message, Moment, Point, Trap
from tests.spark.kills.moves import held
from tests.spark.kills.query import FILES_PER_BATCH
from tests.spark.kills.scene import Scene
from tests.spark.leftovers import collect
from tests.spark.witness import Witness

BATCHES_AHEAD = 2
"""Micro-batches that wait for each driver: it may die in the first or in the next."""
LATE_MAX_S = 10.0
"""After the start of the next driver: from before its session to the end of its first batches."""
WATCH_INTERVAL_S = 0.2

PER_BATCH = {
    Point.PLAN: 1,
    Point.CLAIM: FILES_PER_BATCH,
    Point.LEDGER: FILES_PER_BATCH,
    Point.CLOSE: FILES_PER_BATCH,
    Point.COMMIT: 1,
    Point.SWEEP: 1,
    # Only where an earlier driver has left something to end and to delete:
    Point.SWEEP_CHILD: FILES_PER_BATCH,
    Point.SWEEP_TOKEN: 1,
    Point.SWEEP_EPOCH: 1,
    Point.SWEEP_JOB: 1,
    Point.END_TOKEN: 1,
    Point.DELETE_LEDGER: 1,
}
"""How often a healthy batch passes a point."""
LATE = {Point.CLAIM, Point.LEDGER, Point.CLOSE, Point.COMMIT, Point.END_TOKEN, Point.DELETE_LEDGER}
"""Points whose message may arrive after its sender's death."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Where a driver dies; without a point: in the middle of the first write to a partition."""

    point: Point | None
    moment: Moment = Moment.REQUEST
    nth: int = 1
    message: Message = Message.LOST

    def __str__(self) -> str:
        if self.point is None:
            return "in a write"
        late = ", its message comes late" if self.message is Message.HELD else ""
        return f"{self.point.name} {self.nth}, {self.moment.value}{late}"


def draw_kill(random: Random) -> Kill:
    """Somewhere in the first two batches of a driver."""
    point = random.choice([None, *PER_BATCH, *[Point.COMMIT] * 4])
    if point is None:
        return Kill(None)
    nth = random.randint(1, PER_BATCH[point] * BATCHES_AHEAD)
    if point in LATE and random.random() < 0.5:
        return Kill(point, Moment.REQUEST, nth, Message.HELD)
    return Kill(point, random.choice(list(Moment)), nth)


@dataclass(slots=True)
class Counts:
    """What a campaign did, for its last line."""

    drivers: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    unreached: int = 0
    replays: int = 0
    batches: int = 0

    def __str__(self) -> str:
        killed = ", ".join(f"{name} {times}" for name, times in sorted(self.kills.items()))
        return (
            f"drivers={self.drivers} batches={self.batches} replays={self.replays} "
            f"unreached={self.unreached} killed: {killed}"
        )


class Campaign:
    """So many drivers, each to be killed, then one to finish."""

    def __init__(self, scene: Scene, seed: int, drivers: int) -> None:
        self._scene = scene
        self._random = Random(seed)
        self._drivers = drivers
        # One seed in three partitions each run in another way, which leaves partitions no order.
        self._partitions: list[int | None] = [None, 2, 5] if seed % 3 == 0 else [None]
        self._late: list[Trap] = []
        self._timers: list[threading.Timer] = []
        self.counts = Counts()

    def run(self) -> Counts:
        """Returns what happened.

        Raises:
            ViolationError: something that must never happen; its note names the kills so far.
        """
        story = []
        with ExitStack() as gates, watched(self._scene):
            try:
                for number in range(self._drivers):
                    kill = draw_kill(self._random)
                    story.append(str(kill))
                    self._run_driver(gates, kill, number)
                self._run_driver(gates, None, self._drivers)
                for timer in self._timers:
                    timer.join()
            except Exception as error:
                error.add_note(f"after kills at: {'; '.join(story)}")
                raise
        self._scene.check_done()
        self.counts.batches = len(self._scene.batches)
        return self.counts

    def _run_driver(self, gates: ExitStack, kill: Kill | None, number: int) -> None:
        scene = self._scene
        visible, noted = scene.check_now(), scene.last_noted_batch() + 1
        if not noted <= visible <= noted + 1:
            raise ViolationError(f"{visible} batches visible, {noted} noted")
        if kill is not None:
            scene.add_batches(max(0, visible + BATCHES_AHEAD - len(scene.batches)))
        # A driver's late messages outlive it.
        gate = gates.enter_context(scene.gate())
        self.counts.drivers += 1
        expected = range(visible - noted, 2 if self._may_commit_late() else visible - noted + 1)
        with scene.driver() as driver:
            self._let_late_messages_come()
            was_killed = self._drive(gate, driver, kill, number)
            replays = driver.log().count(REPLAY_LINE)
        if replays not in expected and not (was_killed and replays == 0):
            raise ViolationError(f"{replays} replays skipped, {expected} expected")
        self.counts.replays += replays

    def _drive(self, gate: Gate, driver: Driver, kill: Kill | None, number: int) -> bool:
        """Whether the driver was killed."""
        options = self._scene.options(gate)
        hold, trap = Hold(self._scene.directory / f"hold-{number}"), None
        if kill is not None and kill.point is not None:
            trap = gate.set(Trap(kill.point, kill.moment, kill.nth, kill.message, driver.kill))
        elif kill is not None:
            hold.folder.mkdir()
            # Of a replay tasks write nothing, so they are not held: the second attempts are.
            options |= {**held(hold, "all"), "holdAttempts": "2"}
        partitions = self._random.choice(self._partitions)
        self._scene.is_shuffled |= partitions is not None
        source = self._scene.source.arguments
        running = driver.begin(query.run, source=source, options=options, partitions=partitions)
        if "holdFolder" in options:
            hold.wait_for_held(1, lambda: not running.done())
            driver.kill()
        try:
            running.result(seconds(CALL_TIMEOUT_S))
        except DriverError as error:
            if kill is None or DRIVER_ENDED not in str(error):
                raise
            if trap is not None:
                trap.wait()
                self._late.append(trap)
            self.counts.kills["WRITE" if kill.point is None else kill.point.name] += 1
            return True
        self.counts.unreached += kill is not None
        return False

    def _may_commit_late(self) -> bool:
        return any(
            trap.point is Point.COMMIT and trap.message is Message.HELD for trap in self._late
        )

    def _let_late_messages_come(self) -> None:
        """Those of dead drivers, at some moment of this one's start and run."""
        for trap in self._late:
            timer = threading.Timer(self._random.uniform(0, LATE_MAX_S), trap.release)
            timer.start()
            self._timers.append(timer)
        self._late = []


@contextmanager
def watched(scene: Scene) -> Iterator[None]:
    """Collect the log and look at its ranges all the time; what was visible once must stay.

    Raises:
        ViolationError: at the end, if it did not.
    """
    done = threading.Event()
    violations: list[ViolationError] = []

    def watch() -> None:
        witness = Witness(scene.uri, scene.log)
        seen: list[Block] = []
        while not done.wait(WATCH_INTERVAL_S) and not violations:
            with suppress(NoSuchLogError):
                collect(scene.uri, scene.log)
            blocks = witness.blocks()
            try:
                check_batches_once(blocks)
                check_only_grows(seen, blocks)
            except ViolationError as violation:
                violations.append(violation)
            seen = blocks

    watcher = threading.Thread(target=watch, name="watch")
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    if violations:
        raise violations[0]
