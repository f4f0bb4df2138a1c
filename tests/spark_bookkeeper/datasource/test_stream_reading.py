"""A streaming read, driven as Spark drives it: where it begins, how much a batch has, what repeats."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

from spark_bookkeeper.datasource.errors import NotSupportedYetError, OffsetInvalidError
from spark_bookkeeper.log.errors import (
    DataLossError,
    LogOverwrittenError,
    LogRecreatedError,
    NoMatchingTimestampError,
    NoSuchLogError,
)
from tests.spark_bookkeeper.datasource.fakes import World
from tests.spark_bookkeeper.datasource.streaming import StreamQuery, ids_of
from tests.spark_bookkeeper.datasource.test_writing import SCHEMA, batch, ids

EARLIEST = {"startingoffsets": "earliest"}


def append(world: World, first: int, count: int, **options: str) -> None:
    world.write([[batch(first, count)]], SCHEMA, is_overwrite=False, **options)


def overwrite(world: World, first: int, count: int) -> None:
    world.write([[batch(first, count)]], SCHEMA, is_overwrite=True)


def drop_before(world: World, row: int) -> None:
    nodes = world.nodes()
    world.session.run(world.session.truncate(nodes.log_id, "orders", row))


def rows(found: pa.Table | None) -> list[int] | None:
    """The ids of a batch; ``None``: there was no batch."""
    return None if found is None else ids(found)


def count(found: pa.Table | None) -> int | None:
    """The rows of a batch; ``None``: there was no batch."""
    return None if found is None else found.num_rows


def ends(query: StreamQuery) -> list[dict[str, int]]:
    return [json.loads(end) for end in query.ends]


def test_a_stream_reads_every_row_once_as_it_comes(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST)

    first = query.trigger()
    nothing = query.trigger()
    append(world, 10, 5)
    second = query.trigger()

    assert rows(first) == list(range(10))
    assert nothing is None
    assert rows(second) == list(range(10, 15))


def test_offsets_are_short_and_spelled_in_one_way(world: World) -> None:
    append(world, 0, 10)
    log_id = world.nodes().log_id
    query = StreamQuery(world, **EARLIEST)
    query.trigger()
    append(world, 10, 5)
    query.trigger()

    assert query.ends == [
        f'{{"from": 0, "log": {log_id}, "row": 10}}',
        f'{{"log": {log_id}, "row": 15}}',
    ]


def test_a_new_stream_begins_at_the_end_and_stays_there_over_restarts(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world)
    query.plan()
    append(world, 10, 5)
    query.restart()
    assert query.read().num_rows == 0
    append(world, 15, 5)
    query.restart()

    assert query.trigger() is not None
    found = query.trigger()
    assert rows(found) == list(range(10, 20))


def test_the_first_batch_has_the_same_rows_when_its_run_was_cut_off(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST, maxrowspertrigger="4")
    query.plan()
    before = query.read()
    append(world, 10, 10)
    query.restart()

    found = query.trigger()

    assert rows(found) == ids(before) == [0, 1, 2, 3]


def test_a_stream_begins_at_a_row(world: World) -> None:
    append(world, 0, 10)

    found = StreamQuery(world, startingoffsets='{"row":7}').trigger()

    assert rows(found) == [7, 8, 9]


def test_a_stream_that_is_to_begin_beyond_the_end_is_told_so(world: World) -> None:
    append(world, 0, 10)

    with pytest.raises(DataLossError, match="wanted_row=11"):
        StreamQuery(world, startingoffsets='{"row":11}').trigger()


def test_a_stream_begins_with_what_was_committed_since_a_time(world: World) -> None:
    append(world, 0, 10)
    world.now_ms += 1_000
    append(world, 10, 10)
    query = StreamQuery(world, startingtimestamp=str(world.now_ms - 500))

    found = query.trigger()

    assert rows(found) == list(range(10, 20))


def test_a_time_after_everything_is_an_error_or_the_end(world: World) -> None:
    append(world, 0, 10)
    later = {"startingtimestamp": str(world.now_ms + 500)}

    with pytest.raises(NoMatchingTimestampError):
        StreamQuery(world, **later).trigger()
    query = StreamQuery(world, **later, startingtimestampstrategy="latest")
    query.trigger()
    append(world, 10, 5)

    found = query.trigger()
    assert rows(found) == list(range(10, 15))


def test_row_limits_cut_entries_exactly(world: World) -> None:
    append(world, 0, 10)
    append(world, 10, 1)

    found = StreamQuery(world, **EARLIEST, maxrowspertrigger="4").available_now()

    assert ids_of(found) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_byte_limits_end_about_there_and_read_an_entry_at_least(world: World) -> None:
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


def test_all_limits_that_are_set_apply_at_once(world: World) -> None:
    append(world, 0, 1000, entrybytes="2k", compression="none")
    options = {**EARLIEST, "maxbytespertrigger": "4k", "maxrowspertrigger": "5"}

    few_rows = StreamQuery(world, **options).trigger()
    few_bytes = StreamQuery(world, **{**options, "maxrowspertrigger": "900"}).trigger()

    assert count(few_rows) == 5
    assert 0 < (count(few_bytes) or 0) < 900


def test_few_rows_wait_for_more_until_they_are_due(world: World) -> None:
    append(world, 0, 3)
    query = StreamQuery(world, **EARLIEST, minrowspertrigger="5", maxtriggerdelay="10s")

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


def test_available_now_ends_at_what_was_there_and_waits_for_nothing(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST, minrowspertrigger="6", maxrowspertrigger="6")
    query.restart(is_available_now=True)
    append(world, 10, 10)

    found = [query.trigger(), query.trigger()]

    assert [table.num_rows for table in found if table is not None] == [6, 4]
    assert query.trigger() is None
    assert ids_of(query.available_now()) == [[*range(10, 16)], [*range(16, 20)]]


def test_available_now_pins_anew_in_a_run_that_repeats_a_batch(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST)
    query.restart(is_available_now=True)
    query.plan()
    append(world, 10, 10)

    assert ids_of(query.available_now()) == [[*range(10)], [*range(10, 20)]]


def test_available_now_from_the_end_of_a_log_reads_nothing(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world)
    query.restart(is_available_now=True)
    append(world, 10, 5)

    assert [found.num_rows for found in [query.trigger()] if found is not None] == [0]
    assert query.trigger() is None


def test_once_reads_everything_whatever_the_limits(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST, maxrowspertrigger="3", minrowspertrigger="2")

    found = query.once()

    assert count(found) == 10


def test_a_limit_spark_asks_with_is_kept_too(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST, maxrowspertrigger="5")

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
    world: World, options: dict[str, str], kind: type
) -> None:
    append(world, 0, 1)

    assert isinstance(StreamQuery(world, **options).default_limit(), kind)


def test_the_end_of_the_log_is_reported_whatever_is_read(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST, maxrowspertrigger="4")
    before = query.follower.end_offset()

    query.trigger()

    assert before is None
    assert query.follower.end_offset() == {"log": world.nodes().log_id, "row": 10}


def test_trimmed_rows_are_an_error_by_default(world: World) -> None:
    append(world, 0, 5)
    append(world, 5, 5)
    query = StreamQuery(world, **EARLIEST, maxrowspertrigger="2")
    query.trigger()
    query.plan()
    drop_before(world, 5)

    with pytest.raises(DataLossError, match=r"log=orders wanted_row=2 first_row=5"):
        query.read()


def test_trimmed_rows_are_passed_over_where_that_is_allowed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    append(world, 0, 5)
    append(world, 5, 5)
    query = StreamQuery(world, **EARLIEST, maxrowspertrigger="2", failondataloss="false")
    query.trigger()
    query.plan()
    drop_before(world, 5)

    assert query.trigger() is not None
    found = query.trigger()

    assert rows(found) == [5, 6]
    assert "wanted_row=2 first_row=5" in caplog.text


def test_a_stream_at_the_end_of_a_trimmed_log_goes_on(world: World) -> None:
    append(world, 0, 5)
    query = StreamQuery(world, **EARLIEST)
    query.trigger()
    drop_before(world, 5)

    assert query.trigger() is None
    append(world, 5, 2)
    found = query.trigger()
    assert rows(found) == [5, 6]


def test_an_overwrite_of_rows_not_read_is_an_error_by_default(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST, maxrowspertrigger="4")
    query.trigger()
    overwrite(world, 100, 3)

    with pytest.raises(LogOverwrittenError, match="wanted_row=4 first_row=10"):
        query.trigger()


def test_an_overwrite_under_a_planned_batch_is_an_error_by_default(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST)
    query.plan()
    overwrite(world, 100, 3)

    with pytest.raises(LogOverwrittenError, match="wanted_row=0 first_row=10"):
        query.read()


def test_a_stream_may_go_on_with_what_an_overwrite_wrote(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST, maxrowspertrigger="4", ignoreoverwrites="true")
    query.trigger()
    query.plan()
    overwrite(world, 100, 3)

    planned, found = query.trigger(), query.trigger()

    assert count(planned) == 0
    assert rows(found) == [100, 101, 102]
    assert query.trigger() is None


def test_a_stream_that_had_read_everything_takes_an_overwrite_for_new_rows(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST)
    query.trigger()
    for first in (100, 200):
        overwrite(world, first, 3)

        found = query.trigger()
        assert rows(found) == [first, first + 1, first + 2]


def test_rows_trimmed_behind_an_overwrite_are_still_data_loss(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST, ignoreoverwrites="true", maxrowspertrigger="1")
    query.trigger()
    overwrite(world, 100, 3)
    append(world, 103, 3)
    drop_before(world, 13)

    with pytest.raises(DataLossError, match="wanted_row=1 first_row=13"):
        query.trigger()


def test_an_offset_of_another_log_of_the_name_is_refused(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST)
    query.trigger()
    world.session.run(world.session.catalog.delete("orders"))
    append(world, 0, 20)

    with pytest.raises(LogRecreatedError):
        query.trigger()
    query.restart()
    with pytest.raises(LogRecreatedError):
        query.trigger()


def test_a_log_deleted_under_a_stream_is_gone(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world, **EARLIEST)
    query.trigger()
    world.session.run(world.session.catalog.delete("orders"))

    with pytest.raises(NoSuchLogError):
        query.trigger()


@pytest.mark.parametrize(
    "given",
    [
        "{}", "[]", "7", "null", '{"row":1}', '{"log":1,"row":-1}', '{"log":1,"row":1.5}',
        '{"log":1,"row":true}', '{"log":1,"row":2,"from":3}', '{"log":1,"row":2,"more":3}',
        '{"log":1,"start":"soon"}', '{"log":1,"start":"row","at":"x"}',
        '{"topic":{"0":23}}', '{"log":1,"row":9223372036854775808}',
    ],
)  # fmt: skip
def test_a_foreign_or_damaged_offset_is_refused_by_its_value(world: World, given: str) -> None:
    append(world, 0, 10)
    query = StreamQuery(world)
    query.ends, query.committed = [given], 1

    with pytest.raises(OffsetInvalidError, match="log=orders offset="):
        query.trigger()


def test_a_batch_that_ends_at_a_symbol_is_refused(world: World) -> None:
    append(world, 0, 10)
    query = StreamQuery(world)
    symbol = query.follower.initial_offset()

    for end in (symbol, {"log": symbol["log"], "row": 5}):
        with pytest.raises(OffsetInvalidError):
            query.follower.plan(symbol, end)


def test_a_batch_is_cut_into_as_many_partitions_as_wanted(world: World) -> None:
    append(world, 0, 1000, entrybytes="2k", compression="none")
    query = StreamQuery(world, **EARLIEST, minpartitions="4")
    query.plan()
    start = query.follower.initial_offset()

    packs = query.follower.plan(start, ends(query)[0])

    assert len(packs) == 4
    assert ids(query.read()) == list(range(1000))
