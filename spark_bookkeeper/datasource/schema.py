"""Spark schemas, Arrow schemas, and what a log keeps of both.

A log's schema is what Spark said, made nullable throughout as Spark's own file sources do, so that
any later DataFrame of the same columns can be appended. Columns are matched by name and stored in
the log's order. The Arrow schema is stored beside Spark's, because entries must stay readable if a
later PySpark maps a type differently. Pure.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as types
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from spark_bookkeeper.datasource.errors import (
    SchemaMismatchError,
    UnsupportedTypeError,
    ValueInvalidError,
)
from spark_bookkeeper.datasource.nesting import list_around, map_around, struct_around

SCHEMA_VERSION = 1
_LEVELS_MAX = 100
"""Types within each other; Arrow follows 64, and so no log was made with more."""
RAW_COLUMN = "value"
"""The one column of a log with raw payloads."""


@dataclass(frozen=True, slots=True)
class LogSchema:
    """One schema of a log: Spark's, nullable throughout, and Arrow's without field metadata."""

    spark: StructType
    arrow: pa.Schema

    def encode(self) -> bytes:
        """The value of the log's schema node: JSON, so that operators can read it."""
        value = {
            "version": SCHEMA_VERSION,
            "spark": self.spark.jsonValue(),
            "arrow": base64.b64encode(self.arrow.serialize().to_pybytes()).decode(),
        }
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def parse_log_schema(value: bytes) -> LogSchema:
    """The schema in a schema node.

    Raises:
        ValueError: the value is none of ours, or of a later version.
    """
    try:
        found = json.loads(value)
        if not isinstance(found, dict) or found.get("version") != SCHEMA_VERSION:
            raise ValueError(f"not of version {SCHEMA_VERSION}")
        _check_types(found["spark"])
        arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["arrow"], validate=True)))
        return LogSchema(StructType.fromJson(found["spark"]), arrow)
    except _NOT_UNDERSTOOD as e:
        raise ValueError(f"schema cannot be understood: {e!r}") from e


_NOT_UNDERSTOOD = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,  # PySpark's own, of a collation
    RecursionError,  # nested too deeply, for JSON or for PySpark
    OSError,
    PySparkException,
    pa.ArrowException,
)
"""What a value that is no schema makes JSON, PySpark and Arrow raise."""


def _check_types(of: object) -> None:
    """Refuse a type's JSON that holds a user defined type anywhere: PySpark imports the module it names.

    Raises:
        ValueError: it does, or it is nested deeper than any schema that was stored.
    """
    level = [of]
    for _ in range(_LEVELS_MAX):
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                if each.get("type") == "udt":
                    raise ValueError("a user defined type names Python code, which no reader runs")
                # Wherever a type may stand, also where others are missing: PySpark parses one by one.
                below += [each.get(key) for key in ("elementType", "keyType", "valueType")]
                fields = each.get("fields")
                if isinstance(fields, list):
                    below += [field.get("type") for field in fields if isinstance(field, dict)]
        if not below:
            return
        level = below
    raise ValueError(f"types within {_LEVELS_MAX} others")


def log_schema_of(schema: StructType) -> LogSchema:
    """The schema a log would have that holds rows of ``schema``.

    Raises:
        UnsupportedTypeError: names every column whose type Spark cannot express in Arrow, that
            is nested deeper than Arrow follows, or that is a user's own class.
    """
    spark = nullable(schema)
    unsupported = [field.name for field in spark if not _is_supported(field)]
    if unsupported:
        raise UnsupportedTypeError(tuple(unsupported))
    return LogSchema(spark, arrow_schema(spark).remove_metadata())


def arrow_schema(schema: StructType) -> pa.Schema:
    """Exactly what Spark expects a reader's batches of ``schema`` to look like."""
    return to_arrow_schema(schema, timezone="UTC")


def check_fits(log: str, stored: StructType, given: StructType) -> None:
    """Refuse rows whose columns are not the log's; order, nullability and comments do not matter.

    Raises:
        SchemaMismatchError: with one line per column.
    """
    differences = _differences(stored, nullable(given))
    if differences:
        raise SchemaMismatchError(log, tuple(differences))


def check_raw(log: str, given: StructType) -> None:
    """Refuse anything but the one column of a raw log.

    Raises:
        SchemaMismatchError: says what raw payloads need.
    """
    fits = [field.name for field in given] == [RAW_COLUMN]
    if not fits or not isinstance(given[0].dataType, BinaryType | StringType):
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in given)
        raise SchemaMismatchError(
            log, (f"payloadFormat=raw stores one column value of binary or string, not {columns}",)
        )


def check_readable(log: str, stored: StructType, wanted: StructType) -> None:
    """Refuse a user's ``.schema(…)`` that is not some of the log's columns with their types.

    Raises:
        SchemaMismatchError: with one line per column.
    """
    check_fits(log, StructType([field for field in stored if field.name in wanted.names]), wanted)


