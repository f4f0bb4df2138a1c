"""Optimize over rows: every row stays what and where it was, and says the same of itself."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType

from bookkeeper_metadata.errors import NoSuchLedgerError
from spark_bookkeeper.datasource.errors import SnapshotExpiredError
from spark_bookkeeper.datasource.optimize.run import OptimizeReport, optimize_log, rewrite_here
from spark_bookkeeper.datasource.options.parse import parse_write_options
from spark_bookkeeper.datasource.read.batch import plan_read
from spark_bookkeeper.datasource.read.pruning import ALL_ROWS
from spark_bookkeeper.datasource.read.task import read_slices
from spark_bookkeeper.log.cleaning.optimize import Instalment, Optimizer
from spark_bookkeeper.log.errors import DataLossError
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.format.runs import RUNS_KEY
from spark_bookkeeper.log.rules.grouping import GroupLimits
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch, columns, ids
from tests.spark_bookkeeper.datasource.streaming import StreamQuery, append, overwrite, rows
from tests.spark_bookkeeper.datasource.world import HERE, FakeSpark

LIMITS = GroupLimits(ranges_min=2)
HOUR_MS = 3_600_000


def optimize(world: FakeSpark, limits: GroupLimits = LIMITS, **options: str) -> OptimizeReport:
    given = parse_write_options({"log": "orders", **options}, HERE)
    return optimize_log(world.session, "orders", limits, rewrite_here(world.session, given))


def collect(world: FakeSpark, passed_ms: int = HOUR_MS) -> None:
    world.now_ms += passed_ms
    log_id = world.nodes().log_id
    world.client.run(world.session.collector.collect(log_id, log="orders"))


def everything(world: FakeSpark) -> pa.Table:
    """All rows with what they say of themselves, but for their places."""
    found = world.read(includemetadata="true")
    return found.drop_columns(["_ledger", "_entry"])


def stream(world: FakeSpark, query_id: str, batches: int, *, first: int = 0, size: int = 5) -> None:
    """Micro-batches of one query, a second apart."""
    for number in range(batches):
        plan = world.plan(SCHEMA)
        data = [batch(first + number * size, size)]
        message = world.stream_attempt(plan, 0, data, query_id, number)
        world.stream_commit([message], number)
        world.now_ms += 1_000


@pytest.mark.parametrize("payload_format", ["arrow", "avro"])
def test_rows_stay_and_say_the_same_of_themselves(world: FakeSpark, payload_format: str) -> None:
    append(world, 0, 3, payloadformat=payload_format)
    world.now_ms += 1_000
    stream(world, "q1", 10, first=3)
    stream(world, "q2", 10, first=53)
    append(world, 103, 2)
    before = everything(world)
    ledgers = set(world.client.ledgers)

    report = optimize(world)

    assert (report.ranges_before, report.ranges_after, report.rows) == (22, 1, 105)
    assert report.failures == []
    assert everything(world).equals(before)
    collect(world)
    assert len(world.client.ledgers) == 1
    assert ledgers.isdisjoint(world.client.ledgers)
    assert everything(world).equals(before)
    assert world.tokens() == []


def test_a_second_rewrite_keeps_what_the_first_one_noted(world: FakeSpark) -> None:
    stream(world, "q1", 8)
    optimize(world)
    stream(world, "q2", 8, first=40)
    before = everything(world)

    report = optimize(world)

    assert report.ranges_before >= 8
    assert everything(world).equals(before)


def test_schemas_are_not_mixed_and_old_rows_lack_new_columns(world: FakeSpark) -> None:
    for first in (0, 2, 4):
        append(world, first, 2)
    wider = columns(id=LongType(), name=StringType(), extra=LongType())
    for first in (6, 8, 10):
        rows_of = batch(first, 2).append_column("extra", pa.array([first, first], pa.int64()))
        world.write([[rows_of]], wider, mergeschema="true")
    before = everything(world)

    report = optimize(world)

    assert (report.ranges_before, report.ranges_after) == (6, 2)
    assert everything(world).equals(before)
    assert before.column("extra").to_pylist() == [None] * 6 + [6, 6, 8, 8, 10, 10]


def test_time_is_exact_within_a_rewritten_range(world: FakeSpark) -> None:
    began_ms = world.now_ms
    stream(world, "q1", 10)
    optimize(world)

    for number in range(10):
        at = began_ms + number * 1_000
        assert ids(world.read(startingtimestamp=str(at)))[0] == number * 5
        assert ids(world.read(startingtimestamp=str(at - 999)))[0] == number * 5
        if number:
            assert ids(world.read(endingtimestamp=str(at)))[-1] == number * 5 - 1
    query = StreamQuery(world, startingtimestamp=str(began_ms + 3_001))
    assert [rows(each) for each in query.available_now()] == [list(range(20, 50))]


def test_a_filter_by_time_prunes_ranges_by_both_their_ends(world: FakeSpark) -> None:
    from pyspark.sql.datasource import GreaterThan, LessThan

    began_ms = world.now_ms
    stream(world, "q1", 10)
    optimize(world)
    at = dt.datetime.fromtimestamp((began_ms + 4_500) / 1000, dt.UTC)

    for wanted in (LessThan(("_timestamp",), at), GreaterThan(("_timestamp",), at)):
        found = world.read(includemetadata="true", filters=[wanted])
        assert set(ids(found)) >= set(range(25) if isinstance(wanted, LessThan) else range(25, 50))
    later = dt.datetime.fromtimestamp((began_ms + 60_000) / 1000, dt.UTC)
    filters = [GreaterThan(("_timestamp",), later)]
    assert world.read(includemetadata="true", filters=filters).num_rows == 0


def test_bounds_of_rewritten_ranges_hold_all_values(world: FakeSpark) -> None:
    for first in (70, 10, 40):
        append(world, first, 5)
    optimize(world)

    (item,) = world.client.run(
        world.session.view(world.nodes().log_id, "orders").ranges(columns=None)
    ).ranges
    column = item.column("id")
    assert column is not None
    assert (column.minimum, column.maximum) == (10, 74)


def test_a_stream_goes_on_over_a_rewrite(world: FakeSpark) -> None:
    for first in range(0, 30, 10):
        append(world, first, 10)
    query = StreamQuery(world, startingoffsets="earliest", maxrowspertrigger="7")
    assert rows(query.trigger()) == list(range(7))
    optimize(world)
    collect(world)

    assert [row for each in query.available_now() for row in rows(each) or []] == list(range(7, 30))


# -- reads that were planned before -------------------------------------------------------------------


def planned_before(world: FakeSpark, **options: str) -> tuple[object, ...]:
    given, readable = world.find(**options)
    return given, readable, plan_read(world.session, given, readable, predicate=ALL_ROWS)


def read_later(world: FakeSpark, planned: tuple[object, ...]) -> pa.Table:
    given, readable, packs = planned
    wanted = readable.columns(given)  # type: ignore[attr-defined]
    return pa.Table.from_batches(
        [
            found
            for pack in packs  # type: ignore[attr-defined]
            for found in read_slices(world.session, given, readable, wanted, pack)  # type: ignore[arg-type]
        ]
    )


def test_a_plan_made_before_finds_its_rows_where_they_are_now(world: FakeSpark) -> None:
    for first in range(0, 40, 10):
        append(world, first, 10)
    whole, part = planned_before(world), planned_before(world, startingoffsets='{"row":13}')
    optimize(world)
    assert ids(read_later(world, whole)) == list(range(40))
    collect(world)

    assert ids(read_later(world, whole)) == list(range(40))
    assert ids(read_later(world, part)) == list(range(13, 40))


def test_a_plan_that_relies_on_places_is_told_that_they_changed(world: FakeSpark) -> None:
    for first in range(0, 30, 10):
        append(world, first, 10)
    shown = planned_before(world, includemetadata="true")
    by_entry = planned_before(world, minpartitions="4")
    optimize(world)
    assert ids(read_later(world, shown)) == list(range(30))
    collect(world)

    with pytest.raises(SnapshotExpiredError, match="log=orders"):
        read_later(world, shown)
    assert ids(read_later(world, by_entry)) == list(range(30))


def test_a_plan_made_before_meets_the_documented_error_if_its_rows_are_gone(
    world: FakeSpark,
) -> None:
    for first in range(0, 30, 10):
        append(world, first, 10)
    planned = planned_before(world)
    overwrite(world, 50, 1)
    collect(world)

    with pytest.raises(DataLossError):
        read_later(world, planned)


def test_a_ledger_that_is_lost_is_no_ledger_whose_rows_moved(world: FakeSpark) -> None:
    append(world, 0, 10)
    planned = planned_before(world)
    del world.client.ledgers[next(iter(world.client.ledgers))]

    with pytest.raises(NoSuchLedgerError):
        read_later(world, planned)


# -- what goes wrong ----------------------------------------------------------------------------------


def test_interrupted_it_leaves_nothing(world: FakeSpark) -> None:
    for first in range(0, 30, 10):
        append(world, first, 10)
    given = parse_write_options({"log": "orders"}, HERE)
    rewrite = rewrite_here(world.session, given)

    def interrupted(instalment: Instalment, settings: LogSettings) -> object:
        rewrite(instalment, settings)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimize_log(world.session, "orders", LIMITS, interrupted)  # type: ignore[arg-type]

    assert len(world.client.ledgers) == 3
    assert world.tokens() == []
    assert ids(world.read()) == list(range(30))


def test_a_ledger_with_odd_marks_fails_its_group_and_no_other(world: FakeSpark) -> None:
    """A batch number of seventy digits ended every optimize of the log."""
    for first in range(0, 60, 10):
        append(world, first, 10)
    odd = world.client.ledgers[next(iter(world.client.ledgers))]
    marks = {**odd.metadata.custom_metadata, "sparkBatchId": b"9" * 70}
    odd.metadata = replace(odd.metadata, custom_metadata=marks)
    limits = GroupLimits(ranges_min=2, target_bytes=1_400)

    report = optimize(world, limits)

    assert report.groups >= 1
    assert len(report.failures) == 1
    assert ids(world.read()) == list(range(60))


def test_interrupted_while_it_commits_it_leaves_nothing(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(0, 30, 10):
        append(world, first, 10)

    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Optimizer, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        optimize(world)

    assert len(world.client.ledgers) == 3
    assert world.tokens() == []


def test_what_would_not_become_half_as_many_ledgers_is_not_copied(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges whose origins fill the metadata were copied by every run, for ever."""
    monkeypatch.setattr("spark_bookkeeper.datasource.optimize.rewrite.RUNS_BYTES_MAX", 1)
    stream(world, "q1", 6)
    entries = len(world.client.entries_read)

    report = optimize(world)

    assert (report.groups, report.given_up, report.failures) == (0, 1, [])
    assert len(world.client.ledgers) == 6
    assert len(world.client.entries_read) == entries


