"""Bounds of times come back from the metadata to the microsecond, in all the years Python knows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_bookkeeper.log.format.columns import ColumnRange, Scalar
from spark_bookkeeper.log.format.serde_columns import column_to_pb, columns_from_pb

TIMES = st.datetimes()
LAST = datetime.max  # noqa: DTZ901
FAR = datetime(8888, 8, 8, 8, 8, 8, 888_889)  # noqa: DTZ001
EARLY = datetime(1, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001


def travelled(bound: Scalar) -> Scalar | None:
    (found,) = columns_from_pb([column_to_pb(ColumnRange("c", bound, bound))], None)
    assert found.minimum == found.maximum
    return found.minimum


@given(TIMES)
@example(LAST)
@example(FAR)
@example(EARLY)
@example(BEFORE_1970)
def test_every_microsecond_of_every_year_comes_back(time: datetime) -> None:
    aware = time.replace(tzinfo=UTC)

    assert travelled(time) == time
    assert travelled(aware) == aware
    assert travelled(time.date()) == time.date()


@pytest.mark.parametrize("time", [LAST, FAR, EARLY, BEFORE_1970])
def test_neighbours_stay_apart(time: datetime) -> None:
    """A float of seconds takes some microseconds of far years for each other."""
    step = timedelta(microseconds=-1 if time == LAST else 1)
    near = [time.replace(tzinfo=UTC) + number * step for number in range(2)]

    assert [travelled(each) for each in near] == near
    assert near[0] != near[1]
    assert travelled(date.max) == date.max
