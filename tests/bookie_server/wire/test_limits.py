"""Every field of every request has a limit or a reason for having none, and is held against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from bookie_server.wire import add_frames, codec
from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.limits import LIMITS, RULES, UNLIMITED
from bookie_server.wire.messages import Status
from tests.doubles.records import KEY, records

PACKET = (7).to_bytes(8) + bytes(12)
VALID: dict[str, Message] = {
    "SectionHeader": pb.SectionHeader(ledger_id=7, master_key=KEY, digest_type="CRC32C"),
    "ReadRequest": pb.ReadRequest(
        ledger_id=7,
        last_entry=9,
        stripe=pb.Stripe(ensemble_size=1, write_quorum=1),
        master_key=KEY,
    ),
    "ReadLacRequest": pb.ReadLacRequest(ledger_id=7, master_key=KEY, long_poll=pb.LongPoll()),
    "WriteLacRequest": pb.WriteLacRequest(ledger_id=7, master_key=KEY, packet=PACKET),
    "InfoRequest": pb.InfoRequest(),
    "ListEntriesRequest": pb.ListEntriesRequest(ledger_id=7),
}
"""A request of each kind, every message in it present."""
HOLDS = {"Stripe": ("ReadRequest", "stripe"), "LongPoll": ("ReadLacRequest", "long_poll")}
"""Which request a message is part of, and by which field."""


def status_of_section(data: bytes) -> Status:
    header = pb.SectionHeader.FromString(data)
    content = records([b"x"], ledger_id=header.ledger_id)
    (section,) = add_frames.parse_frame(add_frames.encode_section(data, [content]))
    return Status.BAD_REQUEST if section.defect else Status.OK


def status_of(parse: Callable[[bytes], Any], parse_reply: Callable[[bytes], Status]) -> Any:
    def ask(data: bytes) -> Status:
        try:
            parse(data)
        except codec.BadRequestError as refused:
            return parse_reply(refused.reply)
        return Status.OK

    return ask


ASK: dict[str, Callable[[bytes], Status]] = {
    "SectionHeader": status_of_section,
    "ReadRequest": status_of(
        codec.parse_read_request, lambda reply: codec.parse_read_reply(reply)[1].missing[0].status
    ),
    "ReadLacRequest": status_of(
        codec.parse_read_lac_request, lambda reply: codec.parse_read_lac_reply(reply).status
    ),
    "WriteLacRequest": status_of(codec.parse_write_lac_request, codec.parse_status),
    "ListEntriesRequest": status_of(
        codec.parse_list_entries_request, lambda reply: codec.parse_entry_list(reply).status
    ),
}


def requests() -> list[Descriptor]:
    """What a peer sends: every message of the service that is no part of another and no reply."""
    found = pb.DESCRIPTOR.message_types_by_name
    return [
        kind for name, kind in found.items() if name.endswith("Request") or name == "SectionHeader"
    ]


def fields(message: Descriptor) -> Iterator[FieldDescriptor]:
    """The fields of a message and of the messages in it."""
    for field in message.fields:
        if field.message_type is None:
            yield field
        else:
            yield from fields(field.message_type)


def test_every_field_of_every_request_has_a_limit_or_a_reason_for_having_none() -> None:
    named = {
        field.full_name.removeprefix("bookkeeper.") for kind in requests() for field in fields(kind)
    }
    limited = [name for limit in LIMITS for name in limit.fields]

    assert {kind.name for kind in requests()} == set(VALID)
    assert len(set(limited)) == len(limited)
    assert set(limited) | set(UNLIMITED) == named
    assert not set(limited) & set(UNLIMITED)


def test_rules_name_fields_that_exist() -> None:
    for rule in RULES:
        for name in rule.fields:
            message, _, field = name.partition(".")
            assert not field or field in pb.DESCRIPTOR.message_types_by_name[message].fields_by_name


def cases() -> Iterator[Any]:
    for limit in LIMITS:
        for name in limit.fields:
            for number in (limit.minimum - 1, limit.maximum + 1):
                yield pytest.param(name, number, id=f"{name}={number}")


@pytest.mark.parametrize(("name", "number"), list(cases()))
def test_a_value_beyond_its_limit_is_a_bad_request(name: str, number: int) -> None:
    kind, field = name.split(".")
    holder, part = HOLDS.get(kind, (kind, ""))
    request = type(VALID[holder])()
    request.CopyFrom(VALID[holder])
    assert ASK[holder](request.SerializeToString()) is Status.OK
    message = getattr(request, part) if part else request
    is_bytes = isinstance(getattr(message, field), bytes)

    try:
        if is_bytes and number < 0:
            return
        setattr(message, field, bytes(number) if is_bytes else number)
    except ValueError:
        return  # the field's own type has no such value

    assert ASK[holder](request.SerializeToString()) is Status.BAD_REQUEST


def test_a_request_that_is_too_large_is_not_parsed() -> None:
    unknown = b"\xfa\x01" + b"\xff\xff\x7f" + bytes(0x1FFFFF)
    for parse in (
        codec.parse_read_request,
        codec.parse_read_lac_request,
        codec.parse_write_lac_request,
        codec.parse_list_entries_request,
        codec.parse_info_request,
    ):
        with pytest.raises(codec.MalformedFrameError, match="bytes"):
            parse(unknown)
