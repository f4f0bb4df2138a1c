"""Between Arrow arrays of Spark's types and arrays of what Avro stores, without touching a value.

A date is an int, a timestamp a long, a decimal its bytes in big-endian order. Both directions are
one function: buffers are looked at as another type, only decimals are copied. So no value passes
through Python's own dates and decimals, which know neither the year 0 nor all of Spark's. Pure.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from spark_bookkeeper.datasource.nesting import list_around, map_around, struct_around
from spark_bookkeeper.datasource.payload.avro_schema import decimal_width

_DECIMAL_BYTES = 16


def reshaped(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The same values as ``target``: a carrier type, or the type it carries.

    Raises:
        ValueError: a stored decimal has more digits than its type.
    """
    if array.type.equals(target, check_metadata=True):
        return array
    if types.is_list(target):
        return list_around(array, target, reshaped(array.values, target.value_type))
    if types.is_map(target):
        items = reshaped(array.items, target.item_type)
        return map_around(array, target, array.keys, items)
    if types.is_struct(target):
        children = [reshaped(array.field(at), field.type) for at, field in enumerate(target)]
        return struct_around(array, target, children)
    if types.is_decimal128(array.type):
        return _decimal_octets(array, target)
    if types.is_decimal128(target):
        return _decimals(array, target)
    return array.view(target)


def _decimal_octets(array: pa.Array, target: pa.DataType) -> pa.Array:
    # Arrow has decimals in 16 bytes, lowest first. The bytes left out only repeat the sign. A
    # buffer is the whole array's, of which this one may be a slice.
    whole = np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, _DECIMAL_BYTES)
    used = whole[array.offset : array.offset + len(array), : target.byte_width]
    octets = pa.py_buffer(np.ascontiguousarray(used[:, ::-1]))
    return _with_nulls_of(array, target, octets)


def _decimals(array: pa.Array, target: pa.DataType) -> pa.Array:
    width = decimal_width(target.precision)
    stored = np.frombuffer(array.buffers()[1] or b"", np.uint8).reshape(-1, width)
    used = stored[array.offset : array.offset + len(array)]
    octets = np.empty((len(array), _DECIMAL_BYTES), np.uint8)
    octets[:, :width] = used[:, ::-1]
    # The sign goes on to the front, as two's complement has it.
    octets[:, width:] = np.where(used[:, :1] >= 0x80, 0xFF, 0)
    return _with_nulls_of(array, target, pa.py_buffer(octets))


def _with_nulls_of(array: pa.Array, target: pa.DataType, values: pa.Buffer) -> pa.Array:
    validity = array.is_valid()  # A bit mask of its own, whatever the array's offset is.
    nulls = None if array.null_count == 0 else validity.buffers()[1]
    return pa.Array.from_buffers(target, len(array), [nulls, values], array.null_count)
