"""Messages to bytes and back; adds are in :mod:`bookie_server.wire.add_frames`.

These two files alone know protobuf's classes. Requests are held against the limits
(:mod:`bookie_server.wire.limits`) here, before anything is allocated by a peer's say-so. The layout is
in bookie.proto. Where a value has the fields of its message, by name, ``_fields_of`` carries them over.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.digest import MASTER_KEY_SIZE
from bookie_server.wire.limits import HEADER_SIZE_MAX, REPLY_PARTS_MAX, REPLY_SIZE_MAX, defect_of
from bookie_server.wire.messages import (
    BookieInfo,
    EntryList,
    IdRange,
    ListRequest,
    LongPoll,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Status,
    StoredReply,
)
from bookie_server.wire.record import MalformedRecordsError, Run, parse_run
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.model import NO_ENTRY_ID

_REPLY = struct.Struct(">I")
_INFO = attrgetter(*BookieInfo.__slots__)
_STATUSES = {status.value: status for status in Status if status is not Status.UNREACHABLE}
"""That one only clients make: a bookie that says it has answered."""

M = TypeVar("M", bound=Message)


class _Value(Protocol):
    """A dataclass with slots."""

    __slots__: tuple[str, ...]


class MalformedFrameError(ValueError):
    """The bytes are not a frame, so nothing that follows on their stream can be trusted."""


class BadRequestError(ValueError):
    """A request that breaks a limit; nothing was done for it, and ``reply`` says so to the peer."""

    def __init__(self, detail: str, reply: bytes) -> None:
        super().__init__(detail, reply)
        self.detail = detail
        self.reply = reply

    def __str__(self) -> str:
        return self.detail


def _defect_of_fence(request: pb.ReadRequest | pb.ReadLacRequest) -> str:
    """Refuse a key of another size: the first add or fence would bind its ledger to it for good."""
    if request.is_fencing and len(request.master_key) != MASTER_KEY_SIZE:
        return f"a fence with a master key of {len(request.master_key)} bytes"
    return ""


def _parse_request(message: M, data: bytes) -> M:
    if len(data) > HEADER_SIZE_MAX:
        raise MalformedFrameError(f"a request of {len(data)} bytes")
    return parse_message(message, data)


def parse_message(message: M, data: bytes) -> M:
    """Fill ``message`` from its bytes and return it.

    Raises:
        MalformedFrameError: they are not a message of its type.
    """
    try:
        message.ParseFromString(data)
    except DecodeError as cause:
        raise MalformedFrameError(f"{type(message).__name__} does not parse") from cause
    return message


def parse_reply(message: M, data: Buffer, parts: str) -> M:
    """The same of a bookie's message, whose ``parts`` are many; raises also where it is larger than any is."""
    if len(data) > REPLY_SIZE_MAX:
        raise MalformedFrameError(f"a {type(message).__name__} of {len(data)} bytes")
    parse_message(message, bytes(data))
    # Before they are made objects of Python's.
    if (count := len(getattr(message, parts))) > REPLY_PARTS_MAX:
        raise MalformedFrameError(f"a {type(message).__name__} of {count} parts")
    return message


def _fields_of(value: _Value) -> dict[str, Any]:
    """The fields of a dataclass by name, to make a message of; not recursive, unlike ``asdict``."""
    return {name: getattr(value, name) for name in value.__slots__}


def encode_read_request(request_id: int, request: ReadRequest) -> bytes:
    """Encode a read; the reply carries ``request_id`` too, since replies come in any order."""
    fields = _fields_of(request)
    if request.stripe is not None:
        fields["stripe"] = _fields_of(request.stripe)
    return pb.ReadRequest(request_id=request_id, **fields).SerializeToString()


