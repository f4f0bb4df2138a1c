"""Pruning never rules out a row that satisfies the filters; Spark's own semantics are the judge."""

from __future__ import annotations

import math
import operator
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql import types as sql

from spark_bookkeeper.datasource.payload.entry_cutter import CutEntry
from spark_bookkeeper.datasource.payload.footer import FooterBuilder, parse_footer
from spark_bookkeeper.datasource.read.bounds import Layout, ranges_that_may_hold
from spark_bookkeeper.datasource.read.pruning import Bounds, Predicate, predicate_of
from spark_bookkeeper.datasource.schema import arrow_schema
from spark_bookkeeper.log.format.columns import ColumnRange
from spark_bookkeeper.log.format.model import LedgerRange
from tests.spark_bookkeeper.datasource.rows import columns

CHANGE_OF_CLOCKS = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)
VALUES: dict[sql.DataType, st.SearchStrategy[Any]] = {
    sql.LongType(): st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)]),
    sql.IntegerType(): st.integers(-3, 3),
    sql.DoubleType(): st.sampled_from([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 1e300]),
    sql.FloatType(): st.sampled_from([0.0, -0.0, 0.5, 0.25, math.inf, math.nan]),
    sql.DecimalType(6, 2): st.integers(-300, 300).map(lambda cents: Decimal(cents) / 100),
    sql.StringType(): st.text("aAäz\U0001f600\uffff", max_size=3)
    | st.integers(0, 3).map(lambda n: "a" * 70 + str(n)),
    sql.DateType(): st.integers(-2, 2).map(lambda n: date(1970, 1, 1) + timedelta(days=n)),
    sql.TimestampType(): st.integers(0, 5).map(
        lambda n: CHANGE_OF_CLOCKS + timedelta(minutes=20 * n, microseconds=n)
    ),
    sql.TimestampNTZType(): st.integers(0, 5).map(lambda n: NEW_YEAR + timedelta(minutes=n)),
    sql.BooleanType(): st.booleans(),
    sql.BinaryType(): st.binary(max_size=2),
}
COMPARE: dict[type[spark.Filter], Callable[[Any, Any], bool]] = {
    spark.EqualTo: operator.eq,
    spark.EqualNullSafe: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
}
COMPARE_TEXT: dict[type[spark.Filter], Callable[[str, str], bool]] = {
    spark.StringStartsWith: str.startswith,
    spark.StringEndsWith: str.endswith,
    spark.StringContains: operator.contains,
}


def satisfies(item: spark.Filter, value: Any) -> bool | None:
    """The dumb twin: what Spark says of one value; ``None`` is SQL's unknown."""
    if isinstance(item, spark.Not):
        inner = satisfies(item.child, value)
        return None if inner is None else not inner
    if isinstance(item, spark.IsNull):
        return value is None
    if isinstance(item, spark.IsNotNull):
        return value is not None
    wanted = item.value  # type: ignore[attr-defined]
    if isinstance(item, spark.EqualNullSafe) and (value is None or wanted is None):
        return value is None and wanted is None
    if value is None:
        return None
    if isinstance(item, spark.In):
        if any(rank(one) == rank(value) for one in wanted if one is not None):
            return True
        return None if None in wanted else False
    if wanted is None:
        return None
    if type(item) in COMPARE_TEXT:
        return COMPARE_TEXT[type(item)](value, wanted)
    return COMPARE[type(item)](rank(value), rank(wanted))


