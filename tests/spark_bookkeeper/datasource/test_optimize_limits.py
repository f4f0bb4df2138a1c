"""Optimize ends, and does not take a log's whole history into memory to find out that nothing is to be gained."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from functools import partial

import pytest
from pyspark.sql.datasource import IsNull

from spark_bookkeeper.datasource.optimize.rewrite import are_origins_too_many, parts_of
from spark_bookkeeper.datasource.optimize.run import Outcome, optimize_log, rewrite_here
from spark_bookkeeper.datasource.options.parse import parse_write_options
from spark_bookkeeper.log.cleaning.optimize import Instalment
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.format.runs import RUNS_BYTES_MAX
from spark_bookkeeper.log.rules.grouping import GroupLimits
from tests.patience import seconds
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch
from tests.spark_bookkeeper.datasource.streaming import append
from tests.spark_bookkeeper.datasource.world import HERE, FakeSpark

FULL = RUNS_BYTES_MAX


def test_it_ends_however_many_commits_come_meanwhile(world: FakeSpark) -> None:
    for first in range(20):
        append(world, first, 1)
    here = rewrite_here(world.session, parse_write_options({"log": "orders"}, HERE))
    planned: list[int] = []

    def rewrite(instalment: Instalment, settings: LogSettings) -> Sequence[Outcome]:
        planned.append(sum(map(len, instalment.groups)))
        assert len(planned) < 3
        world.write([[batch(0, 1)]] * 4, SCHEMA)
        return here(instalment, settings)

    optimize_log(world.session, "orders", GroupLimits(), rewrite)

    assert planned == [20]


@pytest.mark.parametrize(
    ("stored", "are_too_many"),
    [
        ([FULL] * 8, True),
        ([FULL // 2] * 8, True),
        ([FULL // 4] * 8, False),
        ([FULL] * 3 + [0] * 5, False),
        ([0] * 10_000, False),
    ],
    ids=["full", "half full", "a quarter", "a few full ones", "never rewritten"],
)
def test_full_origins_are_seen_before_they_are_unpacked(
    stored: list[int], are_too_many: bool
) -> None:
    assert are_origins_too_many(stored) is are_too_many


def test_few_origins_are_unpacked_at_once() -> None:
    assert list(parts_of([0] * 10_000)) == [slice(0, 10_000)]
    assert list(parts_of([FULL] * 20)) == [slice(0, 8), slice(8, 16), slice(16, 20)]
    assert list(parts_of([20 * FULL, 0, 20 * FULL])) == [slice(0, 1), slice(1, 3)]


def test_rows_without_a_time_are_found_behind_a_rewrite(world: FakeSpark) -> None:
    world.now_ms = 0
    append(world, 0, 2)
    world.now_ms = 5_000
    append(world, 2, 2)

    def without_time() -> list[int]:
        found = world.read(filters=[IsNull(("_timestamp",))], includemetadata="true")
        rows = zip(found["id"].to_pylist(), found["_timestamp"].to_pylist(), strict=True)
        return [number for number, time in rows if time is None]

    given = parse_write_options({"log": "orders"}, HERE)
    assert without_time() == [0, 1]
    limits = GroupLimits(ranges_min=2)
    report = optimize_log(world.session, "orders", limits, rewrite_here(world.session, given))
    assert report.ranges_after == 1
    assert without_time() == [0, 1]


def test_an_interrupted_one_does_not_keep_its_pace(
    world: FakeSpark, request: pytest.FixtureRequest
) -> None:
    """At a byte a second it would have gone on for as long as the group takes, hours."""
    # Ignored by whatever a shell began in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(partial(signal.signal, signal.SIGINT, before))
    for first in range(0, 40, 10):
        append(world, first, 10)
    here = rewrite_here(world.session, parse_write_options({"log": "orders"}, HERE), 1)
    main = threading.main_thread().ident
    assert main is not None
    interrupt = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT))
    interrupt.daemon = True
    began = time.monotonic()
    interrupt.start()

    with pytest.raises(KeyboardInterrupt):
        optimize_log(world.session, "orders", GroupLimits(ranges_min=2), here)

    assert time.monotonic() - began < seconds(60)
    assert len(world.client.ledgers) == 4
    assert world.tokens() == []
