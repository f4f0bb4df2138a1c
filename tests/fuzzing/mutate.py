"""Changed inputs: every one follows from a random generator and the corpus, and from nothing else.

Some know what encodings are made of: lengths and counts in front of what they count, varints, fields of protocol
buffers, digits and brackets in text. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Literal, NamedTuple

SIZE_MAX = 16 * 1024
"""Most bytes of an input."""
_EXTREMES = (0, 1, -1, 2, 7, 127, 128, 255, 256, 4_096, 65_535, 65_536)
_HUGE = tuple(sign * (2**bits + by) for bits in (15, 24, 31, 32, 40, 62, 63) for by in (-1, 0, 1) for sign in (1, -1))  # fmt: skip
_ORDERS: tuple[Literal["big", "little"], ...] = ("big", "big", "little")
_WIDTHS = (1, 2, 4, 4, 8, 8)
_TOKENS = (b"[", b"{", b"}", b"]", b"<", b">", b'"', b"\\", b"\n", b"\t", b"\0", b":", b",", b"-", b"a{", b'{"a":', b"a<",
           b"null", b"NaN", b"1e999", b"\xff", b"\xed\xa0\x80", b"#", b"'", b"[x]:1 ", b"a:1 ")  # fmt: skip
_NUMBERS = (b"-1", b"0", b"1e400", b"9" * 19, b"9" * 20, b"9" * 5_000, b"0x7f", b"1_0", b"true")


class Mutated(NamedTuple):
    """An input, and whether it may claim to be larger than it is."""

    content: bytes
    has_claim: bool


def mutated(random: Random, corpus: Sequence[bytes]) -> Mutated:
    """One of the corpus after a few changes."""
    content = random.choice(corpus)
    has_claim = False
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        change = random.choice(_CHANGES)
        content = change(random, content, corpus)[:SIZE_MAX]
        has_claim |= change in _CLAIMS
    return Mutated(content, has_claim)


def varint(value: int) -> bytes:
    """Seven bits a byte, lowest first; of 64 bits, as protocol buffers have it."""
    value &= 2**64 - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _place(random: Random, content: bytes) -> int:
    """Anywhere, but more often near the beginning, where lengths are."""
    size = len(content)
    return random.randrange(min(size, 64) if random.random() < 0.4 else size) if size else 0


def _part(random: Random, content: bytes) -> tuple[int, int]:
    begin = _place(random, content)
    return begin, min(begin + random.choice((1, 2, 4, 8, 16, 36, 64, 512)), len(content))


def _number(random: Random) -> int:
    return random.choice(_EXTREMES if random.random() < 0.5 else _HUGE)


def _flip(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    changed = bytearray(content)
    for _each in range(random.choice((1, 1, 2, 8))):
        if changed:
            changed[_place(random, content)] ^= 1 << random.randrange(8)
    return bytes(changed)


def _set(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(random, content)
    return content[:at] + bytes([random.choice((0, 1, 127, 128, 255, random.randrange(256)))]) + content[at + 1 :]  # fmt: skip


def _cut(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _part(random, content)
    return content[:begin] if random.random() < 0.5 else content[:begin] + content[end:]


def _splice(random: Random, content: bytes, corpus: Sequence[bytes]) -> bytes:
    other = random.choice(corpus)
    return content[: _place(random, content)] + other[_place(random, other) :]


def _join(random: Random, content: bytes, corpus: Sequence[bytes]) -> bytes:
    return content + random.choice(corpus)


def _repeat(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _part(random, content)
    part = content[begin:end]
    count = random.choice((1, 2, 3, 10, 100, 1_000))
    return content[:end] + part * min(count, SIZE_MAX // max(len(part), 1)) + content[end:]


def _repeat_all(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    return content * random.choice((2, 3, 10, 40))


def _insert(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    at, size = _place(random, content), random.choice((1, 2, 4, 8, 40))
    added = random.choice((bytes(size), b"\xff" * size, random.randbytes(size)))
    return content[:at] + added + content[at:]


def _swap(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    (begin, end), at = _part(random, content), _place(random, content)
    part, rest = content[begin:end], content[:begin] + content[end:]
    return rest[:at] + part + rest[at:]


def _random(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    return random.randbytes(random.choice((0, 1, 2, 4, 16, 36, 40, 100, 600)))


def _integer(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    """A number of fixed size becomes an extreme one, or one a little off."""
    width = random.choice(_WIDTHS)
    at = _place(random, content)
    if random.random() < 0.5:
        at -= at % width
    order: Literal["big", "little"] = random.choice(_ORDERS)
    value = _number(random)
    if random.random() < 0.3:
        value = int.from_bytes(content[at : at + width], order) + random.choice((-1, 1, 2, -8, 8))
    encoded = (value & ((1 << 8 * width) - 1)).to_bytes(width, order)
    return content[:at] + encoded + content[at + width :]


def _size(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    """A number that may be a size becomes that of what is behind it."""
    width, at = random.choice((2, 4, 8)), _place(random, content)
    rest = max(len(content) - at - width, 0) + random.choice((-1, 0, 0, 0, 1))
    encoded = (max(rest, 0) & ((1 << 8 * width) - 1)).to_bytes(width, "big")
    return content[:at] + encoded + content[at + width :]


def _varint(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    at = end = _place(random, content)
    while end < min(at + 10, len(content)) and content[end] > 127:
        end += 1
    return content[:at] + varint(_number(random)) + content[end + 1 :]


def _token(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    """Of text: brackets and what else has a meaning, also very often."""
    at = _place(random, content)
    return (
        content[:at] + random.choice(_TOKENS) * random.choice((1, 1, 2, 200, 4_000)) + content[at:]
    )


def _digits(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    """Of text: a number becomes another one."""
    at = _place(random, content)
    while at < len(content) and not 48 <= content[at] < 58:
        at += 1
    end = at
    while end < len(content) and 48 <= content[end] < 58:
        end += 1
    return content[:at] + random.choice(_NUMBERS) + content[end:]


def _fields(random: Random, content: bytes, corpus: Sequence[bytes]) -> bytes:
    """Of a message of protocol buffers: its fields dropped, doubled, in another order, or changed and still whole."""
    fields = list(fields_of(content))
    if not fields:
        return content
    at = random.randrange(len(fields))
    tag, value = fields[at]
    match random.randrange(6):
        case 0:
            del fields[at]
        case 1:
            fields.insert(random.randrange(len(fields)), fields[at])
        case 2:
            random.shuffle(fields)
        case 3:
            fields[at : at + 1] = [fields[at]] * random.choice((2, 10, 200))
        case _ if isinstance(value, int):
            fields[at] = tag, _number(random)
        case 4:
            fields[at] = tag, _fields(random, value, corpus)
        case _:
            fields[at] = tag, random.choice(_CHANGES)(random, value, [value])
    return b"".join(_encoded(*field) for field in fields)


def fields_of(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Tag and value of each field, as long as there are whole ones."""
    at, size = 0, len(content)
    while at < size:
        tag, at = _varint_at(content, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint_at(content, at)
            yield tag, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            length, at = _varint_at(content, at)
        if length is None or length > size - at:
            return
        yield tag, content[at : at + length]
        at += length


def _varint_at(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content):
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 128:
            break
    return value, at


def _encoded(tag: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(tag) + varint(value)
    return varint(tag) + (varint(len(value)) if tag & 7 == 2 else b"") + value


_Change = Callable[[Random, bytes, Sequence[bytes]], bytes]
_CLAIMS: frozenset[_Change] = frozenset((_integer, _varint, _digits, _fields))
_CHANGES: tuple[_Change, ...] = (
    _flip, _flip, _set, _cut, _splice, _join, _repeat, _repeat_all, _insert, _swap, _random,
    _integer, _integer, _integer, _size, _varint, _varint, _token, _digits, _fields, _fields, _fields,
)  # fmt: skip