def parse_read_request(data: bytes) -> tuple[int, ReadRequest]:
    """Return request id and request.

    Raises:
        MalformedFrameError: it does not parse.
        BadRequestError: it breaks a limit.
    """
    message = _parse_request(pb.ReadRequest(), data)
    stripe, defect = None, defect_of("ReadRequest", message) or _defect_of_fence(message)
    first_entry, last_entry = message.first_entry, message.last_entry
    if first_entry > last_entry:
        defect = f"a read of entries {first_entry}..{last_entry}"
    if message.HasField("stripe"):
        wire = message.stripe
        defect = defect or defect_of("Stripe", wire)
        try:
            stripe = Stripe(wire.ensemble_size, wire.write_quorum, wire.index)
        except ValueError as cause:
            defect = str(cause)
    if defect:
        refused = IdRange(first_entry, last_entry, Status.BAD_REQUEST)
        reply = StoredReply((), (refused,), NO_ENTRY_ID)
        raise BadRequestError(defect, encode_read_reply(message.request_id, reply))
    return message.request_id, ReadRequest(
        ledger_id=message.ledger_id,
        first_entry=first_entry,
        last_entry=last_entry,
        stripe=stripe,
        is_fencing=message.is_fencing,
        master_key=message.master_key,
        size_bytes_max=message.size_bytes_max,
    )


def encode_read_reply(request_id: int, reply: StoredReply) -> bytes:
    """Encode a header and append the records as they were stored; they are copied once."""
    return b"".join(read_reply_parts(request_id, reply))


def read_reply_parts(request_id: int, reply: StoredReply) -> Sequence[Buffer]:
    """What a read reply is made of, in this order; the records are not copied."""
    header = pb.ReadReplyHeader(
        request_id=request_id,
        last_add_confirmed=reply.last_add_confirmed,
        missing=[_id_range_to_wire(part) for part in reply.missing],
    ).SerializeToString()
    return _REPLY.pack(len(header)) + header, *reply.chunks


def parse_read_reply(frame: Buffer) -> tuple[int, ReadReply]:
    """Raises :class:`MalformedFrameError`; records are shared with ``frame``, not copied."""
    if len(frame) < _REPLY.size:
        raise MalformedFrameError(f"a read reply of {len(frame)} bytes")
    (header_size,) = _REPLY.unpack_from(frame)
    body = _REPLY.size + header_size
    if body > len(frame):
        raise MalformedFrameError("a read reply header that exceeds its frame")
    header = parse_reply(pb.ReadReplyHeader(), frame[_REPLY.size : body], "missing")
    runs: tuple[Run, ...] = ()
    if body < len(frame):
        try:
            runs = (parse_run(memoryview(frame)[body:]),)
        except MalformedRecordsError as cause:
            raise MalformedFrameError(str(cause)) from cause
    missing = tuple(_id_range_from_wire(part) for part in header.missing)
    return header.request_id, ReadReply(runs, missing, header.last_add_confirmed)


def encode_read_lac_request(request: ReadLacRequest) -> bytes:
    """Encode a LAC read; a bookie looks at ``master_key`` only when the read fences."""
    fields = _fields_of(request)
    if request.long_poll is not None:
        fields["long_poll"] = _fields_of(request.long_poll)
    return pb.ReadLacRequest(**fields).SerializeToString()


def is_long_poll(data: bytes) -> bool:
    """Whether a LAC read waits for news; of what is no LAC read ``False``."""
    try:
        return pb.ReadLacRequest.FromString(data).HasField("long_poll")
    except DecodeError:
        return False


def parse_read_lac_request(data: bytes) -> ReadLacRequest:
    """Raises :class:`MalformedFrameError` and :class:`BadRequestError`."""
    message = _parse_request(pb.ReadLacRequest(), data)
    defect = defect_of("ReadLacRequest", message) or _defect_of_fence(message)
    long_poll = None
    if message.HasField("long_poll"):
        wire = message.long_poll
        defect = defect or defect_of("LongPoll", wire)
        if message.is_fencing:
            defect = "a long poll that fences"
        long_poll = LongPoll(**{name: getattr(wire, name) for name in LongPoll.__slots__})
    if defect:
        raise BadRequestError(defect, encode_read_lac_reply(ReadLacReply(Status.BAD_REQUEST)))
    return ReadLacRequest(message.ledger_id, message.is_fencing, message.master_key, long_poll)


def encode_read_lac_reply(reply: ReadLacReply) -> bytes:
    """Encode a LAC reply. Empty bytes stand for what the bookie does not have: a value has some."""
    return pb.ReadLacReply(
        status=reply.status.name,
        last_entry=reply.last_entry or b"",
        explicit_lac=reply.explicit_lac or b"",
        records=reply.records,
    ).SerializeToString()


