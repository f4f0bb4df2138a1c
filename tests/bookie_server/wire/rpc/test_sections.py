"""A section as frames of single adds, and their answers: the same bytes and values as one by one, as the codecs have them."""

from __future__ import annotations

from random import Random

import pytest

from bookie_server.wire.add_frames import parse_frame
from bookie_server.wire.messages import EncodedSection, SectionReply, Status
from bookie_server.wire.record import LENGTH_SIZE
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.answers import answer_to_add, encode_add_replies
from bookie_server.wire.rpc.frames import frame_at
from bookie_server.wire.rpc.incoming import RpcSectionReply
from bookie_server.wire.rpc.quick import answer_at
from bookie_server.wire.rpc.sections import adds_of, encode_adds
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.doubles.records import encode_copy, encoded_section, records

SECTIONS = {
    "small": encoded_section([b"x" * size for size in range(60)], 100),
    "large": encoded_section([bytes(70_000), b"", bytes(5_000)], 127, ledger_id=2**40),
    "of recovery": encode_copy(7, records([b"again"], 3)),
}


def one_by_one(section: EncodedSection, version: int, numbers: range) -> bytes:
    """The frames of a section, each encoded by itself."""
    (parsed,) = parse_frame(section.data)
    flag = messages.ADD_FLAG_RECOVERY if parsed.is_recovery else None
    frames: list[bytes] = []
    for index, entry_id in enumerate(parsed.run.entry_ids):
        body = parsed.run.record(index)[LENGTH_SIZE:]
        add = messages.AddEntry(parsed.ledger_id, entry_id, parsed.master_key, body, flag=flag)
        if version == v3.VERSION:
            priority = messages.PRIORITY_HIGH if parsed.is_recovery else 0
            frames += (bytes(each) for each in v3.encode_request(numbers[index], add, priority))
        else:
            frames += (bytes(each) for each in v2.encode_request(add))
    return b"".join(frames)


@pytest.mark.parametrize("version", [v2.VERSION, v3.VERSION])
@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_is_its_adds_one_by_one(name: str, version: int) -> None:
    section = SECTIONS[name]
    adds = adds_of(section, version)
    encoded = b"".join(bytes(part) for portion in adds.portions for part in portion.parts)
    assert encoded == one_by_one(section, version, adds.numbers)
    assert adds_of(section, version) is adds, "the same for every bookie"


def test_numbers_are_drawn_once_for_all_bookies_and_anew_for_another_try() -> None:
    section = SECTIONS["small"]
    first, again = adds_of(section, v3.VERSION), encode_adds(section, v3.VERSION)
    assert not set(first.numbers) & set(again.numbers)
    assert len(
        b"".join(bytes(part) for portion in first.portions for part in portion.parts)
    ) == len(b"".join(bytes(part) for portion in again.portions for part in portion.parts))


def replies(seed: int) -> list[SectionReply]:
    random = Random(seed)
    found: list[SectionReply] = []
    for _ in range(20):
        first, count = random.choice((0, 100, 2**20)), random.randint(1, 9)
        ids = range(first, first + count)
        numbers = tuple(random.randrange(2**45) for _ in ids) if random.random() < 0.5 else ()
        status = random.choice(list(Status))
        ledger_id = random.choice((0, 7, 300, 2**50))
        found.append(RpcSectionReply(ledger_id, ids[0], ids[-1], False, status, ids, numbers))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_answers_read_at_one_look_are_what_they_are_when_they_are_parsed(seed: int) -> None:
    sent = replies(seed)
    encoded = memoryview(encode_add_replies(sent))
    at = 0
    for reply in sent:
        assert isinstance(reply, RpcSectionReply)
        for index, entry_id in enumerate(reply.entry_ids):
            frame, quick = frame_at(encoded, at), answer_at(encoded, at)
            assert frame is not None
            assert quick is not None
            wanted = messages.AddReply(reply.ledger_id, entry_id)
            if reply.numbers:
                parsed = v3.parse_answer(frame)
                assert (parsed.head.number, quick.number) == (reply.numbers[index],) * 2
                assert (parsed.reply, parsed.status) == (wanted, quick.status)
                assert quick.status is answer_to_add(reply.status)
            else:
                old = v2.parse_answer(frame)
                assert (old.reply, old.status) == (wanted, quick.status)
                assert (quick.ledger_id, quick.entry_id) == (reply.ledger_id, entry_id)
            at += LENGTH_SIZE + len(frame)
            assert quick.end == at
    assert at == len(encoded)


def test_what_is_no_answer_to_an_add_is_left_to_the_parsers() -> None:
    others = (
        v3.encode_answer(v3.Answer(v3.Head(1, 1), RpcStatus.ENOENTRY, messages.ReadReply(7, 3))),
        v3.encode_answer(v3.Answer(v3.Head(1, 2), RpcStatus.EBADREQ)),
        v2.encode_answer(v2.Answer(RpcStatus.EOK, messages.ReadReply(7, 3, b"x" * 40))),
        (b"\x00\x00\x00\x18" + bytes(24),),
        (b"\x00\x00",),
        (b"",),
    )
    for parts in others:
        assert answer_at(memoryview(b"".join(map(bytes, parts))), 0) is None
