"""A streaming read, driven as Spark drives it: where it begins, and what a restart repeats."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType

from spark_bookkeeper.datasource.errors import OffsetInvalidError
from spark_bookkeeper.log.errors import DataLossError, NoMatchingTimestampError
from tests.spark_bookkeeper.datasource.rows import batch, columns, ids
from tests.spark_bookkeeper.datasource.streaming import (
    EARLIEST,
    StreamQuery,
    append,
    rows,
    stream_of,
)
from tests.spark_bookkeeper.datasource.world import FakeSpark


def test_a_stream_reads_every_row_once_and_spells_offsets_in_one_way(world: FakeSpark) -> None:
    query = stream_of(world, 10)
    log_id = world.nodes().log_id

    first = query.trigger()
    nothing = query.trigger()
    append(world, 10, 5)
    second = query.trigger()

    assert rows(first) == list(range(10))
    assert nothing is None
    assert rows(second) == list(range(10, 15))
    assert query.ends == [
        f'{{"from": 0, "log": {log_id}, "row": 10}}',
        f'{{"log": {log_id}, "row": 15}}',
    ]


def test_a_new_stream_begins_at_the_end_and_stays_there_over_restarts(world: FakeSpark) -> None:
    append(world, 0, 10)
    query = StreamQuery(world)
    query.plan()
    append(world, 10, 5)
    query.restart()
    assert query.read().num_rows == 0
    append(world, 15, 5)
    query.restart()

    assert query.trigger() is not None
    assert rows(query.trigger()) == list(range(10, 20))


def test_the_first_batch_has_the_same_rows_when_its_run_was_cut_off(world: FakeSpark) -> None:
    query = stream_of(world, 10, maxrowspertrigger="4")
    query.plan()
    before = query.read()
    append(world, 10, 10)
    query.restart()

    assert rows(query.trigger()) == ids(before) == [0, 1, 2, 3]


def test_a_stream_begins_at_a_row_unless_that_is_beyond_the_end(world: FakeSpark) -> None:
    append(world, 0, 10)

    assert rows(StreamQuery(world, startingoffsets='{"row":7}').trigger()) == [7, 8, 9]
    with pytest.raises(DataLossError, match="wanted_row=11"):
        StreamQuery(world, startingoffsets='{"row":11}').trigger()


def test_a_time_after_everything_is_an_error_or_the_end(world: FakeSpark) -> None:
    append(world, 0, 10)
    later = {"startingtimestamp": str(world.now_ms + 500)}

    with pytest.raises(NoMatchingTimestampError):
        StreamQuery(world, **later).trigger()
    query = StreamQuery(world, **later, startingtimestampstrategy="latest")
    query.trigger()
    world.now_ms += 1_000
    append(world, 10, 5)

    assert rows(query.trigger()) == list(range(10, 15))
    assert rows(StreamQuery(world, **later).trigger()) == list(range(10, 15))


@pytest.mark.parametrize(
    "given",
    [
        "{}", "[]", "7", "null", '{"row":1}', '{"log":1,"row":-1}', '{"log":1,"row":1.5}',
        '{"log":1,"row":true}', '{"log":1,"row":2,"from":3}', '{"log":1,"row":2,"more":3}',
        '{"log":1,"start":"soon"}', '{"log":1,"start":"row","at":"x"}',
        '{"topic":{"0":23}}', '{"log":1,"row":9223372036854775808}',
    ],
)  # fmt: skip
def test_a_foreign_or_damaged_offset_is_refused_by_its_value(world: FakeSpark, given: str) -> None:
    append(world, 0, 10)
    query = StreamQuery(world)
    query.ends, query.committed = [given], 1

    with pytest.raises(OffsetInvalidError, match="log=orders offset="):
        query.trigger()


def test_a_batch_that_ends_at_a_symbol_is_refused(world: FakeSpark) -> None:
    append(world, 0, 10)
    query = StreamQuery(world)
    symbol = query.follower.initial_offset()

    for end in (symbol, {"log": symbol["log"], "row": 5}):
        with pytest.raises(OffsetInvalidError):
            query.follower.plan(symbol, end)


def test_a_stream_shows_the_columns_it_began_with_when_others_come(world: FakeSpark) -> None:
    query = stream_of(world, 3)
    before = query.trigger()
    wider = columns(id=LongType(), name=StringType(), more=LongType())
    more = batch(3, 3).append_column("more", pa.array([7, 8, 9], pa.int64()))
    world.write([[more]], wider, mergeschema="true")

    found = query.trigger()
    query.restart()
    world.write([[more.slice(0, 1)]], wider)
    after = query.trigger()

    assert rows(before) == [0, 1, 2]
    assert rows(found) == [3, 4, 5]
    assert found is not None
    assert found.column_names == ["id", "name"]
    assert after is not None
    assert after.column_names == ["id", "name", "more"]
    assert after["more"].to_pylist() == [7]


def test_a_stream_gives_the_columns_asked_for_and_where_rows_lie(world: FakeSpark) -> None:
    append(world, 0, 5)
    query = StreamQuery(
        world, **EARLIEST, columns="name", includemetadata="true", maxrowspertrigger="2"
    )
    query.trigger()

    found = query.trigger()

    assert found is not None
    assert found.column_names[:3] == ["name", "_ledger", "_entry"]
    assert found["_position"].to_pylist() == [2, 3]