def parse_read_lac_reply(data: bytes) -> ReadLacReply:
    """Raises :class:`MalformedFrameError`."""
    message = parse_message(pb.ReadLacReply(), data)
    return ReadLacReply(
        status_from_wire(message.status),
        message.last_entry or None,
        message.explicit_lac or None,
        message.records,
    )


def encode_write_lac_request(ledger_id: int, master_key: bytes, packet: bytes) -> bytes:
    """Encode an explicit LAC; ``packet`` is sent as its writer signed it."""
    return pb.WriteLacRequest(
        ledger_id=ledger_id, master_key=master_key, packet=packet
    ).SerializeToString()


def parse_write_lac_request(data: bytes) -> tuple[int, bytes, bytes]:
    """Return ledger id, master key and packet; raises as :func:`parse_read_request` does."""
    message = _parse_request(pb.WriteLacRequest(), data)
    defect = defect_of("WriteLacRequest", message)
    if not defect and message.packet[:8] != message.ledger_id.to_bytes(8):
        defect = "an explicit LAC packet of another ledger"
    if defect:
        raise BadRequestError(defect, encode_status(Status.BAD_REQUEST))
    return message.ledger_id, message.master_key, message.packet


def encode_status(status: Status) -> bytes:
    """Encode the reply to a request whose whole outcome is a status."""
    return pb.StatusReply(status=status.name).SerializeToString()


def parse_status(data: bytes) -> Status:
    """Raises :class:`MalformedFrameError`."""
    return status_from_wire(parse_message(pb.StatusReply(), data).status)


def parse_info_request(data: bytes) -> None:
    """There is nothing in it. Raises :class:`MalformedFrameError`."""
    _parse_request(pb.InfoRequest(), data)


def encode_info(info: BookieInfo) -> bytes:
    """Encode what ``bookkeeper bookies`` shows of a bookie."""
    return pb.InfoReply(**_fields_of(info)).SerializeToString()


def parse_info(data: bytes) -> BookieInfo:
    """Raises :class:`MalformedFrameError`."""
    return BookieInfo(*_INFO(parse_message(pb.InfoReply(), data)))


def encode_list_entries_request(request: ListRequest) -> bytes:
    """Encode the request for a page of the list of a ledger's entries."""
    return pb.ListEntriesRequest(**_fields_of(request)).SerializeToString()


def parse_list_entries_request(data: bytes) -> ListRequest:
    """Raises :class:`MalformedFrameError` and :class:`BadRequestError`."""
    message = _parse_request(pb.ListEntriesRequest(), data)
    if defect := defect_of("ListEntriesRequest", message):
        raise BadRequestError(defect, encode_entry_list(EntryList(Status.BAD_REQUEST)))
    return ListRequest(message.ledger_id, message.first_entry, message.ranges_max)


def encode_entry_list(entries: EntryList) -> bytes:
    """Encode the ranges in ascending order, as storage lists them."""
    return pb.ListEntriesReply(
        status=entries.status.name,
        held=[_id_range_to_wire(part) for part in entries.held],
        next_entry=entries.next_entry,
        damaged_count=entries.damaged_count,
    ).SerializeToString()


def parse_entry_list(data: bytes) -> EntryList:
    """Raises :class:`MalformedFrameError`."""
    message = parse_reply(pb.ListEntriesReply(), data, "held")
    return EntryList(
        status_from_wire(message.status),
        tuple(_id_range_from_wire(part) for part in message.held),
        message.next_entry,
        message.damaged_count,
    )


def status_from_wire(number: int) -> Status:
    """The status of that number; UNKNOWN where a later version has one that is not known here."""
    return _STATUSES.get(number, Status.UNKNOWN)  # nothing may be concluded from an unknown one


def _id_range_to_wire(part: IdRange) -> pb.IdRange:
    return pb.IdRange(
        first_entry=part.first_entry, last_entry=part.last_entry, status=part.status.name
    )


def _id_range_from_wire(part: pb.IdRange) -> IdRange:
    return IdRange(part.first_entry, part.last_entry, status_from_wire(part.status))
