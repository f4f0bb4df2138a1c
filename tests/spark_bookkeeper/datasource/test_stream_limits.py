"""How much a micro-batch reads: rows, bytes, waiting, AvailableNow and once."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

from spark_bookkeeper.datasource.errors import NotSupportedYetError
from spark_bookkeeper.datasource.read.limits import default_limit
from tests.spark_bookkeeper.datasource.rows import ids
from tests.spark_bookkeeper.datasource.streaming import (
    EARLIEST,
    StreamQuery,
    append,
    count,
    ends,
    ids_of,
    rows,
    stream_of,
)
from tests.spark_bookkeeper.datasource.world import FakeSpark


def test_row_limits_cut_entries_exactly(world: FakeSpark) -> None:
    append(world, 0, 10)
    append(world, 10, 1)

    found = StreamQuery(world, **EARLIEST, maxrowspertrigger="4").available_now()

    assert ids_of(found) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_byte_limits_end_about_there_and_read_an_entry_at_least(world: FakeSpark) -> None:
    append(world, 0, 1000, entrybytes="2k", compression="none")
    ledger = world.client.ledgers[0]
    entries = len(ledger.payloads) - 1
    size = sum(map(len, ledger.payloads))

    thirds = StreamQuery(world, **EARLIEST, maxbytespertrigger=str(size // 3)).available_now()
    single = StreamQuery(world, **EARLIEST, maxbytespertrigger="1").available_now()

    assert 3 <= len(thirds) <= 4
    assert abs(thirds[0].num_rows - 333) < 40
    assert abs(len(single) - entries) <= 1
    assert [row for rows in ids_of(single) for row in rows] == list(range(1000))


def test_all_limits_that_are_set_apply_at_once(world: FakeSpark) -> None:
    append(world, 0, 1000, entrybytes="2k", compression="none")
    options = {**EARLIEST, "maxbytespertrigger": "4k", "maxrowspertrigger": "5"}

    few_rows = StreamQuery(world, **options).trigger()
    few_bytes = StreamQuery(world, **{**options, "maxrowspertrigger": "900"}).trigger()

    assert count(few_rows) == 5
    assert 0 < (count(few_bytes) or 0) < 900


def test_few_rows_wait_for_more_until_they_are_due(world: FakeSpark) -> None:
    query = stream_of(world, 3, minrowspertrigger="5", maxtriggerdelay="10s")

    pinned, waited = query.trigger(), query.trigger()
    append(world, 3, 3)
    enough = query.trigger()
    append(world, 6, 1)
    query.clock_ms = 9_999
    early = query.trigger()
    query.clock_ms = 10_000
    due = query.trigger()
    append(world, 7, 1)
    query.clock_ms = 19_999
    early_again = query.trigger()
    query.clock_ms = 20_000
    due_again = query.trigger()

    assert count(pinned) == 0
    assert (waited, early, early_again) == (None, None, None)
    assert rows(enough) == list(range(6))
    assert (rows(due), rows(due_again)) == ([6], [7])


@pytest.mark.parametrize(("rows_min", "there"), [(1, 1), (5, 4), (5, 5), (5, 6)])
def test_a_batch_waits_only_while_rows_are_missing(
    world: FakeSpark, rows_min: int, there: int
) -> None:
    query = stream_of(world, there, minrowspertrigger=str(rows_min), maxtriggerdelay="1h")

    assert rows(query.trigger()) == (list(range(there)) if there >= rows_min else [])


def test_available_now_ends_at_what_was_there_and_waits_for_nothing(world: FakeSpark) -> None:
    query = stream_of(world, 10, minrowspertrigger="6", maxrowspertrigger="6")
    query.restart(is_available_now=True)
    append(world, 10, 10)

    assert [count(query.trigger()), count(query.trigger())] == [6, 4]
    assert query.trigger() is None
    assert ids_of(query.available_now()) == [[*range(10, 16)], [*range(16, 20)]]


def test_available_now_pins_anew_in_a_run_that_repeats_a_batch(world: FakeSpark) -> None:
    query = stream_of(world, 10)
    query.restart(is_available_now=True)
    query.plan()
    append(world, 10, 10)

    assert ids_of(query.available_now()) == [[*range(10)], [*range(10, 20)]]


def test_available_now_from_the_end_of_a_log_reads_nothing(world: FakeSpark) -> None:
    append(world, 0, 10)
    query = StreamQuery(world)
    query.restart(is_available_now=True)
    append(world, 10, 5)

    assert count(query.trigger()) == 0
    assert query.trigger() is None


def test_once_reads_everything_whatever_the_limits(world: FakeSpark) -> None:
    query = stream_of(world, 10, maxrowspertrigger="3", minrowspertrigger="2")

    assert count(query.trigger(ReadAllAvailable())) == 10


def test_a_limit_spark_asks_with_is_kept_too(world: FakeSpark) -> None:
    query = stream_of(world, 10, maxrowspertrigger="5")

    tighter, own = query.trigger(ReadMaxRows(2)), query.trigger(ReadMaxRows(100))
    one_entry, waited = query.trigger(ReadMaxBytes(1)), query.trigger(ReadMinRows(50))

    assert count(tighter) == 2
    assert count(own) == 5
    assert count(one_entry) == 3
    assert waited is None
    append(world, 10, 1)
    with pytest.raises(NotSupportedYetError, match="ReadMaxFiles"):
        query.trigger(ReadMaxFiles(1))


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, ReadAllAvailable),
        ({"maxrowspertrigger": "3"}, ReadMaxRows),
        ({"maxbytespertrigger": "3"}, ReadMaxBytes),
        ({"minrowspertrigger": "3"}, ReadMinRows),
        ({"minrowspertrigger": "3", "maxrowspertrigger": "3"}, ReadMaxRows),
    ],
)
def test_any_limit_option_makes_spark_ask_for_less_than_everything(
    world: FakeSpark, options: dict[str, str], kind: type
) -> None:
    append(world, 0, 1)

    assert isinstance(default_limit(StreamQuery(world, **options).given), kind)


def test_the_end_of_the_log_is_reported_whatever_is_read(world: FakeSpark) -> None:
    query = stream_of(world, 10, maxrowspertrigger="4")
    assert query.follower.end_offset() is None

    query.trigger()

    assert query.follower.end_offset() == {"log": world.nodes().log_id, "row": 10}


def test_a_batch_is_cut_into_as_many_partitions_as_wanted(world: FakeSpark) -> None:
    append(world, 0, 1000, entrybytes="2k", compression="none")
    query = StreamQuery(world, **EARLIEST, minpartitions="4")
    query.plan()

    packs = query.follower.plan(query.follower.initial_offset(), ends(query)[0])

    assert len(packs) == 4
    assert ids(query.read()) == list(range(1000))