def rank(value: Any) -> Any:
    """Spark's order: NaN equals itself and is above all numbers, text goes by its bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)  # exact, where seconds as a float lose far microseconds
    return value


@st.composite
def columns_and_filters(
    draw: st.DrawFn,
) -> tuple[sql.DataType, list[list[Any]], list[spark.Filter]]:
    """A type, the values of some entries, and filters on them."""
    of = draw(st.sampled_from(list(VALUES)))
    value = VALUES[of]
    entries = draw(
        st.lists(st.lists(st.none() | value, min_size=1, max_size=4), min_size=1, max_size=4)
    )
    literal = value
    if isinstance(of, sql.TimestampType):
        zones = st.sampled_from([UTC, timezone(timedelta(hours=2)), ZoneInfo("Europe/Berlin")])
        literal = st.tuples(value, zones).map(lambda pair: pair[0].astimezone(pair[1]))
    column = st.just(("c",))
    plain = st.one_of(
        *[st.builds(kind, column, literal | st.none()) for kind in COMPARE],
        st.builds(spark.In, column, st.lists(literal | st.none(), max_size=3).map(tuple)),
        st.builds(spark.IsNull, column),
        st.builds(spark.IsNotNull, column),
        *(
            [st.builds(kind, column, value) for kind in COMPARE_TEXT]
            if isinstance(of, sql.StringType)
            else []
        ),
    )
    filters = draw(st.lists(plain | st.builds(spark.Not, plain), min_size=1, max_size=3))
    return of, entries, filters


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(columns_and_filters())
def test_no_entry_and_no_range_with_a_row_that_satisfies_the_filters_is_pruned(
    case: tuple[sql.DataType, list[list[Any]], list[spark.Filter]],
) -> None:
    of, entries, filters = case
    schema = columns(c=of)
    arrow = arrow_schema(schema)
    builder = FooterBuilder(arrow, 8)
    row = 0
    for values in entries:
        batch = pa.record_batch([pa.array(values, arrow.field(0).type)], schema=arrow)
        builder.add(CutEntry(b"", batch, row))
        row += len(values)
    predicate = predicate_of(filters, schema, {"c"})

    encoded = builder.encode(0, 0)
    assert encoded is not None
    footer = parse_footer(0, len(entries), encoded)
    assert footer is not None
    runs = Layout(footer, 100).runs(0, len(entries) - 1, predicate, arrow)
    whole = LedgerRange(1, 0, len(entries) - 1, 0, row, 1, 0, 0, builder.column_ranges())
    kept_ranges = ranges_that_may_hold([whole], predicate, {"c"})

    wanted = [
        at
        for at, values in enumerate(entries)
        if any(all(satisfies(item, value) for item in filters) for value in values)
    ]
    kept = [at for first, last in runs for at in range(first, last + 1)]
    assert set(wanted) <= set(kept)
    assert kept_ranges or not wanted


def may_hold(of: sql.DataType, item: spark.Filter, **bounds: Any) -> bool:
    predicate = predicate_of([item], columns(c=of), {"c"})
    given = {"rows": 10, "nulls": 0, **bounds}
    return predicate.may_hold(lambda name: Bounds(**given))


C = ("c",)
PRUNED = [
    (sql.LongType(), spark.EqualTo(C, 9), {"minimum": 1, "maximum": 8}),
    (sql.LongType(), spark.GreaterThan(C, 8), {"minimum": 1, "maximum": 8}),
    (sql.LongType(), spark.GreaterThan(C, 8), {"maximum": 8}),
    (sql.LongType(), spark.GreaterThanOrEqual(C, 9), {"minimum": 1, "maximum": 8}),
    (sql.LongType(), spark.LessThan(C, 1), {"minimum": 1}),
    (sql.LongType(), spark.LessThanOrEqual(C, 0), {"minimum": 1, "maximum": 8}),
    (sql.LongType(), spark.In(C, (0, 9, None)), {"minimum": 1, "maximum": 8}),
    (sql.LongType(), spark.Not(spark.EqualTo(C, 5)), {"minimum": 5, "maximum": 5}),
    (sql.LongType(), spark.Not(spark.In(C, (4, 5))), {"minimum": 5, "maximum": 5, "nulls": 3}),
    (sql.LongType(), spark.Not(spark.LessThan(C, 9)), {"minimum": 1, "maximum": 8}),
    (sql.LongType(), spark.IsNull(C), {}),
    (sql.LongType(), spark.IsNotNull(C), {"nulls": 10}),
    (sql.LongType(), spark.Not(spark.IsNull(C)), {"nulls": 10}),
    (sql.LongType(), spark.EqualTo(C, 5), {"nulls": 10}),
    (sql.LongType(), spark.EqualNullSafe(C, None), {}),
    (sql.LongType(), spark.Not(spark.EqualNullSafe(C, 5)), {"minimum": 5, "maximum": 5}),
    (sql.StringType(), spark.StringStartsWith(C, "b"), {"minimum": "c", "maximum": "d"}),
    (sql.StringType(), spark.StringStartsWith(C, "b"), {"minimum": "a", "maximum": "az"}),
    (sql.StringType(), spark.Not(spark.StringStartsWith(C, "b")), {"minimum": "b", "maximum": "bz"}),
    (sql.StringType(), spark.StringContains(C, "x"), {"nulls": 10}),
    (sql.DecimalType(6, 2), spark.EqualTo(C, Decimal("1.10")), {"minimum": Decimal("1.11")}),
    (sql.DateType(), spark.EqualTo(C, date(2024, 1, 1)), {"minimum": date(2024, 1, 2)}),
]  # fmt: skip
KEPT = [
    (sql.LongType(), spark.EqualTo(C, 9), {}),
    (sql.LongType(), spark.EqualTo(C, "9"), {"minimum": 1, "maximum": 8}),
    (sql.LongType(), spark.EqualTo(C, True), {"minimum": 5, "maximum": 8}),
    (sql.LongType(), spark.EqualTo(C, 9), {"minimum": "1", "maximum": b"8"}),
    (sql.LongType(), spark.EqualTo(("c", "inner"), 9), {"minimum": 1, "maximum": 8}),
    (sql.LongType(), spark.EqualTo(("other",), 9), {"minimum": 1, "maximum": 8}),
    (sql.LongType(), spark.In(C, (0, "9")), {"minimum": 1, "maximum": 8}),
    (sql.LongType(), spark.IsNull(C), {"nulls": None}),
    (sql.LongType(), spark.IsNotNull(C), {"nulls": None}),
    (sql.LongType(), spark.Not(spark.EqualNullSafe(C, 5)), {"minimum": 5, "maximum": 5, "nulls": 1}),
    (sql.DoubleType(), spark.EqualTo(C, math.nan), {"minimum": 1.0, "maximum": 8.0}),
    (sql.DoubleType(), spark.EqualTo(C, 0.0), {"minimum": -0.0, "maximum": -0.0}),
    (sql.StringType(), spark.StringStartsWith(C, "b"), {"minimum": "a", "maximum": None}),
    (sql.StringType(), spark.StringContains(C, "x"), {"minimum": "a", "maximum": "b"}),
    (sql.StringType("UTF8_LCASE"), spark.EqualTo(C, "A"), {"minimum": "a", "maximum": "a"}),
    (sql.CharType(3), spark.EqualTo(C, "a"), {"minimum": "a  ", "maximum": "a  "}),
    (sql.DateType(), spark.EqualTo(C, NEW_YEAR), {"minimum": date(2024, 1, 2)}),
    (sql.TimestampType(), spark.EqualTo(C, NEW_YEAR), {"minimum": CHANGE_OF_CLOCKS}),
    (sql.TimestampNTZType(), spark.EqualTo(C, CHANGE_OF_CLOCKS), {"minimum": NEW_YEAR + timedelta(365)}),
    (sql.DecimalType(6, 2), spark.EqualTo(C, Decimal(1)), {"minimum": Decimal("NaN")}),
    # As PySpark gives 1234567890123456789012345678.1234567891: rounded to 28 digits.
    (
        sql.DecimalType(38, 10),
        spark.EqualTo(C, Decimal("1234567890123456789012345678")),
        {"minimum": Decimal("1234567890123456789012345678.1")},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("of", "item", "bounds"), PRUNED)
def test_bounds_rule_rows_out(of: sql.DataType, item: spark.Filter, bounds: dict[str, Any]) -> None:
    assert not may_hold(of, item, **bounds)


@pytest.mark.parametrize(("of", "item", "bounds"), KEPT)
def test_what_is_not_known_or_not_understood_rules_nothing_out(
    of: sql.DataType, item: spark.Filter, bounds: dict[str, Any]
) -> None:
    assert may_hold(of, item, **bounds)


def test_a_name_in_another_case_means_the_one_column_it_can() -> None:
    schema = columns(Id=sql.LongType(), x=sql.LongType())
    both = columns(a=sql.LongType(), A=sql.LongType())
    wanted = spark.EqualTo(("ID",), 1)

    assert predicate_of([wanted], schema, {"Id", "x"}).columns == {"Id"}
    assert predicate_of([spark.EqualTo(("A",), 1)], both, {"a"}) == Predicate()
    assert predicate_of([spark.EqualTo(("a",), 1)], both, {"a"}).columns == {"a"}


def test_predicates_travel_to_tasks() -> None:
    predicate = predicate_of([spark.In(C, (1, 2))], columns(c=sql.LongType()), {"c"})

    assert pickle.loads(pickle.dumps(predicate)) == predicate


def test_bounds_of_a_range_are_those_recorded() -> None:
    predicate = predicate_of([spark.GreaterThan(C, 5)], columns(c=sql.LongType()), {"c"})
    low, high, unknown = (
        LedgerRange(at, 0, 1, at * 10, 10, 1, 0, 0, bounds)
        for at, bounds in enumerate([(ColumnRange("c", 1, 5),), (ColumnRange("c", 1, 6),), ()])
    )

    assert ranges_that_may_hold([low, high, unknown], predicate, {"c"}) == [high, unknown]
    assert ranges_that_may_hold([low, high], Predicate(), {"c"}) == [low, high]
