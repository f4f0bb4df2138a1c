"""Varints and fields of protocol buffers, and nothing else: what Apache's protocol 3 is made of.

Fields come in any order, varints may be padded, and what nobody knows is passed over, as other encoders
and later versions need it. Source: the encoding guide of protocol buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError

Value = int | memoryview
"""Of a field as it came: a varint or a fixed number, not negative, or bytes."""

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_VARINT_SIZE_MAX = 10
_FIELDS_MAX = 32
"""Of a message; Apache's have eight."""
_UINT64 = 2**64 - 1
_SMALL = tuple(bytes((value,)) for value in range(128))


def encode_varint(value: int) -> bytes:
    """A number of 64 bits, as few bytes as it takes; a negative one takes ten."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= _UINT64
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def parse_varint(encoded: Buffer, at: int) -> tuple[int, int]:
    """The number that starts at ``at``, and where it ends.

    Raises:
        MalformedFrameError: it does not end, or has more than 64 bits.
    """
    value = shift = 0
    for end in range(at, min(at + _VARINT_SIZE_MAX, len(encoded))):
        byte = encoded[end]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _UINT64, end + 1
        shift += 7
    raise MalformedFrameError(f"a varint at {at} without an end")


def signed(value: int) -> int:
    """The number that these 64 bits are in two's complement."""
    return value - 2**64 if value >> 63 else value


def fields_of(encoded: Buffer) -> Mapping[int, Value]:
    """The fields of a message, by number; of one that is there more than once, the last.

    Raises:
        MalformedFrameError: the bytes are no message.
    """
    view = memoryview(encoded)
    fields: dict[int, Value] = {}
    at, size = 0, len(view)
    for _ in range(_FIELDS_MAX + 1):
        if at >= size:
            return fields
        tag, at = parse_varint(view, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            fields[number], at = parse_varint(view, at)
            continue
        if kind == _BYTES:
            length, at = parse_varint(view, at)
        elif kind in (_FIXED_32, _FIXED_64):
            length = 4 if kind == _FIXED_32 else 8
        else:
            raise MalformedFrameError(f"field {number} of wire type {kind}")
        if length > size - at or not number:
            raise MalformedFrameError(f"field {number} of {length} bytes in {size - at}")
        value = view[at : at + length]
        fields[number] = value if kind == _BYTES else int.from_bytes(value, "little")
        at += length
    raise MalformedFrameError(f"a message of more than {_FIELDS_MAX} fields")


def encode_number(field: int, value: int) -> bytes:
    """A field that is a varint."""
    return encode_varint(field << 3 | _VARINT) + encode_varint(value)


def encode_head(field: int, size_bytes: int) -> bytes:
    """What stands in front of the bytes of a field."""
    return encode_varint(field << 3 | _BYTES) + encode_varint(size_bytes)


def encode_message(field: int, parts: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """A field that is a message of these parts, which are not copied."""
    body = tuple(parts)
    return (encode_head(field, sum(map(len, body))), *body)
