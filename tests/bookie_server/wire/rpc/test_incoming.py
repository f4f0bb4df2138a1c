"""What a connection brings, cut into sections and requests: the same at one look as parsed field by field, and wherever it is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from bookie_server.wire.messages import Section
from bookie_server.wire.rpc import incoming, messages, v2, v3
from bookie_server.wire.rpc.incoming import Asked, Incoming, RpcSection
from bookie_server.wire.rpc.quick import add_at
from tests.bookie_server.wire.rpc.transcripts import exchanges
from tests.doubles.records import records

KEYS = (b"k" * 20, b"l" * 20)
GOLDEN = exchanges("*/*.txt") + exchanges("java_*.txt")
Found = list[RpcSection | Asked]


def an_add(random: Random, version: int, entry_id: int) -> bytes:
    """Mostly the next of its ledger, as a writer's are."""
    ledger_id = random.choice((7, 7, 7, 7, 300, 2**40))
    payload = random.randbytes(random.choice((0, 5, 100, 100, 100, 3_000)))
    body = bytes(records([payload], entry_id, ledger_id=ledger_id))[4:]
    flag = messages.ADD_FLAG_RECOVERY if random.random() < 0.1 else None
    write_flags = messages.WRITE_FLAG_DEFERRED_SYNC if random.random() < 0.1 else None
    key = KEYS[random.random() < 0.1]
    add = messages.AddEntry(ledger_id, entry_id, key, body, write_flags, flag)
    priority = random.choice((0, 0, 0, messages.PRIORITY_HIGH))
    if version == v2.VERSION:
        return b"".join(v2.encode_request(add, priority))
    return b"".join(v3.encode_request(random.randrange(2**40), add, priority))


def said(seed: int) -> bytes:
    """What a client may say: adds and other requests of version 3, then of version 2."""
    random = Random(seed)
    frames: list[bytes] = []
    for version in (v3.VERSION, v2.VERSION):
        entry_id = random.randrange(2**14)
        for _ in range(40):
            entry_id += random.choice((1, 1, 1, 1, 1, 2, -1, 70_000))
            frames.append(an_add(random, version, max(0, entry_id)))
            if random.random() < 0.1:
                read = messages.ReadEntry(7, entry_id)
                encoded = (
                    v3.encode_request(5, read) if version == v3.VERSION else v2.encode_request(read)
                )
                frames.append(b"".join(encoded))
    return b"".join(frames)


def all_of(pieces: Iterator[bytes]) -> Found:
    """What is found in bytes that come in pieces, as a connection cuts them."""
    cutter, rest = Incoming(), b""
    found: Found = []
    for piece in pieces:
        rest += piece
        some, size = cutter.cut(memoryview(rest))
        found += some
        rest = rest[size:]
    cutter.check()
    assert not rest
    return found


def entries_in(found: Found) -> list[object]:
    """Everything that was asked, adds one by one: how they were put together does not matter."""
    return [
        (part.ledger_id, part.master_key, part.is_recovery, bytes(part.run.data), part.numbers)
        if isinstance(part, RpcSection)
        else part
        for each in found
        for part in (each.parts() if isinstance(each, RpcSection) else [each])
    ]


def in_pieces(data: bytes, sizes: Sequence[int], random: Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = random.choice(sizes)
        yield data[at : at + size]
        at += size


@pytest.mark.parametrize("seed", range(30))
def test_adds_read_at_one_look_are_what_they_are_when_they_are_parsed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = said(seed)
    quick = all_of(iter([data]))
    monkeypatch.setattr(incoming, "add_at", lambda *_, **__: None)
    assert all_of(iter([data])) == quick
    assert sum(isinstance(each, RpcSection) for each in quick) < len(entries_in(quick))


@pytest.mark.parametrize("seed", range(30))
def test_it_does_not_matter_where_they_are_cut(seed: int) -> None:
    data, random = said(seed), Random(seed)
    whole = all_of(iter([data]))
    assert entries_in(all_of(in_pieces(data, (1, 7, 100, 5_000), random))) == entries_in(whole)


def test_most_adds_of_javas_are_read_at_one_look() -> None:
    """Those that sync later, and padded ones, are parsed."""
    adds = [each for each in GOLDEN if is_add(each.request)]
    seen = [each for each in adds if add_at(memoryview(each.sent), 0, is_v2=False) is not None]
    assert len(seen) > 0.8 * len(adds) > 40


def is_add(frame: bytes) -> bool:
    if not frame or frame[0] < 8:
        return frame[1:2] == b"\x01" and len(frame) > 60
    return b"\x10\x02\x18" in frame[:8]


@pytest.mark.parametrize("seed", range(300))
def test_changed_bytes_are_never_read_otherwise_at_one_look(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    data = bytearray(an_add(random, random.choice((2, 3)), random.randrange(300)))
    for _ in range(random.randint(1, 2)):
        at = random.randrange(4, min(len(data), 90))
        data[at] = random.choice((random.randrange(256), data[at] ^ 1, data[at] ^ 128))

    def outcome() -> object:
        cutter = Incoming()
        found, size = cutter.cut(memoryview(bytes(data)))
        return entries_in(found), size, cutter._defect is not None

    quick = outcome()
    monkeypatch.setattr(incoming, "add_at", lambda *_, **__: None)
    assert outcome() == quick


def test_the_parts_of_a_section_are_its_entries() -> None:
    (section,) = all_of(iter([b"".join(an_add(Random(3), 3, 0) for _ in range(1))]))
    assert isinstance(section, Section)
    assert section.parts() == [section]