def test_rows_committed_at_the_beginning_of_time_are_found_by_time(world: FakeSpark) -> None:
    world.now_ms = 0
    append(world, 0, 10)
    for first in (10, 20):
        world.now_ms += 10
        append(world, first, 10)
    before = [ids(world.read(endingtimestamp=str(at))) for at in (1, 10, 11, 20)]

    assert optimize(world).groups == 1

    assert [ids(world.read(endingtimestamp=str(at))) for at in (1, 10, 11, 20)] == before


def test_another_password_fails_the_group(world: FakeSpark) -> None:
    for first in range(0, 30, 10):
        append(world, first, 10, password="one")

    assert optimize(world, password="two").groups == 0
    assert optimize(world, password="one").groups == 1
    assert ids(world.read(password="one")) == list(range(30))


def test_more_origins_than_fit_make_more_ledgers(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bookkeeper.datasource.optimize.rewrite.RUNS_BYTES_MAX", 80)
    for number in range(12):
        stream(world, f"query-{number * 7_919}", 1, first=5 * number)
        world.now_ms += 137 * number * number
    before = everything(world)

    report = optimize(world)

    assert 1 < report.ranges_after < 12
    assert everything(world).equals(before)
    for ledger in list(world.client.ledgers.values())[12:]:
        assert len(ledger.metadata.custom_metadata[RUNS_KEY]) <= 80


def test_a_pace_is_kept_over_all_that_is_copied(world: FakeSpark) -> None:
    stream(world, "query", 8)
    before = everything(world)
    given = parse_write_options({"log": "orders"}, HERE)
    view = world.session.view(world.nodes().log_id, "orders")
    size_bytes = sum(
        item.size_bytes for item in world.session.run(view.ranges(columns=None)).ranges
    )
    began = time.monotonic()

    rewrite = rewrite_here(world.session, given, bytes_per_second=2 * size_bytes)
    report = optimize_log(world.session, "orders", LIMITS, rewrite)

    # All but the last range have had their time, half a second's worth of bytes in all.
    assert time.monotonic() - began >= 0.5 * 7 / 8 * 0.9
    assert report.ranges_before == 8
    assert everything(world) == before
