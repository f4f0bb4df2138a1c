"""Which rows cannot satisfy a query's filters, decided by bounds of their columns alone.

Pure. Answers "nothing here can match" or "something may": a wrong "may" costs a read, a wrong
"cannot" loses rows, so whatever is not understood - a nested column, a collated text, a value of
another type than its column's, a bound that was not recorded - may match. Spark applies all filters again
to the rows it gets. Order is Spark's: text and binary by bytes, NaN above all numbers (where there
is one no bounds are recorded), -0.0 equal to 0.0; a comparison with null is never true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, auto, unique
from typing import Any

from pyspark.sql import datasource as spark
from pyspark.sql import types as sql

PUSHED_DIGITS_MAX = 27
"""Digits of a pushed decimal that is surely what the user wrote: PySpark multiplies what Spark sent,
so one that needs more than the 28 of Python's default context comes rounded to these."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of one column over some rows: every non-null value lies between the two."""

    rows: int
    minimum: Any = None
    """``None``: unknown, as for ``maximum``."""
    maximum: Any = None
    nulls: int | None = None
    """``None``: unknown."""

    @property
    def is_all_null(self) -> bool:
        return self.nulls is not None and self.nulls >= self.rows


@unique
class _Claim(Enum):
    """What a condition says of a value."""

    IN = auto()
    NOT_IN = auto()
    NOT_IN_OR_NULL = auto()
    ABOVE = auto()
    AT_LEAST = auto()
    BELOW = auto()
    AT_MOST = auto()
    PREFIX = auto()
    NOT_PREFIX = auto()
    NULL = auto()
    NOT_NULL = auto()


@dataclass(frozen=True, slots=True)
class Condition:
    """One filter that the bounds of a column can rule rows out by."""

    column: str
    claim: _Claim
    of: sql.DataType
    """The column's type."""
    values: tuple[Any, ...] = ()
    """Comparable with each other and with the column's bounds; one, but for lists."""

    def may_hold(self, bounds: Bounds) -> bool:
        """Whether a row within ``bounds`` could satisfy it."""
        if self.claim is _Claim.NULL:
            return bounds.nulls != 0
        low, high = comparable(self.of, bounds.minimum), comparable(self.of, bounds.maximum)
        if self.claim is _Claim.NOT_IN_OR_NULL:
            return not (bounds.nulls == 0 and _is_always(low, high, self.values))
        return not bounds.is_all_null and _may_hold(self.claim, self.values, low, high)


