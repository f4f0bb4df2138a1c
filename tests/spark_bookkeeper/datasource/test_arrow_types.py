"""Schemas: stored for good, compared column by column, cast to exactly what Spark expects."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from spark_bookkeeper.datasource.errors import SchemaMismatchError, UnsupportedTypeError
from spark_bookkeeper.datasource.payload.arrow import ArrowDecoder, ArrowEncoder
from spark_bookkeeper.datasource.schema import (
    arrow_schema,
    cast_batch,
    check_fits,
    check_raw,
    check_readable,
    log_schema_of,
    parse_log_schema,
)
from tests.spark_bookkeeper.datasource.rows import everything

KINDS: tuple[DataType, ...] = (
    BooleanType(), ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType(),
    DecimalType(38, 10), DateType(), TimestampType(), TimestampNTZType(), StringType(),
    BinaryType(), ArrayType(IntegerType(), False), MapType(StringType(), ArrayType(LongType())),
    StructType([StructField("x", IntegerType(), False), StructField("y", StringType())]),
    NullType(), DayTimeIntervalType(0, 3),
)  # fmt: skip


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def mismatch(stored: StructType, given: StructType) -> tuple[str, ...]:
    with pytest.raises(SchemaMismatchError) as caught:
        check_fits("orders", stored, given)
    return caught.value.differences


def test_a_schema_of_every_type_survives_its_node() -> None:
    schema = StructType([StructField(f"c{n}", kind, n % 2 == 0) for n, kind in enumerate(KINDS)])

    stored = log_schema_of(schema)
    found = parse_log_schema(stored.encode())

    assert found.spark == stored.spark
    assert found.arrow.equals(stored.arrow)
    assert all(field.nullable for field in found.spark)
    assert found.spark["c13"].dataType == ArrayType(IntegerType(), True)


def test_comments_and_nullability_do_not_make_a_mismatch() -> None:
    stored = log_schema_of(columns(a=LongType(), b=ArrayType(StringType(), False))).spark
    given = StructType(
        [
            StructField("b", ArrayType(StringType(), True), False, {"comment": "x"}),
            StructField("a", LongType(), False),
        ]
    )

    check_fits("orders", stored, given)


def test_a_mismatch_is_told_column_by_column() -> None:
    stored = columns(id=LongType(), Name=StringType(), at=TimestampType())

    message = mismatch(stored, columns(id=IntegerType(), name=StringType(), extra=DateType()))

    assert message == (
        "id: is int, the log has bigint",
        "Name: missing, the log has string (there is name: names differ in case)",
        "at: missing, the log has timestamp",
        "name: is string, the log has no such column",
        "extra: is date, the log has no such column",
    )


def test_types_that_differ_deep_inside_are_a_mismatch() -> None:
    stored = columns(a=ArrayType(StructType([StructField("x", LongType())])))
    given = columns(a=ArrayType(StructType([StructField("x", IntegerType())])))

    assert mismatch(stored, given) == (
        "a: is array<struct<x:int>>, the log has array<struct<x:bigint>>",
    )


def test_a_column_twice_is_a_mismatch() -> None:
    twice = StructType([StructField("a", LongType()), StructField("a", LongType())])

    assert mismatch(columns(a=LongType()), twice) == ("a column name stands twice",)


def test_types_arrow_cannot_express_are_refused_by_column() -> None:
    with pytest.raises(UnsupportedTypeError, match="columns=b,c"):
        log_schema_of(
            columns(a=LongType(), b=YearMonthIntervalType(), c=ArrayType(YearMonthIntervalType()))
        )


def nested(levels: int) -> DataType:
    """An array of arrays, so many levels deep."""
    found: DataType = LongType()
    for _ in range(levels):
        found = ArrayType(found)
    return found


@pytest.mark.parametrize("levels", [64, 80, 150, 400])
def test_types_nested_deeper_than_arrow_follows_are_refused_by_column(levels: int) -> None:
    with pytest.raises(UnsupportedTypeError, match=r"columns=b$"):
        log_schema_of(columns(a=nested(2), b=nested(levels)))


def test_types_nested_as_deep_as_arrow_follows_are_written_and_read() -> None:
    deepest = log_schema_of(columns(a=nested(63)))
    rows = pa.RecordBatch.from_arrays([pa.nulls(3, deepest.arrow.field(0).type)], ["a"])

    payload = ArrowEncoder(deepest.arrow, 0, "zstd").encode(rows, 0, 0)

    assert ArrowDecoder(deepest.arrow).decode(1, 0, payload)[1].equals(rows)


@pytest.mark.parametrize("kind", [BinaryType(), StringType()])
def test_raw_takes_one_column_value(kind: DataType) -> None:
    check_raw("orders", columns(value=kind))


@pytest.mark.parametrize(
    "schema",
    [
        columns(value=LongType()),
        columns(v=BinaryType()),
        columns(value=BinaryType(), b=BinaryType()),
    ],
)
def test_raw_takes_nothing_else(schema: StructType) -> None:
    with pytest.raises(SchemaMismatchError, match="stores one column value of binary or string"):
        check_raw("orders", schema)


def test_a_read_may_ask_for_some_columns_and_not_for_others() -> None:
    stored = columns(a=LongType(), b=StringType())

    check_readable("orders", stored, columns(b=StringType()))
    with pytest.raises(SchemaMismatchError, match="z: is bigint, the log has no such column"):
        check_readable("orders", stored, columns(z=LongType()))
    with pytest.raises(SchemaMismatchError, match="a: is string, the log has bigint"):
        check_readable("orders", stored, columns(a=StringType()))


@pytest.mark.parametrize(
    "value", [b"", b"{}", b'{"version":2}', b'{"version":1,"arrow":"x"}', b"[]"]
)
def test_what_is_no_schema_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"schema|Expecting"):
        parse_log_schema(value)


def test_batches_of_the_right_types_are_passed_on_untouched() -> None:
    batch = everything(20)

    assert cast_batch(batch, batch.schema) is batch


def test_session_zone_large_types_and_order_are_cast_away() -> None:
    target = arrow_schema(columns(t=TimestampType(), s=StringType(), l=ArrayType(BinaryType())))
    sent = pa.record_batch(
        {
            "s": pa.array(["x", None], pa.large_string()),
            "l": pa.array([[b"y"], []], pa.list_(pa.field("element", pa.large_binary(), False))),
            "t": pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "Europe/Berlin")),
        }
    )

    found = cast_batch(sent, target, [2, 0, 1])

    assert found.schema.equals(target)
    assert found.column(0).cast(pa.int64()).to_pylist() == [1_700_000_000_000_000, None]
    assert found.column(1).to_pylist() == ["x", None]
    assert found.column(2).to_pylist() == [[b"y"], []]


def test_nested_fields_are_cast_by_name_also_below_nulls_and_in_slices() -> None:
    # As Spark sends a variant in a struct: fields that are not nullable, below a struct that is.
    variant = [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)]
    sent = pa.struct([pa.field("v", pa.struct(variant), False), ("gone", pa.int32())])
    one = {"v": {"value": b"1", "metadata": b"m"}, "gone": 1}
    batch = pa.record_batch(
        {
            "s": pa.array([one, None, one, None], sent),
            "l": pa.array([[one], None, [None, one], []], pa.list_(sent)),
            "m": pa.array([[("k", one)], [], None, [("n", None)]], pa.map_(pa.string(), sent)),
        }
    )
    marked = [variant[0], variant[1].with_metadata({b"variant": b"true"})]
    wanted = pa.struct([pa.field("new", pa.int64()), pa.field("v", pa.struct(marked))])
    target = pa.schema(
        [("s", wanted), ("l", pa.list_(wanted)), ("m", pa.map_(pa.string(), wanted))]
    )

    found = cast_batch(batch.slice(1), target)

    found.validate(full=True)
    full = {"new": None, "v": one["v"]}
    assert found.schema.equals(target, check_metadata=True)
    assert found.to_pydict() == {
        "s": [None, full, None],
        "l": [None, [None, full], []],
        "m": [[], None, [("n", None)]],
    }


def test_rows_without_columns_are_counted_still() -> None:
    batch = pa.record_batch({"x": pa.array([1, 2, 3])})

    assert cast_batch(batch, pa.schema([]), []).num_rows == 3
