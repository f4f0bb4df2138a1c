"""Adds as clients mostly write them, and their answers, read at one look: a tenth of what it takes to parse them.

Whatever looks otherwise is left to :mod:`bookie_server.wire.rpc.v2` and ``v3``, which say the same of these.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from bookie_server.wire.rpc import v2
from bookie_server.wire.rpc.frames import LENGTH_SIZE
from bookie_server.wire.rpc.limits import is_within_limits
from bookie_server.wire.rpc.statuses import BY_NUMBER, BY_NUMBER_IN_V2, RpcStatus
from bookkeeper_metadata.foundation.invariant import invariant

_LENGTH = struct.Struct(">i")
_IDS = struct.Struct(">qq")
_V2_ADD = struct.Struct(">ibbh20sqq")
_V2_FRONT = _V2_ADD.size - _IDS.size
_V2_ANSWER = struct.Struct(">ibbhiqq")
_VARINT = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_V3_ADD = re.compile(
    # length, header: version 3, operation 2, number, priority; add: recovery's flag, ledger, entry, key, body
    rb".{4}\x0a([\x06-\x1f])\x08\x03\x10\x02\x18(" + _VARINT + rb")(?:\x20" + _VARINT + rb")?"
    rb"\xaa\x06(" + _VARINT + rb")(\xa0\x06\x01)?\x08(" + _VARINT + rb")\x10(" + _VARINT + rb")"
    rb"\x1a\x14(.{20})\x22(" + _VARINT + rb")",
    re.DOTALL,
)
_V3_ANSWER = re.compile(
    # length, header: version 3, operation 2, number; status; reply: the same status, ledger, entry
    rb".{4}\x0a([\x06-\x1f])\x08\x03\x10\x02\x18(" + _VARINT + rb")\x10(" + _VARINT + rb")"
    rb"\xaa\x06([\x06-\x1f])\x08\3\x10" + _VARINT + rb"\x18(" + _VARINT + rb")",
    re.DOTALL,
)


class QuickAdd(NamedTuple):
    """An add, all of which is there, that breaks no limit."""

    ledger_id: int
    entry_id: int
    master_key: bytes
    is_recovery: bool
    number: int | None
    """Of version 3."""
    begin: int
    """Where the entry begins in what was received."""
    end: int


def add_at(received: memoryview, at: int, *, is_v2: bool) -> QuickAdd | None:
    """The add whose frame starts at ``at``; ``None``: there is none, or none that is seen at one look."""
    if len(received) - at < _V2_ADD.size:
        return None
    length, version, operation, flags, key, ledger_id, entry_id = _V2_ADD.unpack_from(received, at)
    end = at + LENGTH_SIZE + length
    if version == v2.VERSION:
        begin = at + _V2_FRONT
        if operation != v2.ADD or not _is_there(begin, end, received, (ledger_id, entry_id)):
            return None
        return QuickAdd(ledger_id, entry_id, key, bool(flags & v2.FLAG_RECOVERY), None, begin, end)
    if is_v2 or (found := _V3_ADD.match(received, at)) is None:
        return None
    header_size, number, add_size, flag, ledger, entry, key, body_size = found.groups()
    begin = found.end()
    # Each length says the same end; a field behind the entry, as of deferred syncs, is none of ours.
    add_begin = found.end(3)
    if not (
        header_size[0] == found.start(3) - 2 - found.end(1)
        and _number(add_size) == end - add_begin
        and _number(body_size) == end - begin
    ):
        return None
    ids = _number(ledger), _number(entry)
    if not _is_there(begin, end, received, ids) or _IDS.unpack_from(received, begin) != ids:
        return None
    return QuickAdd(*ids, bytes(key), flag is not None, _number(number), begin, end)


class QuickAnswer(NamedTuple):
    """An answer to an add."""

    ledger_id: int
    """-1: version 3's number says whose it is."""
    entry_id: int
    number: int
    status: RpcStatus
    end: int
    """Where it ends in what was received."""


def answer_at(received: memoryview, at: int) -> QuickAnswer | None:
    """The answer to an add whose frame starts at ``at``; ``None``: there is none, or none that is seen at one look."""
    if len(received) - at < _V2_ANSWER.size:
        return _v3_answer_at(received, at)
    size, version, operation, _, code, ledger_id, entry_id = _V2_ANSWER.unpack_from(received, at)
    if version != v2.VERSION:
        return _v3_answer_at(received, at)
    if size != _V2_ANSWER.size - LENGTH_SIZE or operation != v2.ADD or code not in BY_NUMBER_IN_V2:
        return None
    end = at + _V2_ANSWER.size
    return QuickAnswer(ledger_id, entry_id, 0, BY_NUMBER_IN_V2[code], end)


def _v3_answer_at(received: memoryview, at: int) -> QuickAnswer | None:
    found = _V3_ANSWER.match(received, at)
    if found is None:
        return None
    head_size, number, status, reply_size, _ = found.groups()
    end = at + LENGTH_SIZE + _LENGTH.unpack_from(received, at)[0]
    code = _number(status)
    # Each length says the same end.
    if not (
        end == found.end()
        and head_size[0] == found.end(2) - found.end(1)
        and reply_size[0] == end - found.end(4)
        and code in BY_NUMBER
    ):
        return None
    return QuickAnswer(-1, -1, _number(number), BY_NUMBER[code], end)


def places_in_v3(received: memoryview, at: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where, in an answer of version 3 that is seen at one look, number and entry begin and end; from its first byte on."""
    found = _V3_ANSWER.match(received, at)
    invariant(found is not None, "such an answer is there")
    assert found is not None
    (number, number_end), (entry, entry_end) = found.span(2), found.span(5)
    return (number - at, number_end - at), (entry - at, entry_end - at)


def _is_there(begin: int, end: int, received: memoryview, ids: tuple[int, int]) -> bool:
    return end <= len(received) and is_within_limits(*ids, end - begin)


def _number(varint: bytes) -> int:
    if len(varint) == 1:
        return varint[0]
    value = 0
    for byte in reversed(varint):
        value = value << 7 | byte & 127
    return value