def cast_batch(
    batch: pa.RecordBatch, target: pa.Schema, positions: Sequence[int | None] | None = None
) -> pa.RecordBatch:
    """The same rows with exactly the target's types, taking columns by position.

    ``positions`` says which of the batch's columns each of the target's is, ``None`` for a column
    of nulls; without it they are in order. Nested fields are matched by name.
    Costs nothing where types are equal. Spark's session zone and ``useLargeVarTypes`` change only
    how a value is represented, so every cast here is without loss.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit, which a checked schema rules out.
    """
    if positions is None and batch.schema.equals(target):
        return batch
    order = range(len(target)) if positions is None else positions
    columns = [
        pa.nulls(batch.num_rows, field.type)
        if at is None
        else cast_array(batch.column(at), field.type)
        for at, field in zip(order, target, strict=True)
    ]
    if not columns:
        # A batch without columns still has rows, which from_arrays would forget.
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=target)


def check_values(batch: pa.RecordBatch) -> None:
    """Refuse what decoding would refuse: Spark does not check that its texts are UTF-8.

    Raises:
        ValueInvalidError: names the first such column.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ValueInvalidError(name, str(error)) from error


def cast_array(array: pa.Array, of: pa.DataType) -> pa.Array:
    """The same values as exactly ``of``; fields of structs by name, those it lacks null.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit.
    """
    if array.type.equals(of):
        return array
    if types.is_struct(of) and types.is_struct(array.type):
        return struct_around(array, of, _cast_fields(array, of))
    if types.is_list(of) and types.is_list(array.type):
        # Not flatten(): the offsets that are kept count from the first value of the unsliced array.
        return list_around(array, of, cast_array(array.values, of.value_type))
    if types.is_map(of) and types.is_map(array.type):
        items = cast_array(array.items, of.item_type)
        return map_around(array, of, cast_array(array.keys, of.key_type), items)
    return array.cast(of)


def _cast_fields(array: pa.Array, of: pa.DataType) -> list[pa.Array]:
    """The fields of a struct by name; nulls for those it lacks, and others are left out."""
    names = [field.name for field in array.type]
    if names == [field.name for field in of]:  # by position: names of a struct may stand twice
        at = {n: n for n in range(len(names))}
    else:
        found = {name: position for position, name in enumerate(names)}
        at = {n: found[field.name] for n, field in enumerate(of) if field.name in found}
    return [
        cast_array(array.field(at[n]), field.type) if n in at else pa.nulls(len(array), field.type)
        for n, field in enumerate(of)
    ]


def _differences(stored: StructType, given: StructType) -> list[str]:
    found = []
    stored_types = {field.name: field.dataType for field in stored}
    given_types = {field.name: field.dataType for field in given}
    if len(given_types) != len(given.fields):
        found.append("a column name stands twice")
    by_lower = {name.lower(): name for name in given_types}
    for name, stored_type in stored_types.items():
        expected = stored_type.simpleString()
        if name not in given_types:
            other = by_lower.get(name.lower())
            hint = f" (there is {other}: names differ in case)" if other else ""
            found.append(f"{name}: missing, the log has {expected}{hint}")
        elif comparable(given_types[name]) != comparable(stored_type):
            found.append(f"{name}: is {given_types[name].simpleString()}, the log has {expected}")
    found += [
        f"{name}: is {given_type.simpleString()}, the log has no such column"
        for name, given_type in given_types.items()
        if name not in stored_types
    ]
    return found


def nullable(schema: StructType) -> StructType:
    """The schema with every column, field, element and value nullable."""
    found = _nullable_type(schema)
    assert isinstance(found, StructType)
    return found


def _nullable_type(of: DataType) -> DataType:
    if isinstance(of, StructType):
        return StructType(
            [
                StructField(field.name, _nullable_type(field.dataType), True, field.metadata)
                for field in of
            ]
        )
    if isinstance(of, ArrayType):
        return ArrayType(_nullable_type(of.elementType), True)
    if isinstance(of, MapType):
        return MapType(_nullable_type(of.keyType), _nullable_type(of.valueType), True)
    return of


def comparable(of: DataType) -> str:
    """A nullable type without comments, comparable; nested names and order count."""
    if isinstance(of, StructType):
        return f"struct<{','.join(f'{json.dumps(f.name)}:{comparable(f.dataType)}' for f in of)}>"
    if isinstance(of, ArrayType):
        return f"array<{comparable(of.elementType)}>"
    if isinstance(of, MapType):
        return f"map<{comparable(of.keyType)},{comparable(of.valueType)}>"
    return of.json()


def _is_supported(field: StructField) -> bool:
    """Whether the column can be read back from a schema node, and its values from Arrow's messages.

    Arrow and Python follow types only so deep.
    """
    one = StructType([field])
    try:
        column = LogSchema(one, arrow_schema(one).remove_metadata())
        kept = parse_log_schema(column.encode())
        # A null of it is enough to make Arrow write and read the type to its full depth.
        row = pa.RecordBatch.from_arrays([pa.nulls(1, kept.arrow.field(0).type)], names=["null"])
        pa.ipc.read_record_batch(row.serialize(), row.schema)
        return bool(kept == column)
    except (PySparkException, ValueError, RecursionError):
        return False
