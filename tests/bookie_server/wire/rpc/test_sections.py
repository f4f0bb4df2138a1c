"""A section as frames of single adds, and their answers: the same bytes and values as one by one, as the codecs have them."""

from __future__ import annotations

from random import Random

import pytest

from bookie_server.wire.add_frames import parse_frame
from bookie_server.wire.messages import EncodedSection, SectionReply, Status
from bookie_server.wire.record import LENGTH_SIZE
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.answer_runs import Answers, answers_at
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
    "alike": encoded_section([bytes([at]) * 100 for at in range(50)], 2**21),
    "alike, and ids become longer": encoded_section([bytes([at]) for at in range(50)], 100),
    "alike, in portions": encoded_section([at.to_bytes(4) for at in range(2_500)], 2**14),
    "alike, of recovery": encode_copy(7, records([b"x" * 9] * 20, 5)),
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


def all_answers(encoded: memoryview) -> list[Answers]:
    found: list[Answers] = []
    at = 0
    while (answers := answers_at(encoded, at)) is not None:
        found.append(answers)
        at = answers.end
    assert at == len(encoded)
    return found


def answer_to(
    entry_ids: range, status: Status, numbers: tuple[int, ...] = (), ledger_id: int = 7
) -> RpcSectionReply:
    ids = ledger_id, entry_ids[0], entry_ids[-1], False, status
    return RpcSectionReply(*ids, entry_ids, numbers)


@pytest.mark.parametrize("is_v3", [False, True])
def test_answers_that_are_alike_are_read_as_one(is_v3: bool) -> None:
    """Where status, ledger or order change, or an id becomes longer, others begin."""
    begin = 1 << 35
    pieces = (
        (range(128, 2_000), Status.OK, begin, 7),
        (range(2_000, 2_010), Status.FENCED, begin + 5_000, 7),
        (range(2_010, 2_012), Status.OK, begin + 5_010, 7),
        (range(60), Status.OK, begin + 5_012 if is_v3 else 0, 8),
        (range(500, 560), Status.OK, begin + 9_000, 8),
    )
    sent = [
        answer_to(ids, status, tuple(range(first, first + len(ids))) if is_v3 else (), ledger_id)
        for ids, status, first, ledger_id in pieces
    ]

    found = all_answers(memoryview(encode_add_replies(sent)))

    alike = [answers for answers in found if answers.entries > 1]
    assert [answers.entries for answers in alike] == [1_872, 10, 60, 60]
    assert len(found) == len(alike) + 2, "two are read one by one"
    ids = [first if is_v3 else entry_ids[0] for entry_ids, _, first, _ in pieces]
    assert [answers.first for answers in alike] == [ids[0], ids[1], ids[3], ids[4]]
    assert [answers.status for answers in alike[:2]] == [RpcStatus.EOK, RpcStatus.EFENCED]
    ledgers = [None] * 4 if is_v3 else [7, 7, 8, 8]
    assert [answers.ledger_id for answers in alike] == ledgers


def test_a_run_of_answers_ends_at_the_largest_id() -> None:
    """Beyond it numpy would go on in floats, where neighbours are equal."""
    top = 2**63 - 1
    sent = [answer_to(range(top - 9, top + 1), Status.OK)]
    found = all_answers(memoryview(encode_add_replies(sent)))
    assert [answers.first for answers in found] == list(range(top - 9, top + 1))


@pytest.mark.parametrize("seed", range(30))
def test_read_as_one_or_one_by_one_answers_are_the_same(seed: int) -> None:
    """Also with a bit that is another one, anywhere."""
    random = Random(seed)
    sent: list[SectionReply] = []
    next_id, number = random.choice((0, 100, 16_380)), 1 << 35
    for _ in range(6):
        count = random.choice((1, 2, 5, 40))
        ids = range(next_id, next_id + count)
        numbers = tuple(range(number, number + count)) if seed % 2 else ()
        sent.append(answer_to(ids, random.choice((Status.OK, Status.OK, Status.BUSY)), numbers))
        next_id += count + random.choice((0, 0, 1))
        number += count + random.choice((0, 0, 1 << 15))
    encoded = bytearray(encode_add_replies(sent))
    if seed > 9:
        encoded[random.randrange(len(encoded))] ^= 1 << random.randrange(8)

    at, view = 0, memoryview(encoded)
    while (answers := answers_at(view, at)) is not None:
        for index in range(answers.entries):
            alone = answer_at(view, at)
            assert alone is not None
            name = (None, alone.number) if answers.ledger_id is None else alone[:2]
            assert name == (answers.ledger_id, answers.first + index)
            assert alone.status is answers.status
            at = alone.end
        assert at == answers.end
    assert answer_at(view, at) is None
