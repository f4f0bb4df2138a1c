"""Nested Arrow arrays rebuilt around other children: same nulls, same offsets, slices included.

Arrow's own casts refuse a null struct above a field that is not nullable, as Spark sends where a
variant lies in a struct; here only children are converted, by the caller. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def list_around(array: pa.Array, of: pa.DataType, values: pa.Array) -> pa.Array:
    """The list array as one of type ``of``; ``values`` stand for ``array.values``."""
    return pa.Array.from_buffers(
        of, len(array), array.buffers()[:2], array.null_count, array.offset, [values]
    )


def map_around(array: pa.Array, of: pa.DataType, keys: pa.Array, items: pa.Array) -> pa.Array:
    """The map array as one of type ``of``; the others stand for ``array.keys`` and ``.items``."""
    entries = pa.StructArray.from_arrays([keys, items], fields=[of.key_field, of.item_field])
    return list_around(array, of, entries)  # a map is a list of its entries


def struct_around(array: pa.Array, of: pa.DataType, children: Sequence[pa.Array]) -> pa.Array:
    """The struct array as one of type ``of``; ``children`` stand for its fields."""
    if not children:
        return pa.array([None if item is None else {} for item in array.to_pylist()], of)
    return pa.StructArray.from_arrays(list(children), fields=list(of), mask=array.is_null())
