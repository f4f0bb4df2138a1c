"""Column bounds as protobuf messages and back, each Python type to its own field.

Dates and times travel as days and microseconds since 1970, decimals as text; an aware datetime
(Spark's TIMESTAMP) and a naive one (TIMESTAMP_NTZ) stay apart.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from spark_bookkeeper.log.format import log_pb2 as pb
from spark_bookkeeper.log.format.columns import ColumnRange, Scalar

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NTZ = _EPOCH.replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)


def column_to_pb(column: ColumnRange) -> pb.ColumnRange:
    """The bounds as a message."""
    return pb.ColumnRange(
        column=column.column,
        minimum=None if column.minimum is None else _scalar_to_pb(column.minimum),
        maximum=None if column.maximum is None else _scalar_to_pb(column.maximum),
        nulls=column.nulls,
    )


def columns_from_pb(
    messages: Collection[pb.ColumnRange], wanted: Collection[str] | None
) -> tuple[ColumnRange, ...]:
    """The bounds in ``messages``, of ``wanted`` columns only (``None``: all).

    Raises:
        ValueError, ArithmeticError: a bound is no value of its type.
    """
    found: list[ColumnRange] = []
    for message in messages:
        if wanted is not None:
            if len(found) == len(wanted):
                break  # The rest is not asked for; this loop is most of a filtered read's planning.
            if message.column not in wanted:
                continue
        found.append(
            ColumnRange(
                message.column,
                _scalar_from_pb(message.minimum) if message.HasField("minimum") else None,
                _scalar_from_pb(message.maximum) if message.HasField("maximum") else None,
                message.nulls,
            )
        )
    return tuple(found)


def _scalar_to_pb(scalar: Scalar) -> pb.Scalar:
    # bool is an int and datetime a date: the narrower type is asked first.
    match scalar:
        case bool():
            return pb.Scalar(boolean=scalar)
        case int():
            return pb.Scalar(integer=scalar)
        case float():
            return pb.Scalar(real=scalar)
        case str():
            return pb.Scalar(text=scalar)
        case bytes():
            return pb.Scalar(binary=scalar)
        case Decimal():
            return pb.Scalar(decimal=str(scalar))
        # Whole microseconds by integer division: seconds as a float are not exact for far dates.
        case datetime() if scalar.tzinfo is None:
            return pb.Scalar(timestamp_ntz_us=(scalar - _EPOCH_NTZ) // _MICROSECOND)
        case datetime():
            return pb.Scalar(timestamp_us=(scalar - _EPOCH) // _MICROSECOND)
        case date():
            return pb.Scalar(date_days=(scalar - _EPOCH_DAY).days)


def _scalar_from_pb(message: pb.Scalar) -> Scalar:
    match message.WhichOneof("kind"):
        case "boolean":
            return message.boolean
        case "integer":
            return message.integer
        case "real":
            return message.real
        case "text":
            return message.text
        case "binary":
            return message.binary
        case "decimal":
            return Decimal(message.decimal)
        case "date_days":
            return _EPOCH_DAY + timedelta(days=message.date_days)
        case "timestamp_us":
            return _EPOCH + timedelta(microseconds=message.timestamp_us)
        case "timestamp_ntz_us":
            return _EPOCH_NTZ + timedelta(microseconds=message.timestamp_ntz_us)
        case other:
            raise ValueError(f"unknown kind of bound {other}")
