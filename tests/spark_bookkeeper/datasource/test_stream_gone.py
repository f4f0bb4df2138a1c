"""Rows that were truncated, overwritten or deleted under a stream: told, or passed over."""

from __future__ import annotations

import pytest

from spark_bookkeeper.log.errors import (
    DataLossError,
    LogOverwrittenError,
    LogRecreatedError,
    NoSuchLogError,
)
from tests.spark_bookkeeper.datasource.streaming import (
    EARLIEST,
    StreamQuery,
    append,
    count,
    drop_before,
    ends,
    overwrite,
    rows,
    stream_of,
)
from tests.spark_bookkeeper.datasource.world import FakeSpark


def trimmed_under(world: FakeSpark, **options: str) -> StreamQuery:
    """A query with a batch planned, the first rows of which are trimmed."""
    append(world, 0, 5)
    append(world, 5, 5)
    query = StreamQuery(world, **EARLIEST, maxrowspertrigger="2", **options)
    query.trigger()
    query.plan()
    drop_before(world, 5)
    return query


def test_trimmed_rows_are_an_error_by_default(world: FakeSpark) -> None:
    query = trimmed_under(world)

    with pytest.raises(DataLossError, match=r"log=orders wanted_row=2 first_row=5"):
        query.read()


def test_trimmed_rows_are_passed_over_where_that_is_allowed(
    world: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    query = trimmed_under(world, failondataloss="false")

    assert query.trigger() is not None
    assert rows(query.trigger()) == [5, 6]
    assert "wanted_row=2 first_row=5" in caplog.text


def test_a_stream_at_the_end_of_a_trimmed_log_goes_on(world: FakeSpark) -> None:
    query = stream_of(world, 5)
    query.trigger()
    drop_before(world, 5)

    assert query.trigger() is None
    append(world, 5, 2)
    assert rows(query.trigger()) == [5, 6]


def test_an_overwrite_of_rows_not_read_or_only_planned_is_an_error(world: FakeSpark) -> None:
    query = stream_of(world, 10, maxrowspertrigger="4")
    query.trigger()
    planned = StreamQuery(world, **EARLIEST)
    planned.plan()
    overwrite(world, 100, 3)

    with pytest.raises(LogOverwrittenError, match="wanted_row=4 first_row=10"):
        query.trigger()
    with pytest.raises(LogOverwrittenError, match="wanted_row=0 first_row=10"):
        planned.read()


def test_a_stream_may_go_on_with_what_an_overwrite_wrote(world: FakeSpark) -> None:
    query = stream_of(world, 10, maxrowspertrigger="4", ignoreoverwrites="true")
    query.trigger()
    query.plan()
    overwrite(world, 100, 3)

    planned, found = query.trigger(), query.trigger()

    assert count(planned) == 0
    assert rows(found) == [100, 101, 102]
    assert query.trigger() is None


def test_a_stream_that_had_read_everything_takes_an_overwrite_for_new_rows(
    world: FakeSpark,
) -> None:
    query = stream_of(world, 10)
    query.trigger()
    for first in (100, 200):
        overwrite(world, first, 3)
        assert rows(query.trigger()) == [first, first + 1, first + 2]


def test_rows_trimmed_behind_an_overwrite_are_still_data_loss(world: FakeSpark) -> None:
    query = stream_of(world, 10, ignoreoverwrites="true", maxrowspertrigger="1")
    query.trigger()
    overwrite(world, 100, 3)
    append(world, 103, 3)
    drop_before(world, 13)

    with pytest.raises(DataLossError, match="wanted_row=1 first_row=13"):
        query.trigger()


def test_an_offset_of_another_log_of_the_name_is_refused(world: FakeSpark) -> None:
    query = stream_of(world, 10)
    query.trigger()
    world.session.run(world.session.catalog.delete("orders"))

    with pytest.raises(NoSuchLogError):
        query.trigger()
    append(world, 0, 20)

    with pytest.raises(LogRecreatedError):
        query.trigger()
    query.restart()
    with pytest.raises(LogRecreatedError):
        query.trigger()


def test_a_new_stream_may_begin_behind_the_trimmed_rows_it_named(
    world: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    append(world, 0, 5)
    append(world, 5, 5)
    drop_before(world, 5)
    wanted = {"startingoffsets": '{"row":2}'}

    with pytest.raises(DataLossError, match="wanted_row=2 first_row=5"):
        StreamQuery(world, **wanted).trigger()
    query = StreamQuery(world, **wanted, failondataloss="false")

    assert rows(query.trigger()) == [5, 6, 7, 8, 9]
    assert ends(query)[0]["from"] == 5
    assert "wanted_row=2 first_row=5" in caplog.text
