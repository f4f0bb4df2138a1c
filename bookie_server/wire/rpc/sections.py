"""A section of ours as frames of adds, one for each entry: encoded once, for every bookie of the write set."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from bookie_server.wire.add_frames import parse_frame
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.digest import MASTER_KEY_SIZE
from bookie_server.wire.limits import RUN_ENTRIES_MAX
from bookie_server.wire.messages import EncodedSection, Section
from bookie_server.wire.record import LENGTH_SIZE, Run
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
_FEW = 8
"""Entries that it takes less to encode one by one than to make a table of."""
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
    run = parsed.run
    if version == v2.VERSION:
        return EncodedAdds(_portions(run, _FormOfV2(parsed)), run.entry_ids, range(0))
    begin = next(_blocks) << _BLOCK_BITS
    numbers = range(begin, begin + len(run))
    return EncodedAdds(_portions(run, _FormOfV3(parsed, begin)), run.entry_ids, numbers)


def block_of(number: int) -> int:
    """What the numbers of one section of version 3 have in common, and no other's."""
    return number >> _BLOCK_BITS


def record_of(entry: Buffer) -> bytes:
    """The record that an entry is; it is checked by whoever reads it."""
    return _LENGTH.pack(len(entry)) + entry


class _Count(NamedTuple):
    """A varint that is one more in each frame than in the one before."""

    at: int
    """Where it begins in what is in front of an entry."""
    first: int


class _Form(ABC):
    """How the entries of a section become frames."""

    end = b""
    """What is behind an entry."""

    @abstractmethod
    def front(self, index: int, entry_size: int) -> bytes:
        """What is in front of the entry at this place of the section."""

    def counts(self, index: int, entry_size: int) -> Iterator[_Count]:
        """In what the front at this place differs from the next ones, entries of the same size."""
        return iter(())


class _FormOfV2(_Form):
    def __init__(self, section: Section) -> None:
        self._flags = v2.FLAG_RECOVERY if section.is_recovery else 0
        self._master_key = section.master_key

    def front(self, index: int, entry_size: int) -> bytes:
        size = _FRONT.size - LENGTH_SIZE + entry_size
        return _FRONT.pack(size, v2.VERSION, v2.ADD, self._flags, self._master_key)


class _FormOfV3(_Form):
    """The same bytes as :func:`bookie_server.wire.rpc.v3.encode_request` makes, what all have in common made once."""

    def __init__(self, section: Section, first_number: int) -> None:
        self._first_number = first_number
        self._entry_ids = section.run.entry_ids
        self._head_front = v3.encode_front_of_head(v3.OPERATION_OF_ADD)
        self._add_front = encode_number(1, section.ledger_id) + b"\x10"
        self._key = encode_head(3, MASTER_KEY_SIZE) + section.master_key + b"\x22"
        # Behind the number, and behind the entry.
        self._head_end = _PRIORITY_HIGH if section.is_recovery else b""
        self.end = _RECOVERY if section.is_recovery else b""

    def front(self, index: int, entry_size: int) -> bytes:
        head = self._head_front + encode_varint(self._first_number + index) + self._head_end
        add = self._add_front + encode_varint(self._entry_ids[index]) + self._behind_id(entry_size)
        add_size = len(add) + entry_size + len(self.end)
        front = encode_head(v3.HEADER, len(head)) + head + encode_head(v3.ADD, add_size) + add
        return _LENGTH.pack(len(front) + entry_size + len(self.end)) + front

    def counts(self, index: int, entry_size: int) -> Iterator[_Count]:
        number, entry_id = self._first_number + index, self._entry_ids[index]
        head_size = len(self._head_front) + len(encode_varint(number)) + len(self._head_end)
        number_at = _LENGTH.size + len(encode_head(v3.HEADER, head_size)) + len(self._head_front)
        behind_size = len(encode_varint(entry_id)) + len(self._behind_id(entry_size))
        yield _Count(number_at, number)
        yield _Count(len(self.front(index, entry_size)) - behind_size, entry_id)

    def _behind_id(self, entry_size: int) -> bytes:
        return self._key + encode_varint(entry_size)


def _portions(run: Run, form: _Form) -> tuple[Portion, ...]:
    begins = range(0, len(run), PORTION_ENTRIES_MAX)
    ends = (min(begin + PORTION_ENTRIES_MAX, len(run)) for begin in begins)
    return tuple(
        Portion(end - begin, _frames(run.slice(begin, end), begin, form))
        for begin, end in zip(begins, ends, strict=True)
    )


def _frames(part: Run, begin: int, form: _Form) -> tuple[Buffer, ...]:
    """Of a part of the section that begins with this entry of it."""
    table = _table(part, begin, form)
    if table is not None:
        return (table,)
    parts: list[Buffer] = []
    for index in range(len(part)):
        entry = part.record(index)[LENGTH_SIZE:]
        parts += (form.front(begin + index, len(entry)), entry, form.end)
    return _gathered(parts)


def _table(part: Run, begin: int, form: _Form) -> memoryview | None:
    """All frames at once, where they have one size; ``None``: they have not, or each entry is worth a look of its own."""
    if not isinstance(part.offsets, range) or not isinstance(part.entry_ids, range):
        return None
    count, record_size = len(part), part.offsets.step
    entry_size = record_size - LENGTH_SIZE
    if count < _FEW or entry_size >= _SHARED_FROM:
        return None
    front = form.front(begin, entry_size)
    if len(form.front(begin + count - 1, entry_size)) != len(front):
        return None
    rows = np.empty((count, len(front) + entry_size + len(form.end)), np.uint8)
    rows[:, : len(front)] = np.frombuffer(front, np.uint8)
    for at, first in form.counts(begin, entry_size):
        varints = _varints(first, count)
        rows[:, at : at + varints.shape[1]] = varints
    records = np.frombuffer(part.data, np.uint8).reshape(count, record_size)
    rows[:, len(front) : len(front) + entry_size] = records[:, LENGTH_SIZE:]
    if form.end:
        rows[:, -len(form.end) :] = np.frombuffer(form.end, np.uint8)
    return rows.reshape(-1).data


def _varints(first: int, count: int) -> np.ndarray:
    """Numbers that follow each other, of one size, a row each."""
    size = len(encode_varint(first))
    parts = np.arange(first, first + count)[:, np.newaxis] >> 7 * np.arange(size) & 127
    parts[:, :-1] |= 128
    return parts.astype(np.uint8)


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
