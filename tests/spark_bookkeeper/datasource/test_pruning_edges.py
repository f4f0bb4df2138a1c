"""Pruning at the bounds themselves: the value that equals one, the nearest beside it, prefixes, far times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark
from pyspark.sql import types as sql

from spark_bookkeeper.datasource.payload.entry_cutter import CutEntry
from spark_bookkeeper.datasource.payload.footer import FooterBuilder, parse_footer
from spark_bookkeeper.datasource.read.bounds import Layout, ranges_that_may_hold
from spark_bookkeeper.datasource.read.pruning import Predicate, predicate_of
from spark_bookkeeper.datasource.schema import arrow_schema
from spark_bookkeeper.log.format.model import LedgerRange
from spark_bookkeeper.log.format.serde_columns import column_to_pb, columns_from_pb
from tests.spark_bookkeeper.datasource.rows import columns
from tests.spark_bookkeeper.datasource.test_pruning import COMPARE, satisfies

C = ("c",)
MICROSECOND = timedelta(microseconds=1)
TIMES = [
    datetime(2024, 10, 27, 0, 30, 0, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_997, tzinfo=UTC),
    datetime(2, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_996, tzinfo=UTC),
]


def near(time: datetime, *, is_naive: bool = False) -> tuple[datetime, ...]:
    start = time.replace(tzinfo=None) if is_naive else time
    return tuple(start + number * MICROSECOND for number in range(4))


EDGES: list[tuple[sql.DataType, tuple[Any, ...]]] = [
    (sql.LongType(), (4, 5, 6, 7)),
    (sql.LongType(), tuple(2**63 - 4 + number for number in range(4))),
    (sql.IntegerType(), (-2, -1, 0, 1)),
    (sql.DoubleType(), (0.5, 1.0, 1.5, 2.0)),
    (sql.DecimalType(6, 2), tuple(Decimal(cents) / 100 for cents in (109, 110, 111, 112))),
    (sql.StringType(), ("az", "b", "ba", "bb")),
    (sql.DateType(), tuple(date(9999, 12, 28 + number) for number in range(4))),
    *((sql.TimestampType(), near(time)) for time in TIMES),
    *((sql.TimestampNTZType(), near(time, is_naive=True)) for time in TIMES),
]
"""Four neighbours of a type: the first lies just below the rows, the last just above them."""


class Written:
    """Two rows as a commit records and a reader finds them: a range's bounds, a footer's."""

    def __init__(self, of: sql.DataType, low: Any, high: Any) -> None:
        self.schema = columns(c=of)
        self.arrow = arrow_schema(self.schema)
        builder = FooterBuilder(self.arrow, 8)
        rows = pa.record_batch([pa.array([high, low], self.arrow.field(0).type)], schema=self.arrow)
        builder.add(CutEntry(b"", rows, 0))
        encoded = builder.encode(0, 0)
        assert encoded is not None
        self._footer = parse_footer(0, 1, encoded)
        kept = columns_from_pb([column_to_pb(each) for each in builder.column_ranges()], None)
        self._range = LedgerRange(1, 0, 0, 0, 2, 1, 0, 0, kept)

    def may_satisfy(self, item: spark.Filter) -> bool:
        """Whether the rows are read at all; range and footer must agree."""
        predicate = predicate_of([item], self.schema, {"c"})
        assert predicate != Predicate()
        assert self._footer is not None
        by_range = bool(ranges_that_may_hold([self._range], predicate, {"c"}))
        by_footer = bool(Layout(self._footer, 0).runs(0, 0, predicate, self.arrow))
        assert by_range == by_footer
        return by_range


@pytest.mark.parametrize(("of", "values"), EDGES)
def test_a_filter_at_a_bound_finds_the_rows_there_and_one_beside_it_none(
    of: sql.DataType, values: tuple[Any, ...]
) -> None:
    below, low, high, above = values
    written = Written(of, low, high)
    kinds: list[Callable[[Any], spark.Filter]] = [
        *((lambda value, kind=kind: kind(C, value)) for kind in COMPARE),
        lambda value: spark.In(C, (value, None)),
    ]
    # Where the rows are all values there can be between their bounds, the bounds say it exactly.
    for kind, value in product(kinds, values):
        item = kind(value)
        assert written.may_satisfy(item) == any(satisfies(item, each) for each in (low, high)), item
    assert not written.may_satisfy(spark.In(C, (below, above)))


@pytest.mark.parametrize(("of", "values"), EDGES)
def test_rows_that_are_all_alike_are_told_from_their_neighbours(
    of: sql.DataType, values: tuple[Any, ...]
) -> None:
    below, value, above, _ = values
    written = Written(of, value, value)

    assert not written.may_satisfy(spark.Not(spark.EqualTo(C, value)))
    assert not written.may_satisfy(spark.Not(spark.In(C, (below, value))))
    for other in (below, above):
        assert written.may_satisfy(spark.Not(spark.EqualTo(C, other)))
        assert not written.may_satisfy(spark.EqualTo(C, other))


TEXTS = ["".join(letters) for size in range(4) for letters in product("ab", repeat=size)]


def test_a_prefix_finds_every_text_between_the_bounds_that_begins_with_it() -> None:
    """All texts of up to three letters of two, as bounds and as what lies between."""
    prefixes = [text for text in TEXTS if len(text) < 3]
    for low, high in product(TEXTS, TEXTS):
        if low > high:
            continue
        written = Written(sql.StringType(), low, high)
        between = [text for text in TEXTS if low <= text <= high]
        for prefix in prefixes:
            item = spark.StringStartsWith(C, prefix)
            starts = [text.startswith(prefix) for text in between]
            assert written.may_satisfy(item) or not any(starts), (low, high, prefix)
            assert written.may_satisfy(spark.Not(item)) or all(starts), (low, high, prefix)


@pytest.mark.parametrize(
    ("low", "high", "prefix"),
    [("b", "c", "a"), ("a", "az", "b"), ("ab", "ab", "b"), ("b", "b", "ba")],
)
def test_a_prefix_beyond_the_bounds_finds_nothing(low: str, high: str, prefix: str) -> None:
    assert not Written(sql.StringType(), low, high).may_satisfy(spark.StringStartsWith(C, prefix))
