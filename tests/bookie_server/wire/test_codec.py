"""Frames and messages: what goes in comes out, and what makes no sense is refused by name."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_server.wire import add_frames, codec, limits
from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.limits import FRAME_SIZE_MAX
from bookie_server.wire.messages import (
    BookieInfo,
    EntryList,
    IdRange,
    ReadLacReply,
    ReadLacRequest,
    ReadRequest,
    SectionReply,
    Status,
    StoredReply,
)
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.model import DigestType
from tests.doubles.records import encoded_section, records

KEY = b"k" * 20


def section(ledger_id: int = 7, key: bytes = KEY, *, is_recovery: bool = False) -> bytes:
    header = add_frames.encode_section_header(
        ledger_id, key, DigestType.CRC32C, is_recovery=is_recovery
    )
    return add_frames.encode_section(header, [records([b"a", b"bb"], ledger_id=ledger_id)])


def test_a_frame_is_its_sections_back_to_back() -> None:
    first, second = add_frames.parse_frame(section(7) + section(9, is_recovery=True))

    assert (first.ledger_id, first.is_recovery, len(first.run)) == (7, False, 2)
    assert (second.ledger_id, second.is_recovery, second.master_key) == (9, True, KEY)
    assert bytes(first.run.data) == records([b"a", b"bb"])


@given(st.integers(0, len(section()) - 1))
def test_a_frame_cut_anywhere_is_refused(size: int) -> None:
    with pytest.raises(codec.MalformedFrameError):
        add_frames.parse_frame(section()[:size])


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_understood_but_never_crashes(garbage: bytes) -> None:
    for parse in (
        add_frames.parse_frame,
        add_frames.parse_write_reply,
        codec.parse_read_request,
        codec.parse_read_reply,
        codec.parse_read_lac_request,
        codec.parse_read_lac_reply,
        codec.parse_write_lac_request,
        codec.parse_status,
        codec.parse_info,
        codec.parse_info_request,
        codec.parse_list_entries_request,
        codec.parse_entry_list,
    ):
        with suppress(codec.MalformedFrameError, codec.BadRequestError):
            parse(garbage)


def test_a_frame_above_the_limit_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(codec.MalformedFrameError, match="bytes"):
        add_frames.parse_frame(bytes(FRAME_SIZE_MAX + 1))


@pytest.mark.parametrize(
    ("header_ledger", "record_ledger", "first_entry", "key"),
    [
        (8, 7, 0, KEY),
        (-1, -1, 0, KEY),
        (7, 7, -5, KEY),
        pytest.param(7, 7, -0x2000, KEY, id="fence: the journal's own, not to come by wire"),
        (7, 7, 0, b"short"),
    ],
)
def test_a_section_that_contradicts_itself_is_refused(
    header_ledger: int, record_ledger: int, first_entry: int, key: bytes
) -> None:
    header = add_frames.encode_section_header(header_ledger, key, DigestType.CRC32C)
    frame = add_frames.encode_section(
        header, [records([b"a"], first_entry, ledger_id=record_ledger)]
    )

    (parsed,) = add_frames.parse_frame(frame)

    assert parsed.defect
    assert parsed.reply(Status.BAD_REQUEST).ledger_id == header_ledger


@pytest.mark.parametrize("size", [0, 19, 21, 60_000])
def test_a_request_that_binds_a_key_of_another_size_is_refused(size: int) -> None:
    """A ledger's key is stored with it: 70,000 bytes fit no index, and ended the bookie for ever.

    Now so many are no request at all.
    """
    key = bytes(size)
    fencing_read = ReadRequest(
        ledger_id=1, first_entry=0, last_entry=0, is_fencing=True, master_key=key
    )

    with pytest.raises(codec.BadRequestError, match="master key"):
        codec.parse_read_request(codec.encode_read_request(1, fencing_read))
    with pytest.raises(codec.BadRequestError, match="master key"):
        codec.parse_read_lac_request(codec.encode_read_lac_request(ReadLacRequest(1, True, key)))
    with pytest.raises(codec.BadRequestError, match="master key"):
        codec.parse_write_lac_request(codec.encode_write_lac_request(0, key, bytes(20)))
    assert "master key" in add_frames.parse_frame(section(key=key))[0].defect
    with pytest.raises(codec.MalformedFrameError):
        add_frames.parse_frame(section(key=bytes(70_000)))


def test_write_replies_round_trip() -> None:
    replies = [SectionReply(7, 0, 9, False, Status.OK), SectionReply(8, 3, 3, True, Status.FENCED)]

    assert add_frames.parse_write_reply(add_frames.encode_write_reply(replies)) == replies


def test_a_status_of_a_later_version_proves_nothing() -> None:
    data = pb.StatusReply.FromString(b"\x08\x63").SerializeToString()

    assert codec.parse_status(data) is Status.UNKNOWN


@pytest.mark.parametrize("stripe", [None, Stripe(5, 3, 4)])
def test_read_requests_round_trip(stripe: Stripe | None) -> None:
    request = ReadRequest(
        ledger_id=7,
        first_entry=3,
        last_entry=9,
        stripe=stripe,
        is_fencing=True,
        master_key=KEY,
        size_bytes_max=77,
    )

    assert codec.parse_read_request(codec.encode_read_request(5, request)) == (5, request)


@pytest.mark.parametrize(
    "request_",
    [
        ReadRequest(ledger_id=-1, first_entry=0, last_entry=1),
        ReadRequest(ledger_id=1, first_entry=-1, last_entry=1),
        ReadRequest(ledger_id=1, first_entry=5, last_entry=4),
    ],
)
def test_a_read_of_nothing_possible_is_refused(request_: ReadRequest) -> None:
    with pytest.raises(codec.BadRequestError) as refused:
        codec.parse_read_request(codec.encode_read_request(1, request_))

    request_id, reply = codec.parse_read_reply(refused.value.reply)
    asked = IdRange(request_.first_entry, request_.last_entry, Status.BAD_REQUEST)
    assert (request_id, reply.missing) == (1, (asked,))


@pytest.mark.parametrize(("write_quorum", "index"), [(4, 0), (2, 3), (0, 0)])
def test_a_read_of_an_impossible_stripe_is_refused(write_quorum: int, index: int) -> None:
    stripe = pb.Stripe(ensemble_size=3, write_quorum=write_quorum, index=index)
    request = pb.ReadRequest(ledger_id=1, first_entry=0, last_entry=1, stripe=stripe)

    with pytest.raises(codec.BadRequestError, match="stripe"):
        codec.parse_read_request(request.SerializeToString())


def test_read_replies_carry_records_and_the_fate_of_the_rest() -> None:
    missing = (IdRange(2, 5, Status.NO_ENTRY), IdRange(6, 9, Status.NOT_REACHED))
    frame = codec.encode_read_reply(11, StoredReply((records([b"a", b"bb"]),), missing, 1))

    request_id, reply = codec.parse_read_reply(frame)

    assert (request_id, reply.last_add_confirmed, reply.missing) == (11, 1, missing)
    assert list(reply.runs[0].entry_ids) == [0, 1]


@pytest.mark.conformance("D11")
def test_small_messages_round_trip() -> None:
    for lac in (
        ReadLacReply(Status.OK, records([b"a"]), b"packet"),
        ReadLacReply(Status.NO_LEDGER),
    ):
        assert codec.parse_read_lac_reply(codec.encode_read_lac_reply(lac)) == lac
    held = EntryList(Status.OK, (IdRange(0, 4, Status.OK),), 7, 2)
    assert codec.parse_entry_list(codec.encode_entry_list(held)) == held
    info = BookieInfo("b:1", "cluster", "0.1", 3, 100, 50, 2)
    assert codec.parse_info(codec.encode_info(info)) == info
    packet = (7).to_bytes(8) + (9).to_bytes(8) + bytes(4)
    request = codec.encode_write_lac_request(7, KEY, packet)
    assert codec.parse_write_lac_request(request) == (7, KEY, packet)
    with pytest.raises(codec.BadRequestError):
        codec.parse_write_lac_request(codec.encode_write_lac_request(8, KEY, packet))


def test_headers_that_come_again_and_again_are_kept_and_large_ones_are_not() -> None:
    """Any client may send as many different ones as it likes, of 64 KiB each."""
    before = add_frames._known_header.cache_info()
    usual = encoded_section([b"x"]).data
    assert add_frames.parse_frame(usual + usual) == add_frames.parse_frame(usual) * 2
    assert add_frames._known_header.cache_info().hits >= before.hits + 2

    kept = add_frames._known_header.cache_info().currsize
    # Unknown to this version, and allowed.
    unknown = b"\xfa\x7f\x80\x10" + bytes(2_048)
    header = add_frames.encode_section_header(7, KEY, DigestType.CRC32C) + unknown
    records = bytes(add_frames.parse_frame(usual)[0].run.data)
    (section,) = add_frames.parse_frame(add_frames.encode_section(header, [records]))
    assert (section.ledger_id, section.defect) == (7, "")
    assert add_frames._known_header.cache_info().currsize == kept


@pytest.mark.parametrize("size_bytes", [limits.REPLY_SIZE_MAX, limits.REPLY_SIZE_MAX + 2])
def test_a_reply_of_more_parts_than_any_has_is_refused_before_they_are_made(
    size_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 MiB of empty parts cost a client half a gigabyte, and its event loop ten seconds."""
    monkeypatch.setattr(codec, "IdRange", None)
    monkeypatch.setattr(add_frames, "SectionReply", None)
    many: list[tuple[Any, bytes, Any, str]] = [
        (add_frames.parse_write_reply, b"", pb.WriteReply, "sections"),
        (codec.parse_entry_list, b"", pb.ListEntriesReply, "held"),
        (codec.parse_read_reply, size_bytes.to_bytes(4), pb.ReadReplyHeader, "missing"),
    ]
    for parse, front, kind, parts in many:
        tag = kind.DESCRIPTOR.fields_by_name[parts].number << 3 | 2
        with pytest.raises(codec.MalformedFrameError, match=f"a {kind.__name__} of"):
            parse(front + bytes([tag, 0]) * (size_bytes // 2))
