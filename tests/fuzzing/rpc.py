"""Decoders of Apache's protocol, versions 2 and 3: frames, requests, answers, and what is read at one look."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import islice

from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.messages import Status
from bookie_server.wire.rpc import messages, quick, v2, v3
from bookie_server.wire.rpc.answer_runs import Answers, answers_at
from bookie_server.wire.rpc.answers import encode_add_replies
from bookie_server.wire.rpc.entry_list import EntryListEncoder, parse_entry_list
from bookie_server.wire.rpc.frames import LENGTH_SIZE, frame_at, is_of_v2
from bookie_server.wire.rpc.incoming import Incoming, RpcSection, RpcSectionReply
from bookie_server.wire.rpc.protobuf import fields_of, parse_varint
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.fuzzing.decoder import Bound, Decoder
from tests.sources import REPOSITORY

_GOLDEN = REPOSITORY / "tests" / "golden" / "apache"
_SEEN_MAX = 40
"""Frames of a kind that are kept."""
_RANGES_MAX = 1_000
"""Of a list that are looked at: their number is the peer's word."""
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_AT = "bookie_server.wire.rpc"


@cache
def _seen(mark: str) -> list[bytes]:
    """Frames that Apache's client or bookie was seen to send, without their length, the shortest of each kind first."""
    lines = [
        line[2:].strip()
        for path in sorted(_GOLDEN.rglob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(mark) and _HEX.fullmatch(line[2:].strip())
    ]
    frames = sorted(
        {bytes.fromhex(line)[LENGTH_SIZE:] for line in lines}, key=lambda f: (len(f), f)
    )
    return [frame for frame in frames if 0 < len(frame) < 600]


def _of(mark: str, version: int) -> list[bytes]:
    """Few of each operation and size, so that all kinds are among them."""
    found: dict[tuple[bytes, int], bytes] = {}
    for frame in _seen(mark):
        if is_of_v2(frame) is (version == v2.VERSION):
            found.setdefault((frame[:7], len(frame) // 8), frame)
    return list(found.values())[:_SEEN_MAX]


def _joined(parts: Sequence[Buffer]) -> bytes:
    """A frame without its length."""
    return b"".join(parts)[LENGTH_SIZE:]


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4) + frame


def _v2_request_of(asked: v2.Asked) -> bytes | None:
    # An authentication is never urgent; whoever says so is not contradicted.
    is_urgent_word = isinstance(asked.request, messages.Authenticate) and asked.priority
    if asked.refusal or is_urgent_word:
        return None
    return _joined(v2.encode_request(asked.request, asked.priority))


def _v2_answer_of(answer: v2.Answer) -> bytes | None:
    # Version 2 has no number for this one, and says an other.
    if answer.status is RpcStatus.EUNKNOWNLEDGERSTATE:
        return None
    return _joined(v2.encode_answer(answer))


def _v3_request_of(asked: v3.Numbered) -> bytes | None:
    if asked.request is None or asked.refusal is not None:
        return None
    return _joined(v3.encode_request(asked.head.number, asked.request, asked.priority))


def _v3_answer_of(answer: v3.Answer) -> bytes:
    return _joined(v3.encode_answer(answer))


def _incoming(content: bytes) -> list[object]:
    """A connection to its end, all of it there at once."""
    incoming = Incoming()
    found: list[object] = []
    rest = memoryview(content)
    while True:
        asked, size = incoming.cut(rest)
        found += asked
        rest = rest[size:]
        if not asked:
            break
    incoming.check()
    assert all(isinstance(each, RpcSection | v2.Asked | v3.Numbered) for each in found)
    return found


def _quick_add(content: bytes) -> quick.QuickAdd | None:
    """What is read at one look is what parsing finds."""
    view = memoryview(content)
    found = quick.add_at(view, 0, is_v2=False)
    if found is None:
        return None
    frame = frame_at(view, 0)
    assert frame is not None
    asked = v2.parse_request(frame) if is_of_v2(frame) else v3.parse_request(frame)
    add = asked.request
    assert isinstance(add, messages.AddEntry)
    number = asked.head.number if isinstance(asked, v3.Numbered) else None
    parsed = add.ledger_id, add.entry_id, bytes(add.master_key), add.is_recovery, number
    assert parsed == found[:5], f"parsed as {parsed}"
    assert bytes(add.body) == content[found.begin : found.end], "another entry"
    return found


def _quick_answer(content: bytes) -> quick.QuickAnswer | None:
    view = memoryview(content)
    found = quick.answer_at(view, 0)
    if found is None:
        return None
    frame = frame_at(view, 0)
    assert frame is not None
    answer = v2.parse_answer(frame) if is_of_v2(frame) else v3.parse_answer(frame)
    assert answer.status is found.status
    return found


def _answer_run(content: bytes) -> Answers | None:
    """What is read as one is what each says by itself."""
    view = memoryview(content)
    found = answers_at(view, 0)
    if found is None:
        return None
    at = 0
    for index in range(found.entries):
        alone = quick.answer_at(view, at)
        assert alone is not None, f"{index} is no answer"
        name = (None, alone.number) if found.ledger_id is None else alone[:2]
        assert name == (found.ledger_id, found.first + index), f"{index} is {name}"
        assert alone.status is found.status
        at = alone.end
    assert at == found.end
    return found


def _answer_runs() -> list[bytes]:
    """Of both versions, and ones in which an answer is another, or for another add."""
    found: list[bytes] = []
    for numbers in ((), tuple(range(1 << 35, (1 << 35) + 40))):
        for status, count in ((Status.OK, 40), (Status.FENCED, 9), (Status.OK, 5)):
            ids = range(120, 120 + count)
            reply = RpcSectionReply(7, ids[0], ids[-1], False, status, ids, numbers[:count])
            found.append(encode_add_replies([reply]))
        found.append(found[-1] + found[-2] + found[-3])
    return found


def _requests() -> list[bytes]:
    return [*_of("> ", 2), *_of("> ", 3)]


def _answers() -> list[bytes]:
    return [*_of("< ", 2), *_of("< ", 3)]


def _lists() -> list[bytes]:
    encoder = EntryListEncoder()
    for start in range(0, 90, 3):
        encoder.add(start, start + 1)
    encoder.add(2**40, 2**40 + 2**33)
    return [EntryListEncoder().finish(), encoder.finish()]


def _list_of(ranges: Sequence[tuple[int, int]]) -> bytes | None:
    if len(ranges) == _RANGES_MAX:
        return None
    encoder = EntryListEncoder()
    for first, last in ranges:
        encoder.add(first, last)
    return encoder.finish()


_Row = Callable[..., Decoder]
_row: _Row = partial(Decoder, errors=(MalformedFrameError,))

DECODERS: tuple[Decoder, ...] = (
    _row(
        name="rpc-v2-request",
        decode=v2.parse_request,
        encode=_v2_request_of,
        seeds=lambda: _of("> ", 2),
        covers=(f"{_AT}.v2.parse_request",),
    ),
    _row(
        name="rpc-v2-answer",
        decode=v2.parse_answer,
        encode=_v2_answer_of,
        seeds=lambda: _of("< ", 2),
        covers=(f"{_AT}.v2.parse_answer", f"{_AT}.statuses.parse_status_of_v2"),
    ),
    _row(
        name="rpc-v3-request",
        decode=v3.parse_request,
        encode=_v3_request_of,
        seeds=lambda: _of("> ", 3),
        covers=(f"{_AT}.v3.parse_request",),
    ),
    _row(
        name="rpc-v3-answer",
        decode=v3.parse_answer,
        encode=_v3_answer_of,
        seeds=lambda: _of("< ", 3),
        covers=(f"{_AT}.v3.parse_answer", f"{_AT}.statuses.parse_status"),
    ),
    _row(
        name="rpc-connection",
        decode=_incoming,
        seeds=lambda: [*map(_framed, _requests()), b"".join(map(_framed, _requests()[:12]))],
        covers=(f"{_AT}.incoming.Incoming.cut", f"{_AT}.frames.parse_length"),
        memory=Bound(64 * 1024, 128),
        steps=Bound(4_000, 64),
    ),
    _row(
        name="rpc-quick-add",
        decode=_quick_add,
        seeds=lambda: list(map(_framed, _requests())),
        covers=(f"{_AT}.quick.add_at",),
    ),
    _row(
        name="rpc-quick-answer",
        decode=_quick_answer,
        seeds=lambda: list(map(_framed, _answers())),
        covers=(f"{_AT}.quick.answer_at",),
    ),
    _row(
        name="rpc-answer-run",
        decode=_answer_run,
        seeds=_answer_runs,
        covers=(f"{_AT}.answer_runs.answers_at",),
    ),
    _row(
        name="rpc-list",
        decode=lambda content: list(islice(parse_entry_list(content), _RANGES_MAX)),
        encode=_list_of,
        seeds=_lists,
        covers=(f"{_AT}.entry_list.parse_entry_list",),
        memory=Bound(512 * 1024, 64),
        steps=Bound(20_000, 16),
    ),
    _row(
        name="rpc-fields",
        decode=fields_of,
        seeds=lambda: _of("> ", 3)[:8],
        covers=(f"{_AT}.protobuf.fields_of", f"{_AT}.protobuf.parse_varint"),
    ),
    _row(
        name="rpc-varint",
        decode=lambda content: parse_varint(content, 0),
        seeds=lambda: [b"\0", b"\xac\x02", b"\xff" * 9 + b"\1"],
        covers=(f"{_AT}.protobuf.parse_varint",),
    ),
)
