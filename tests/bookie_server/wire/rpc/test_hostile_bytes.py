"""Whatever bytes come are a message, or are refused as none: nothing else escapes from the codecs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

import pytest

from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.entry_list import parse_entry_list
from bookie_server.wire.rpc.frames import RPC_FRAME_SIZE_MAX, parse_length
from bookie_server.wire.rpc.protobuf import (
    encode_number,
    encode_varint,
    fields_of,
    parse_varint,
    signed,
)
from bookie_server.wire.rpc.quick import answer_at
from bookie_server.wire.rpc.statuses import RpcStatus
from bookkeeper_metadata.model import ENTRY_ID_MAX
from tests.bookie_server.wire.rpc.transcripts import Exchange, exchanges

GOLDEN = exchanges("*/*.txt") + exchanges("java_*.txt")
PARSERS: tuple[Callable[[bytes], object], ...] = (
    v2.parse_request,
    v2.parse_answer,
    v3.parse_request,
    v3.parse_answer,
)


def parses(parse: Callable[[bytes], object], frame: bytes) -> bool:
    try:
        parse(frame)
    except MalformedFrameError:
        return False
    return True


def frames_of(exchange: Exchange) -> list[bytes]:
    answered = [exchange.response] if isinstance(exchange.received, bytes) else []
    return [frame for frame in (exchange.request, *answered) if frame]


def changed(frame: bytes, random: Random) -> bytes:
    """The frame with a few bytes flipped, cut, doubled or put in."""
    parts = bytearray(frame)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(parts) + 1)
        match random.randrange(4):
            case 0:
                parts[at : at + 1] = random.randbytes(1)
            case 1:
                del parts[at : at + random.randint(1, 8)]
            case 2:
                parts[at:at] = parts[at : at + random.randint(1, 16)]
            case _:
                parts[at:at] = random.choice(
                    (b"\xff" * 9, b"\x00" * 4, b"\x80", b"\x7f\xff\xff\xff")
                )
    return bytes(parts)


@pytest.mark.parametrize("parse", PARSERS)
def test_bytes_that_were_changed_parse_or_are_refused(parse: Callable[[bytes], object]) -> None:
    random = Random(15)
    frames = [frame for exchange in GOLDEN for frame in frames_of(exchange)]
    outcomes = {parses(parse, changed(random.choice(frames), random)) for _ in range(4_000)}
    assert outcomes == {True, False}


@pytest.mark.parametrize("parse", PARSERS)
def test_frames_cut_anywhere_parse_or_are_refused(parse: Callable[[bytes], object]) -> None:
    for exchange in GOLDEN[:60]:
        for frame in frames_of(exchange):
            for size in range(len(frame)):
                parses(parse, frame[:size])


@pytest.mark.parametrize("parse", PARSERS)
def test_noise_is_refused(parse: Callable[[bytes], object]) -> None:
    random = Random(3)
    for size in range(200):
        parses(parse, random.randbytes(size))
    assert not parses(parse, b"")


@pytest.mark.parametrize(
    "value", [0, 1, 127, 128, 16_383, 16_384, 2**31, 2**63 - 1, -1, -(2**63)], ids=str
)
def test_a_number_comes_back(value: int) -> None:
    encoded = encode_varint(value)
    assert parse_varint(encoded, 0) == (value % 2**64, len(encoded))
    assert signed(value % 2**64) == value


@pytest.mark.parametrize("encoded", [b"\x80", b"\xff" * 10, b"\xff" * 11, b""], ids=bytes.hex)
def test_a_varint_without_an_end_is_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        parse_varint(encoded, 0)


@pytest.mark.parametrize(
    "encoded",
    [b"\x0a\x05abc", b"\x0a\xff\xff\xff\xff\x0f", b"\x0b", b"\x02\x00", b"\x09\x00", b"\x0d\x00"],
    ids=bytes.hex,
)
def test_a_field_that_exceeds_its_message_is_refused(encoded: bytes) -> None:
    """So nothing is allocated, or cut out, by what a length claims; a group, and field 0, are none."""
    with pytest.raises(MalformedFrameError):
        fields_of(encoded)


def test_fields_that_nobody_knows_are_passed_over() -> None:
    fixed = b"\x09" + (7).to_bytes(8, "little") + b"\x15" + (8).to_bytes(4, "little")
    assert fields_of(fixed + b"\x18\x05" + b"\x22\x00") == {1: 7, 2: 8, 3: 5, 4: b""}


@pytest.mark.parametrize("length", [0, -1, RPC_FRAME_SIZE_MAX - 3, 2**31 - 1, -(2**31)])
def test_a_length_no_frame_has_is_refused(length: int) -> None:
    with pytest.raises(MalformedFrameError):
        parse_length(length.to_bytes(4, signed=True))
    assert parse_length((RPC_FRAME_SIZE_MAX - 4).to_bytes(4)) == RPC_FRAME_SIZE_MAX - 4


@pytest.mark.parametrize("inner", [RpcStatus.EIO, RpcStatus.EFENCED])
def test_what_the_reply_refuses_is_refused_whatever_stands_around_it(inner: RpcStatus) -> None:
    """Java's client goes by the inner status where the outer one is EOK."""
    reply = v3.Answer(v3.Head(5, v3.OPERATION_OF_ADD), RpcStatus.EOK, messages.AddReply(7, 3))
    frame = b"".join(v3.encode_answer(reply))
    assert (found := answer_at(memoryview(frame), 0)) is not None
    assert found.status is RpcStatus.EOK
    # The reply's message, whose lengths have one byte each, begins with the status.
    at = frame.rindex(b"\x08\x00\x10\x07\x18\x03")
    body = encode_number(1, inner.value) + frame[at + 2 :]
    changed = bytearray(frame[: at - 1] + bytes([len(body)]) + body)
    changed[:4] = struct.pack(">i", len(changed) - 4)
    assert answer_at(memoryview(changed), 0) is None
    assert v3.parse_answer(bytes(changed[4:])).status is inner


@pytest.mark.parametrize(
    "group", [(0, 2**63 - 1, 1, 1), (2**63 - 2, 2**63 - 2, 2**31 - 1, 0), (0, 2**62, 5, 5)]
)
def test_a_group_of_more_entries_than_can_be_counted_is_cut_or_refused(
    group: tuple[int, int, int, int],
) -> None:
    encoded = struct.pack(">ii56x", 0, 1) + struct.pack(">qqii", *group)
    start, last_start, size, period = group
    if last_start + size - 1 > ENTRY_ID_MAX:
        with pytest.raises(MalformedFrameError):
            next(parse_entry_list(encoded))
        return
    for wanted in (0, 1, period * 1_000, last_start):
        first, last = next(parse_entry_list(encoded, wanted))
        assert last >= wanted
        assert first in range(start, last_start + 1, period)
        assert last - period < wanted or first == start
