"""Schemas: stored for good, compared column by column, cast to exactly what Spark expects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as sql

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
from tests.spark_bookkeeper.datasource.rows import columns, everything

KINDS: tuple[sql.DataType, ...] = (
    sql.BooleanType(), sql.ByteType(), sql.ShortType(), sql.IntegerType(), sql.LongType(), sql.FloatType(), sql.DoubleType(),
    sql.DecimalType(38, 10), sql.DateType(), sql.TimestampType(), sql.TimestampNTZType(), sql.StringType(),
    sql.BinaryType(), sql.ArrayType(sql.IntegerType(), False), sql.MapType(sql.StringType(), sql.ArrayType(sql.LongType())),
    sql.StructType([sql.StructField("x", sql.IntegerType(), False), sql.StructField("y", sql.StringType())]),
    sql.NullType(), sql.DayTimeIntervalType(0, 3),
)  # fmt: skip


def mismatch(stored: sql.StructType, given: sql.StructType) -> tuple[str, ...]:
    with pytest.raises(SchemaMismatchError) as caught:
        check_fits("orders", stored, given)
    return caught.value.differences


def test_a_schema_of_every_type_survives_its_node() -> None:
    schema = sql.StructType(
        [sql.StructField(f"c{n}", kind, n % 2 == 0) for n, kind in enumerate(KINDS)]
    )

    stored = log_schema_of(schema)
    found = parse_log_schema(stored.encode())

    assert found.spark == stored.spark
    assert found.arrow.equals(stored.arrow)
    assert all(field.nullable for field in found.spark)
    assert found.spark["c13"].dataType == sql.ArrayType(sql.IntegerType(), True)


def test_comments_and_nullability_do_not_make_a_mismatch() -> None:
    stored = log_schema_of(
        columns(a=sql.LongType(), b=sql.ArrayType(sql.StringType(), False))
    ).spark
    commented = sql.StructField("b", sql.ArrayType(sql.StringType(), True), False, {"comment": "x"})

    check_fits(
        "orders", stored, sql.StructType([commented, sql.StructField("a", sql.LongType(), False)])
    )


def test_a_mismatch_is_told_column_by_column() -> None:
    stored = columns(id=sql.LongType(), Name=sql.StringType(), at=sql.TimestampType())

    message = mismatch(
        stored, columns(id=sql.IntegerType(), name=sql.StringType(), extra=sql.DateType())
    )

    assert message == (
        "id: is int, the log has bigint",
        "Name: missing, the log has string (there is name: names differ in case)",
        "at: missing, the log has timestamp",
        "name: is string, the log has no such column",
        "extra: is date, the log has no such column",
    )


def test_types_that_differ_deep_inside_are_a_mismatch() -> None:
    stored = columns(a=sql.ArrayType(columns(x=sql.LongType())))
    given = columns(a=sql.ArrayType(columns(x=sql.IntegerType())))

    assert mismatch(stored, given) == (
        "a: is array<struct<x:int>>, the log has array<struct<x:bigint>>",
    )


def test_a_column_twice_is_a_mismatch() -> None:
    twice = sql.StructType(
        [sql.StructField("a", sql.LongType()), sql.StructField("a", sql.LongType())]
    )

    assert mismatch(columns(a=sql.LongType()), twice) == ("a column name stands twice",)


def test_types_arrow_cannot_express_are_refused_by_column() -> None:
    months = sql.YearMonthIntervalType()

    with pytest.raises(UnsupportedTypeError, match="columns=b,c"):
        log_schema_of(columns(a=sql.LongType(), b=months, c=sql.ArrayType(months)))


def nested(levels: int) -> sql.DataType:
    """An array of arrays, so many levels deep."""
    found: sql.DataType = sql.LongType()
    for _ in range(levels):
        found = sql.ArrayType(found)
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


@pytest.mark.parametrize(
    "schema",
    [
        columns(value=sql.LongType()),
        columns(v=sql.BinaryType()),
        columns(value=sql.BinaryType(), b=sql.BinaryType()),
    ],
)
def test_raw_takes_one_column_value_and_nothing_else(schema: sql.StructType) -> None:
    check_raw("orders", columns(value=sql.BinaryType()))
    check_raw("orders", columns(value=sql.StringType()))
    with pytest.raises(SchemaMismatchError, match="stores one column value of binary or string"):
        check_raw("orders", schema)


def test_a_read_may_ask_for_some_columns_and_not_for_others() -> None:
    stored = columns(a=sql.LongType(), b=sql.StringType())

    check_readable("orders", stored, columns(b=sql.StringType()))
    with pytest.raises(SchemaMismatchError, match="z: is bigint, the log has no such column"):
        check_readable("orders", stored, columns(z=sql.LongType()))
    with pytest.raises(SchemaMismatchError, match="a: is string, the log has bigint"):
        check_readable("orders", stored, columns(a=sql.StringType()))


@pytest.mark.parametrize(
    "value", [b"", b"{}", b'{"version":2}', b'{"version":1,"arrow":"x"}', b"[]"]
)
def test_what_is_no_schema_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"schema|Expecting"):
        parse_log_schema(value)


@pytest.mark.parametrize(
    "around",
    [
        lambda udt: udt,
        lambda udt: {"type": "array", "elementType": udt, "containsNull": True},
        lambda udt: {
            "type": "map", "keyType": "string", "valueType": udt, "valueContainsNull": True
        },
        lambda udt: {"type": "map", "keyType": udt},
        lambda udt: {
            "type": "struct",
            "fields": [{"name": "y", "type": udt, "nullable": True, "metadata": {}}],
        },
    ],
    ids=["column", "array", "map", "half a map", "struct"],
)  # fmt: skip
def test_a_schema_node_makes_no_reader_import_what_it_names(
    around: Callable[[object], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who could write a schema node could run any module that a reader can import."""
    (tmp_path / "named_by_a_node.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    udt = {"type": "udt", "pyClass": "named_by_a_node.Own", "sqlType": "string"}
    schema = log_schema_of(sql.StructType([sql.StructField("x", sql.StringType())]))
    value = json.loads(schema.encode())
    value["spark"]["fields"][0]["type"] = around(udt)

    with pytest.raises(ValueError, match="no reader runs"):
        parse_log_schema(json.dumps(value).encode())


class Point(sql.UserDefinedType):
    """A user's own type, here of this module."""

    @classmethod
    def sqlType(cls) -> sql.DataType:  # noqa: N802 - PySpark's name
        return sql.StringType()

    @classmethod
    def module(cls) -> str:
        return __name__


def test_a_column_of_a_users_own_class_is_refused_when_it_is_written() -> None:
    schema = sql.StructType(
        [sql.StructField("x", sql.IntegerType()), sql.StructField("p", Point())]
    )

    with pytest.raises(UnsupportedTypeError) as refused:
        log_schema_of(schema)
    assert refused.value.columns == ("p",)


def test_batches_of_the_right_types_are_passed_on_untouched() -> None:
    batch = everything(20)

    assert cast_batch(batch, batch.schema) is batch


def test_session_zone_large_types_and_order_are_cast_away() -> None:
    target = arrow_schema(
        columns(t=sql.TimestampType(), s=sql.StringType(), l=sql.ArrayType(sql.BinaryType()))
    )
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