@dataclass(frozen=True, slots=True)
class Predicate:
    """The filters of one read, all of which a row must satisfy; without any, all rows may."""

    conditions: tuple[Condition, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns whose bounds it asks for."""
        return frozenset(condition.column for condition in self.conditions)

    def may_hold(self, bounds: Callable[[str], Bounds]) -> bool:
        """Whether a row could satisfy it, when ``bounds`` gives the bounds of each column by name."""
        return all(condition.may_hold(bounds(condition.column)) for condition in self.conditions)


ALL_ROWS = Predicate()


def predicate_of(
    filters: Iterable[spark.Filter], schema: sql.StructType, columns: Collection[str]
) -> Predicate:
    """Those of Spark's filters that bounds of columns can rule rows out by.

    ``schema`` is the read's; ``columns`` those of it that may have bounds.
    """
    types = {field.name: field.dataType for field in schema}
    found = (_condition(item, types) for item in filters)
    return Predicate(tuple(one for one in found if one is not None and one.column in columns))


def comparable(of: sql.DataType, value: object) -> Any:
    """The value as one that Python orders as Spark orders the type's; ``None``: there is none."""
    if isinstance(of, sql.ByteType | sql.ShortType | sql.IntegerType | sql.LongType):
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(of, sql.FloatType | sql.DoubleType):
        return value if isinstance(value, float) and not math.isnan(value) else None
    if isinstance(of, sql.DecimalType):
        if isinstance(value, Decimal):
            return value if value.is_finite() else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(of, sql.StringType):
        # Subtypes pad, and other collations order differently: both are left to Spark.
        # And Python orders by code point, which is the order of the bytes of UTF-8.
        is_plain = type(of) is sql.StringType and of == sql.StringType()
        return value if is_plain and isinstance(value, str) else None
    if isinstance(of, sql.BinaryType):
        return bytes(value) if isinstance(value, bytes | bytearray) else None
    if isinstance(of, sql.BooleanType):
        return value if isinstance(value, bool) else None
    if isinstance(of, sql.DateType):
        is_date = isinstance(value, date) and not isinstance(value, datetime)
        return value if is_date else None
    return _comparable_time(of, value)


def _comparable_time(of: sql.DataType, value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    if isinstance(of, sql.TimestampNTZType):
        return value if value.tzinfo is None else None
    if not isinstance(of, sql.TimestampType) or value.tzinfo is None:
        return None
    try:
        # Two times of one zone compare by their wall clocks, which run twice in autumn.
        return value.astimezone(UTC)
    except (OverflowError, ValueError):
        return None


def _may_hold(claim: _Claim, values: tuple[Any, ...], low: Any, high: Any) -> bool:
    """Whether some value from ``low`` to ``high`` (``None``: unknown) could satisfy the claim."""
    match claim:
        case _Claim.IN:
            return any(_is_within(value, low, high) for value in values)
        case _Claim.NOT_IN:
            return not _is_always(low, high, values)
        case _Claim.ABOVE:
            return high is None or high > values[0]
        case _Claim.AT_LEAST:
            return high is None or high >= values[0]
        case _Claim.BELOW:
            return low is None or low < values[0]
        case _Claim.AT_MOST:
            return low is None or low <= values[0]
        case _Claim.PREFIX:
            prefix = values[0]
            # A minimum whose first letters are above the prefix is above all that begins with it.
            starts_low = low is None or low[: len(prefix)] <= prefix
            return starts_low and (high is None or high >= prefix)
        case _Claim.NOT_PREFIX:
            # What lies between two texts that begin with the prefix begins with it too.
            ends = (low, high)
            return any(end is None or not end.startswith(values[0]) for end in ends)
        case _:
            return True


def _is_within(value: Any, low: Any, high: Any) -> bool:
    return (low is None or low <= value) and (high is None or value <= high)


def _is_always(low: Any, high: Any, values: tuple[Any, ...]) -> bool:
    """Whether every value there can be is the same, and one of ``values``."""
    return low is not None and high is not None and low == high and low in values


_COMPARISONS: dict[type[spark.Filter], tuple[_Claim, _Claim]] = {
    spark.EqualTo: (_Claim.IN, _Claim.NOT_IN),
    spark.EqualNullSafe: (_Claim.IN, _Claim.NOT_IN_OR_NULL),
    spark.GreaterThan: (_Claim.ABOVE, _Claim.AT_MOST),
    spark.GreaterThanOrEqual: (_Claim.AT_LEAST, _Claim.BELOW),
    spark.LessThan: (_Claim.BELOW, _Claim.AT_LEAST),
    spark.LessThanOrEqual: (_Claim.AT_MOST, _Claim.ABOVE),
    spark.In: (_Claim.IN, _Claim.NOT_IN),
    spark.StringStartsWith: (_Claim.PREFIX, _Claim.NOT_PREFIX),
}
"""What each filter claims of a value, and what its negation does."""


def _condition(item: spark.Filter, types: dict[str, sql.DataType]) -> Condition | None:
    is_negated = isinstance(item, spark.Not)
    plain = item.child if isinstance(item, spark.Not) else item
    path: tuple[str, ...] = getattr(plain, "attribute", ())
    column = _column(path[0], types) if len(path) == 1 else None
    if column is None:
        return None
    of = types[column]
    if isinstance(plain, spark.IsNull | spark.IsNotNull):
        is_null = isinstance(plain, spark.IsNull) is not is_negated
        return Condition(column, _Claim.NULL if is_null else _Claim.NOT_NULL, of)
    # Negated or not, they are never true of a null; bounds say nothing else about them.
    if isinstance(plain, spark.StringEndsWith | spark.StringContains):
        return Condition(column, _Claim.NOT_NULL, of)
    claims = _COMPARISONS.get(type(plain))
    if claims is None:
        return None
    return _comparison(column, of, plain, claims[1] if is_negated else claims[0])


def _comparison(column: str, of: sql.DataType, plain: Any, claim: _Claim) -> Condition | None:
    if isinstance(plain, spark.EqualNullSafe) and plain.value is None:
        is_null = claim is _Claim.IN
        return Condition(column, _Claim.NULL if is_null else _Claim.NOT_NULL, of)
    given = plain.value if isinstance(plain, spark.In) else (plain.value,)
    # A null in a list equals nothing; whether it makes the whole list null is Spark's to find.
    wanted = [value for value in given if value is not None]
    values = tuple(comparable(of, value) for value in wanted)
    # One value that is not understood spoils the list: which rows it would match is unknown.
    if not values or any(value is None or _is_rounded(value) for value in values):
        return None
    return Condition(column, claim, of, values)


def _is_rounded(value: object) -> bool:
    return isinstance(value, Decimal) and len(value.as_tuple().digits) > PUSHED_DIGITS_MAX


def _column(name: str, types: dict[str, sql.DataType]) -> str | None:
    """The column Spark means, which may have resolved the name without regard to case."""
    if name in types:
        return name
    alike = [known for known in types if known.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
