"""How a log's schema grows: columns and nested fields are added at the end, nothing else changes.

What the log has keeps its place and its type, so rows written before need no rewriting: what they
lack is null. Columns are matched by name, exactly; a new name that differs from an old one only in
case is refused, because Spark would take the two for one. So the columns of every schema a log ever
had are the first ones of its newest, in their order: footers, which number columns, stay true. Pure.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from spark_bookkeeper.datasource.errors import SchemaMismatchError
from spark_bookkeeper.datasource.schema import (
    LogSchema,
    comparable,
    log_schema_of,
    nullable,
    parse_log_schema,
)


def merged(log: str, stored: LogSchema, given: StructType) -> LogSchema:
    """The log's schema with what ``given`` has more; ``stored`` itself if that is nothing.

    Raises:
        SchemaMismatchError: types differ, one line per column.
        UnsupportedTypeError: a new column cannot be stored.
    """
    differences: list[str] = []
    spark = _merged_fields("", stored.spark, nullable(given), differences)
    if differences:
        raise SchemaMismatchError(log, tuple(differences))
    if comparable(spark) == comparable(stored.spark):
        return stored
    derived = log_schema_of(spark)
    kept = {
        field.name
        for field in stored.spark
        if comparable(field.dataType) == comparable(spark[field.name].dataType)
    }
    # Of what stays the stored type counts: a later PySpark may map it differently.
    fields = [
        stored.arrow.field(field.name) if field.name in kept else field for field in derived.arrow
    ]
    return LogSchema(spark, pa.schema(fields))


def covers(newest: bytes, own: bytes) -> bool:
    """Whether the encoded schema ``newest`` begins with the columns of ``own``, types included."""
    has, wanted = parse_log_schema(newest), parse_log_schema(own).spark
    # Places count as well as names, because footers number columns.
    if has.spark.names[: len(wanted)] != wanted.names:
        return False
    try:
        return merged("", has, wanted) is has
    except SchemaMismatchError:
        return False


def _merged_fields(
    path: str, stored: StructType, given: StructType, differences: list[str]
) -> StructType:
    if len(set(given.names)) < len(given.names):
        where = f"{path[:-1]}: a field" if path else "a column"
        differences.append(f"{where} name stands twice")
        return stored
    new = {field.name: field for field in given}
    fields = []
    for field in stored:
        found = new.pop(field.name, None)
        if found is not None:
            kind = _merged_type(path + field.name, field.dataType, found.dataType, differences)
            field = StructField(field.name, kind, True, field.metadata)
        fields.append(field)
    by_lower = {name.lower(): name for name in stored.names}
    for name, field in new.items():
        # Set as well as asked, so that new names are compared with each other too.
        other = by_lower.setdefault(name.lower(), name)
        if other != name:
            differences.append(f"{path}{name}: there is {other}, names differ in case only")
        fields.append(field)
    return StructType(fields)


def _merged_type(path: str, stored: DataType, given: DataType, differences: list[str]) -> DataType:
    if isinstance(stored, StructType) and isinstance(given, StructType):
        return _merged_fields(f"{path}.", stored, given, differences)
    if isinstance(stored, ArrayType) and isinstance(given, ArrayType):
        element = _merged_type(
            f"{path}.element", stored.elementType, given.elementType, differences
        )
        return ArrayType(element, True)
    if isinstance(stored, MapType) and isinstance(given, MapType):
        # Keys have no nulls to stand for what older rows lack.
        if comparable(stored.keyType) == comparable(given.keyType):
            value = _merged_type(f"{path}.value", stored.valueType, given.valueType, differences)
            return MapType(stored.keyType, value, True)
    elif comparable(stored) == comparable(given):
        return stored
    # Told, not raised: the walk goes on with the stored type, so one error names every difference.
    differences.append(
        f"{path}: is {given.simpleString()}, the log has {stored.simpleString()}; "
        "mergeSchema adds columns, it changes no type"
    )
    return stored
