"""A section of ours as frames of adds, one for each entry: encoded once, for every bookie of the write set."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from bookie_server.wire.add_frames import parse_frame
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.digest import MASTER_KEY_SIZE
from bookie_server.wire.limits import RUN_ENTRIES_MAX
from bookie_server.wire.messages import EncodedSection, Section
from bookie_server.wire.record import LENGTH_SIZE
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.protobuf import encode_head, encode_number, encode_varint

_blocks = count(1 << 21)
"""Of this process's adds over version 3: each section draws numbers of its own, the same for every bookie. They
are large from the beginning, so that frames of one kind have one size, in whatever order they are made."""
_BLOCK_BITS = (RUN_ENTRIES_MAX - 1).bit_length()
PORTION_ENTRIES_MAX = 1_000
"""Entries sent together: a section may have more than a bookie of Apache's takes at a time."""
_SHARED_FROM = 4_096
"""Bytes of an entry from which it costs more to copy it than to look at it where it is."""
_PRIORITY_HIGH = encode_number(4, messages.PRIORITY_HIGH)
_RECOVERY = encode_number(100, messages.ADD_FLAG_RECOVERY)
_LENGTH = struct.Struct(">i")
_FRONT = struct.Struct(f">ibbh{MASTER_KEY_SIZE}s")


class Portion(NamedTuple):
    """Frames of a few entries, to be sent together."""

    entries: int
    parts: tuple[Buffer, ...]


class EncodedAdds(NamedTuple):
    """Frames, and what their answers will tell."""

    portions: tuple[Portion, ...]
    entry_ids: Sequence[int]
    numbers: range
    """Version 3's, in the order of the entries; of version 2 none."""


def adds_of(section: EncodedSection, version: int) -> EncodedAdds:
    """The adds of a section in this version of the protocol, the same whenever they are asked for."""
    name = f"rpc {version}"
    found = section.other_forms.get(name)
    if found is None:
        found = section.other_forms[name] = encode_adds(section, version)
    assert isinstance(found, EncodedAdds)
    return found


def encode_adds(section: EncodedSection, version: int) -> EncodedAdds:
    """The same, of version 3 with other numbers."""
    (parsed,) = parse_frame(section.data)
    return _encode_v3(parsed) if version == v3.VERSION else _encode_v2(parsed)


def record_of(entry: Buffer) -> bytes:
    """The record that an entry is; it is checked by whoever reads it."""
    return _LENGTH.pack(len(entry)) + entry


def _encode_v2(section: Section) -> EncodedAdds:
    run = section.run
    flags = v2.FLAG_RECOVERY if section.is_recovery else 0
    parts: list[Buffer] = []
    for index in range(len(run)):
        entry = run.record(index)[LENGTH_SIZE:]
        size = _FRONT.size - LENGTH_SIZE + len(entry)
        parts += (_FRONT.pack(size, v2.VERSION, v2.ADD, flags, section.master_key), entry)
    return EncodedAdds(_portions(parts, 2), run.entry_ids, range(0))


def _encode_v3(section: Section) -> EncodedAdds:
    """The same bytes as :func:`bookie_server.wire.rpc.v3.encode_request` makes, what all have in common made once."""
    run = section.run
    begin = next(_blocks) << _BLOCK_BITS
    numbers = range(begin, begin + len(run))
    head_front = v3.encode_front_of_head(v3.OPERATION_OF_ADD)
    # Behind the number, and behind the entry.
    head_end, add_end = (_PRIORITY_HIGH, _RECOVERY) if section.is_recovery else (b"", b"")
    add_front = encode_number(1, run.ledger_id) + b"\x10"
    key = encode_head(3, MASTER_KEY_SIZE) + section.master_key + b"\x22"
    parts: list[Buffer] = []
    for index, (number, entry_id) in enumerate(zip(numbers, run.entry_ids, strict=True)):
        entry = run.record(index)[LENGTH_SIZE:]
        head = head_front + encode_varint(number) + head_end
        add = add_front + encode_varint(entry_id) + key + encode_varint(len(entry))
        add_size = len(add) + len(entry) + len(add_end)
        front = encode_head(v3.HEADER, len(head)) + head + encode_head(v3.ADD, add_size) + add
        size = len(front) + len(entry) + len(add_end)
        parts += (_LENGTH.pack(size) + front, entry, add_end)
    return EncodedAdds(_portions(parts, 3), run.entry_ids, numbers)


def _portions(parts: list[Buffer], parts_of_entry: int) -> tuple[Portion, ...]:
    size = PORTION_ENTRIES_MAX * parts_of_entry
    cut = [parts[at : at + size] for at in range(0, len(parts), size)]
    return tuple(Portion(len(each) // parts_of_entry, _gathered(each)) for each in cut)


def _gathered(parts: list[Buffer]) -> tuple[Buffer, ...]:
    """Small parts joined, large ones as they are."""
    gathered: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < _SHARED_FROM:
            small.append(part)
            continue
        gathered += (b"".join(small), part)
        small = []
    return (*gathered, b"".join(small)) if small else tuple(gathered)
