"""Messages to bytes and back; the only file that knows protobuf's classes.

A section is encoded once, by the client that packaged its entries, and the same ``bytes`` go to every
bookie of the write set; a frame of several sections is their concatenation. Requests are held
against the limits (:mod:`bookie_server.wire.limits`) here, before anything is allocated by a peer's
say-so. The layout is in bookie.proto. Where a value has the fields of its message, by name,
``_fields_of`` carries them over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire import limits
from bookie_server.wire.digest import MASTER_KEY_SIZE
from bookie_server.wire.limits import FRAME_SIZE_MAX, HEADER_SIZE_MAX, defect_of
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
    Section,
    SectionReply,
    Status,
    StoredReply,
)
from bookie_server.wire.record import MalformedRecordsError, Run, parse_run
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.model import NO_ENTRY_ID, DigestType

_SECTION = struct.Struct(">II")
_REPLY = struct.Struct(">I")
_SECTION_KEY = attrgetter("ledger_id", "first_entry", "last_entry", "is_recovery")
_INFO = attrgetter(*BookieInfo.__slots__)

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


def encode_section_header(
    ledger_id: int, master_key: bytes, digest_type: DigestType, *, is_recovery: bool = False
) -> bytes:
    """Encode the part of a section that is the same for all adds of a writer."""
    return pb.SectionHeader(
        ledger_id=ledger_id,
        master_key=master_key,
        is_recovery=is_recovery,
        digest_type=digest_type.name,
    ).SerializeToString()


def encode_section(header: bytes, parts: Sequence[bytes | memoryview]) -> bytes:
    """Join a section once: ``parts`` are records, or pieces of records, in order."""
    size = sum(map(len, parts))
    return b"".join((_SECTION.pack(len(header), size), header, *parts))


def parse_frame(frame: bytes) -> list[Section]:
    """Split a frame into its sections; see :func:`sections_of`."""
    return list(sections_of(frame))


def sections_of(frame: bytes) -> Iterator[Section]:
    """The sections of a frame, parsed one by one; records are shared with ``frame``, not copied.

    Raises:
        MalformedFrameError: the frame does not parse to its last byte. A section that parses and
            breaks a limit says so in its ``defect``.
    """
    view = memoryview(frame)
    offset, end, count = 0, len(frame), 0
    # Sizes come from the peer: each is checked before anything is allocated or sliced by it.
    if not _SECTION.size < end <= FRAME_SIZE_MAX:
        raise MalformedFrameError(f"a frame of {end} bytes")
    while offset < end:
        if end - offset < _SECTION.size:
            raise MalformedFrameError(f"{end - offset} bytes behind the last section")
        count += 1
        if count > limits.FRAME_SECTIONS_MAX:
            raise MalformedFrameError(f"more than {limits.FRAME_SECTIONS_MAX} sections in a frame")
        header_size, records_size = _SECTION.unpack_from(view, offset)
        body = offset + _SECTION.size + header_size
        if header_size > HEADER_SIZE_MAX or records_size > end - body:
            raise MalformedFrameError(f"a section at {offset} that exceeds its frame")
        header = _parse(pb.SectionHeader(), bytes(view[offset + _SECTION.size : body]))
        offset = body + records_size
        # A view of the frame, not a copy: records are kept and written as they came.
        yield _section(header, view[body:offset])


def _section(header: pb.SectionHeader, records: memoryview) -> Section:
    try:
        run = parse_run(records, limits.RUN_ENTRIES_MAX)
    except MalformedRecordsError as cause:
        raise MalformedFrameError(str(cause)) from cause
    defect = defect_of("SectionHeader", header)
    # Key and fence are checked for the header's ledger, the records go to their own: they must be
    # the same. A negative entry id would be a record of a ledger's state in the journal.
    if run.ledger_id != header.ledger_id or run.first_entry < 0:
        defect = f"records of ledger {run.ledger_id} from entry {run.first_entry} on"
    if run.last_entry - run.first_entry >= limits.ID_SPAN_MAX:
        defect = f"entries {run.first_entry} to {run.last_entry} in one section"
    # Nobody looks at the type where there is a defect.
    digest_type = DigestType.DUMMY if defect else DigestType(header.digest_type)
    return Section(
        header.ledger_id, header.master_key, header.is_recovery, digest_type, run, defect
    )


def _defect_of_fence(request: pb.ReadRequest | pb.ReadLacRequest) -> str:
    """Refuse a key of another size: the first add or fence would bind its ledger to it for good."""
    if request.is_fencing and len(request.master_key) != MASTER_KEY_SIZE:
        return f"a fence with a master key of {len(request.master_key)} bytes"
    return ""


def _parse_request(message: M, data: bytes) -> M:
    if len(data) > HEADER_SIZE_MAX:
        raise MalformedFrameError(f"a request of {len(data)} bytes")
    return _parse(message, data)


def _parse(message: M, data: bytes) -> M:
    """Fill ``message`` from its bytes and return it."""
    try:
        message.ParseFromString(data)
    except DecodeError as cause:
        raise MalformedFrameError(f"{type(message).__name__} does not parse") from cause
    return message


def _fields_of(value: _Value) -> dict[str, Any]:
    """The fields of a dataclass by name, to make a message of; not recursive, unlike ``asdict``."""
    return {name: getattr(value, name) for name in value.__slots__}


def encode_write_reply(replies: Iterable[SectionReply]) -> bytes:
    """Encode the answers to any number of sections, in one message."""
    return pb.WriteReply(
        sections=[
            pb.SectionReply(
                ledger_id=reply.ledger_id,
                first_entry=reply.first_entry,
                last_entry=reply.last_entry,
                is_recovery=reply.is_recovery,
                status=reply.status.name,
            )
            for reply in replies
        ]
    ).SerializeToString()


def parse_write_reply(data: bytes) -> list[SectionReply]:
    """Raises :class:`MalformedFrameError`."""
    message = _parse(pb.WriteReply(), data)
    return [SectionReply(*_SECTION_KEY(part), _from_wire(part.status)) for part in message.sections]


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
    header = pb.ReadReplyHeader(
        request_id=request_id,
        last_add_confirmed=reply.last_add_confirmed,
        missing=[_id_range_to_wire(part) for part in reply.missing],
    ).SerializeToString()
    return b"".join((_REPLY.pack(len(header)), header, *reply.chunks))


def parse_read_reply(frame: bytes) -> tuple[int, ReadReply]:
    """Raises :class:`MalformedFrameError`; records are shared with ``frame``, not copied."""
    if len(frame) < _REPLY.size:
        raise MalformedFrameError(f"a read reply of {len(frame)} bytes")
    (header_size,) = _REPLY.unpack_from(frame)
    body = _REPLY.size + header_size
    if body > len(frame):
        raise MalformedFrameError("a read reply header that exceeds its frame")
    header = _parse(pb.ReadReplyHeader(), frame[_REPLY.size : body])
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
    message = _parse(pb.ReadLacReply(), data)
    return ReadLacReply(
        _from_wire(message.status),
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
    return _from_wire(_parse(pb.StatusReply(), data).status)


def parse_info_request(data: bytes) -> None:
    """There is nothing in it. Raises :class:`MalformedFrameError`."""
    _parse_request(pb.InfoRequest(), data)


def encode_info(info: BookieInfo) -> bytes:
    """Encode what ``bookkeeper bookies`` shows of a bookie."""
    return pb.InfoReply(**_fields_of(info)).SerializeToString()


def parse_info(data: bytes) -> BookieInfo:
    """Raises :class:`MalformedFrameError`."""
    return BookieInfo(*_INFO(_parse(pb.InfoReply(), data)))


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
    ).SerializeToString()


def parse_entry_list(data: bytes) -> EntryList:
    """Raises :class:`MalformedFrameError`."""
    message = _parse(pb.ListEntriesReply(), data)
    return EntryList(
        _from_wire(message.status),
        tuple(_id_range_from_wire(part) for part in message.held),
        message.next_entry,
    )


def _from_wire(number: int) -> Status:
    try:
        return Status(number)
    except ValueError:
        return Status.UNKNOWN  # a later version's status: we may not conclude anything from it


def _id_range_to_wire(part: IdRange) -> pb.IdRange:
    return pb.IdRange(
        first_entry=part.first_entry, last_entry=part.last_entry, status=part.status.name
    )


def _id_range_from_wire(part: pb.IdRange) -> IdRange:
    return IdRange(part.first_entry, part.last_entry, _from_wire(part.status))
