"""Which Avro schema rows of an Arrow schema have, and which Arrow types carry its values.

Every value is nullable, as everything in a log is: a union of ``null`` and the type. (Only the
parts of variants and of geometries are not.) Bytes and shorts are Avro ints, decimals ``bytes`` of a
width that their precision fixes, dates and timestamps Avro's logical types. What Avro has no word
for - Spark's day-time intervals and times of day - is a long of microseconds or nanoseconds, with
Arrow's type in the property ``arrowType``. A name that Avro does not allow is escaped, and stands
in full in the property ``sparkName``.

The mapping is part of the stored format: rows are decoded by the schema it gives, so it never
changes for a type that it covers. Pure.

Source: Apache Avro 1.11 specification, "Names" and "Logical Types".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from spark_bookkeeper.datasource.errors import UnsupportedTypeError

AVRO_SCHEMA_KEY = "avro.schema"
"""Custom metadata of a ledger: the Avro schema of its rows, as JSON, as Avro's own files name it."""
AVRO_SCHEMA_BYTES_MAX = 256 * 1024
"""It is part of every ledger's metadata, one node of ZooKeeper's 1 MiB."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPED = re.compile(r"_u[0-9a-f]+_")

Avro = dict[str, Any]


def avro_schema_of(schema: pa.Schema) -> Avro:
    """The Avro record that a row of ``schema`` is; plain JSON values.

    Raises:
        UnsupportedTypeError: names every column that Avro cannot express, and why.
    """
    names = _record_names()
    record, refused = _record(next(names)), []
    for field in schema:
        try:
            record["fields"].append(_field(field, field.name, names))
        except _Refused as reason:
            refused.append(str(reason))
    if len(set(schema.names)) < len(schema):
        refused.append("a column name stands twice")
    if refused:
        raise UnsupportedTypeError(tuple(refused))
    return record


def avro_json(schema: pa.Schema) -> bytes:
    """The Avro schema of a ledger's rows, as its custom metadata says it.

    Raises:
        UnsupportedTypeError: as :func:`avro_schema_of`; or the schema is too large.
    """
    found = json.dumps(avro_schema_of(schema), separators=(",", ":")).encode()
    if len(found) > AVRO_SCHEMA_BYTES_MAX:
        reason = f"an Avro schema of {len(found)} bytes, more than {AVRO_SCHEMA_BYTES_MAX}"
        raise UnsupportedTypeError((reason,))
    return found


def avro_name(name: str) -> str:
    """``name`` as Avro allows names, different for different names."""
    if _NAME.fullmatch(name) and not _ESCAPED.search(name):
        return name
    # Underscores too, so that an escape in the result is always one of ours.
    return "".join(c if c.isascii() and c.isalnum() else f"_u{ord(c):x}_" for c in name) or "_u_"


def carrier_schema(schema: pa.Schema) -> pa.Schema:
    """The Arrow schema whose plain values are what Avro's encoding stores, under Avro's names."""
    return pa.schema([_carrier_field(field) for field in schema])


def decimal_width(precision: int) -> int:
    """Bytes that hold every unscaled value of ``precision`` digits with its sign."""
    return int(10**precision - 1).bit_length() // 8 + 1


class _Refused(Exception):
    """A column that Avro cannot express, and why."""


def _record(name: str) -> Avro:
    return {"type": "record", "name": name, "fields": []}


def _field(field: pa.Field, path: str, names: Iterator[str]) -> Avro:
    made: Avro = {"name": avro_name(field.name)}
    if field.nullable:
        # With a default, an Avro reader that has a newer schema reads rows which lack the column.
        made |= {"type": _nullable(field.type, path, names), "default": None}
    else:
        made["type"] = _type(field.type, path, names)
    if made["name"] != field.name:
        made["sparkName"] = field.name
    return made


def _nullable(of: pa.DataType, path: str, names: Iterator[str]) -> list[str | Avro]:
    # A union of one branch for columns without values: every value takes a byte, so that no few
    # bytes can claim to be many.
    return ["null"] if types.is_null(of) else ["null", _type(of, path, names)]


def _type(of: pa.DataType, path: str, names: Iterator[str]) -> str | Avro:
    """The type of the values at ``path``, a column or what lies in it.

    Raises:
        _Refused: there is none.
    """
    if types.is_decimal128(of):
        logical = {"logicalType": "decimal", "precision": of.precision, "scale": of.scale}
        return {"type": "bytes", **logical}
    if types.is_date32(of):
        return {"type": "int", "logicalType": "date"}
    if types.is_timestamp(of) and of.unit == "us":
        kind = "timestamp-micros" if of.tz else "local-timestamp-micros"
        return {"type": "long", "logicalType": kind}
    if types.is_duration(of) or types.is_time64(of):
        return {"type": "long", "arrowType": str(of)}
    if types.is_list(of):
        return {"type": "array", "items": _nullable(of.value_type, f"{path}.element", names)}
    if types.is_map(of):
        if not types.is_string(of.key_type):
            raise _Refused(f"{path} (keys of an Avro map are strings, not {of.key_type})")
        return {"type": "map", "values": _nullable(of.item_type, f"{path}.value", names)}
    if types.is_struct(of):
        if len({field.name for field in of}) < of.num_fields:
            raise _Refused(f"{path} (a field name stands twice)")
        record = _record(next(names))
        record["fields"] += [_field(field, f"{path}.{field.name}", names) for field in of]
        return record
    if of not in _PRIMITIVES:
        raise _Refused(f"{path} (Avro has no {of})")
    return _PRIMITIVES[of]


_PRIMITIVES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}


def _record_names() -> Iterator[str]:
    """Names of the records of one schema, in the order they are met: Avro wants them unique."""
    yield "row"
    for number in count(1):
        yield f"row_{number}"


def _carrier_field(field: pa.Field) -> pa.Field:
    return pa.field(avro_name(field.name), _carrier(field.type), field.nullable)


def _carrier(of: pa.DataType) -> pa.DataType:
    if types.is_decimal128(of):
        return pa.binary(decimal_width(of.precision))
    if types.is_date32(of):
        return pa.int32()
    if types.is_timestamp(of) or types.is_duration(of) or types.is_time64(of):
        return pa.int64()
    if types.is_list(of):
        return pa.list_(_carrier(of.value_type))
    if types.is_map(of):
        return pa.map_(pa.string(), _carrier(of.item_type))
    if types.is_struct(of):
        return pa.struct([_carrier_field(field) for field in of])
    return of
