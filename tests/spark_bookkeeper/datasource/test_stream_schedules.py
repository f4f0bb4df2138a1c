"""Streams against seeded random worlds: every row once, in order, and every repeated batch the same.

A writer outside Spark and Spark's own appends write one log; ledgers roll, are taken over, and
bookies forget what is confirmed; retention follows the query; runs of the query are cut off between
any two steps. The model is the list of values that were appended.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.spark_bookkeeper.datasource.rows import RAW, raw_batch
from tests.spark_bookkeeper.datasource.streaming import OutsideWriter, StreamQuery, values
from tests.spark_bookkeeper.datasource.world import FakeSpark

STEPS = 120
LIMITS: tuple[dict[str, str], ...] = (
    {},
    {"maxrowspertrigger": "3"},
    {"maxbytespertrigger": "7"},
    {"maxrowspertrigger": "5", "maxbytespertrigger": "11"},
    {"minrowspertrigger": "4", "maxtriggerdelay": "3ms"},
)


class Schedule:
    """One random history of a log and a query of it."""

    def __init__(self, world: FakeSpark, seed: int) -> None:
        self.world = world
        self.random = Random(seed)
        self.appended: list[bytes] = []
        self.read: list[bytes] = []
        self.writer: OutsideWriter | None = None
        self.planned: list[bytes] | None = None
        self.write_by_spark()
        self.query = StreamQuery(
            world, startingoffsets="earliest", consumer="me", **self.random.choice(LIMITS)
        )

    def fresh(self) -> list[bytes]:
        first = len(self.appended)
        self.appended += [b"%d" % at for at in range(first, first + self.random.randrange(1, 6))]
        return self.appended[first:]

    def write_by_spark(self) -> None:
        if self.writer is None:
            self.world.write([[raw_batch(*self.fresh())]], RAW, payloadformat="raw")

    def lead(self) -> None:
        self.writer = OutsideWriter(self.world)

    def write_outside(self) -> None:
        if self.writer is not None:
            self.writer.append(*self.fresh())

    def roll(self) -> None:
        if self.writer is not None:
            self.writer.roll()

    def resign(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def forget(self) -> None:
        """Bookies know of less than was confirmed, or of everything again."""
        if self.writer is not None:
            entries = len(self.world.client.ledgers[self.writer.ledger_id].payloads)
            self.writer.confirm(self.random.choice([None, self.random.randrange(-1, entries)]))

    def truncate(self) -> None:
        """Drop what the query's cursor has passed."""
        nodes = self.world.nodes()
        cursors = self.world.client.run(nodes.cursors())
        if cursors:
            row = cursors["me"].cursor.row
            self.world.session.run(self.world.session.truncate(nodes.log_id, "orders", row))

    def plan(self) -> None:
        self.query.clock_ms += 1
        self.query.plan()

    def read_batch(self) -> None:
        if len(self.query.ends) == self.query.committed:
            return
        found = values(self.query.read())
        assert self.planned is None or found == self.planned, "a repeated batch has other rows"
        self.planned = found

    def commit(self) -> None:
        if self.planned is not None:
            self.read += self.planned
            self.planned = None
            self.query.committed += 1
            assert self.read == self.appended[: len(self.read)], "a row is lost, repeated or moved"

    def restart(self) -> None:
        self.query.restart(is_available_now=self.random.random() < 0.3)

    def drain(self) -> None:
        """Let the query come to the end of everything."""
        self.read_batch()
        self.commit()
        if self.writer is not None:
            self.writer.confirm(None)
        for batch in self.query.available_now():
            self.read += values(batch)


@pytest.mark.parametrize("seed", range(60))
def test_every_row_is_read_once_whatever_happens(world: FakeSpark, seed: int) -> None:
    schedule = Schedule(world, seed)
    often = [schedule.plan, schedule.read_batch, schedule.commit, schedule.write_outside]
    steps = [
        *often, *often, schedule.write_by_spark, schedule.lead, schedule.roll, schedule.resign,
        schedule.forget, schedule.truncate, schedule.restart,
    ]  # fmt: skip

    for _ in range(STEPS):
        schedule.random.choice(steps)()
    schedule.drain()

    assert schedule.read == schedule.appended
