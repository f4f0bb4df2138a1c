"""Messages to bytes and back; the only file that knows protobuf's classes.

A section is encoded once, by the client that packaged its entries, and the same ``bytes`` go to every
bookie of the write set; a frame of several sections is their concatenation. Sizes are limited here,
before anything is allocated by a peer's say-so. The layout is in bookie.proto. Where a value has the
fields of its message, by name, ``_fields_of`` carries them over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.digest import MASTER_KEY_SIZE
from bookie_server.wire.messages import (
    BookieInfo,
    EntryList,
    IdRange,
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
from bookkeeper_metadata.model import DigestType

FRAME_SIZE_MAX = 8 * 1024 * 1024
"""Largest message either side accepts."""
_HEADER_SIZE_MAX = 64 * 1024
"""Largest protobuf header in a frame: thousands of id ranges fit, a bomb does not."""

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
    """Split a frame into its sections; records are shared with ``frame``, not copied.

    Raises:
        MalformedFrameError: the frame does not parse to its last byte, or breaks a limit.
    """
    sections: list[Section] = []
    view = memoryview(frame)
    offset, end = 0, len(frame)
    # Sizes come from the peer: each is checked before anything is allocated or sliced by it.
    if not _SECTION.size < end <= FRAME_SIZE_MAX:
        raise MalformedFrameError(f"a frame of {end} bytes")
    while offset < end:
        if end - offset < _SECTION.size:
            raise MalformedFrameError(f"{end - offset} bytes behind the last section")
        header_size, records_size = _SECTION.unpack_from(view, offset)
        body = offset + _SECTION.size + header_size
        if header_size > _HEADER_SIZE_MAX or records_size > end - body:
            raise MalformedFrameError(f"a section at {offset} that exceeds its frame")
        header = _parse(pb.SectionHeader(), bytes(view[offset + _SECTION.size : body]))
        offset = body + records_size
        # A view of the frame, not a copy: records are kept and written as they came.
        sections.append(_section(header, view[body:offset]))
    return sections


def _section(header: pb.SectionHeader, records: memoryview) -> Section:
    try:
        run = parse_run(records)
        digest_type = DigestType(header.digest_type)
    except ValueError as cause:
        raise MalformedFrameError(str(cause)) from cause
    # Key and fence are checked for the header's ledger, the records go to their own: they must be
    # the same. A negative entry id would be a record of a ledger's state in the journal.
    if run.ledger_id != header.ledger_id or header.ledger_id < 0 or run.first_entry < 0:
        raise MalformedFrameError(
            f"records of ledger {run.ledger_id} entry {run.first_entry} in a section of ledger {header.ledger_id}"
        )
    _check_key(header.master_key)
    return Section(header.ledger_id, header.master_key, header.is_recovery, digest_type, run)


def _check_key(master_key: bytes) -> None:
    """Refuse a key of another size: the first add or fence would bind its ledger to it for good."""
    if len(master_key) != MASTER_KEY_SIZE:
        raise MalformedFrameError(f"a master key of {len(master_key)} bytes")


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
    """Return request id and request; raises :class:`MalformedFrameError` for what makes no sense."""
    message = _parse(pb.ReadRequest(), data)
    stripe = None
    if message.HasField("stripe"):
        wire = message.stripe
        try:
            stripe = Stripe(wire.ensemble_size, wire.write_quorum, wire.index)
        except ValueError as cause:
            raise MalformedFrameError(str(cause)) from cause
    if message.ledger_id < 0 or not 0 <= message.first_entry <= message.last_entry:
        raise MalformedFrameError(
            f"a read of ledger {message.ledger_id} entries {message.first_entry}..{message.last_entry}"
        )
    if message.is_fencing:
        _check_key(message.master_key)
    return message.request_id, ReadRequest(
        ledger_id=message.ledger_id,
        first_entry=message.first_entry,
        last_entry=message.last_entry,
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
    """Raises :class:`MalformedFrameError` for what makes no sense."""
    message = _parse(pb.ReadLacRequest(), data)
    if message.ledger_id < 0:
        raise MalformedFrameError(f"a LAC read of ledger {message.ledger_id}")
    if message.is_fencing:
        _check_key(message.master_key)
    long_poll = None
    if message.HasField("long_poll"):
        wire = message.long_poll
        if wire.previous_lac < -1 or message.is_fencing:
            raise MalformedFrameError("a long poll that fences, or from before the first entry")
        long_poll = LongPoll(**{name: getattr(wire, name) for name in LongPoll.__slots__})
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
    """Return ``(ledger_id, master_key, packet)``; raises :class:`MalformedFrameError`."""
    message = _parse(pb.WriteLacRequest(), data)
    if message.ledger_id < 0:
        raise MalformedFrameError(f"an explicit LAC of ledger {message.ledger_id}")
    _check_key(message.master_key)
    # Two numbers and a digest, of which HMAC's is the largest with 20 bytes.
    if not 16 <= len(message.packet) <= 36 or message.packet[:8] != message.ledger_id.to_bytes(8):
        raise MalformedFrameError("an explicit LAC packet of another ledger or size")
    return message.ledger_id, message.master_key, message.packet


def encode_status(status: Status) -> bytes:
    """Encode the reply to a request whose whole outcome is a status."""
    return pb.StatusReply(status=status.name).SerializeToString()


def parse_status(data: bytes) -> Status:
    """Raises :class:`MalformedFrameError`."""
    return _from_wire(_parse(pb.StatusReply(), data).status)


def encode_info(info: BookieInfo) -> bytes:
    """Encode what ``bookkeeper bookies`` shows of a bookie."""
    return pb.InfoReply(**_fields_of(info)).SerializeToString()


def parse_info(data: bytes) -> BookieInfo:
    """Raises :class:`MalformedFrameError`."""
    return BookieInfo(*_INFO(_parse(pb.InfoReply(), data)))


def encode_list_entries_request(ledger_id: int) -> bytes:
    """Encode the request for the list of all entries of a ledger."""
    return pb.ListEntriesRequest(ledger_id=ledger_id).SerializeToString()


def parse_list_entries_request(data: bytes) -> int:
    """Return the ledger id; raises :class:`MalformedFrameError`."""
    return _parse(pb.ListEntriesRequest(), data).ledger_id


def encode_entry_list(entries: EntryList) -> bytes:
    """Encode the ranges in ascending order, as storage lists them."""
    return pb.ListEntriesReply(
        status=entries.status.name, held=[_id_range_to_wire(part) for part in entries.held]
    ).SerializeToString()


def parse_entry_list(data: bytes) -> EntryList:
    """Raises :class:`MalformedFrameError`."""
    message = _parse(pb.ListEntriesReply(), data)
    return EntryList(
        _from_wire(message.status), tuple(_id_range_from_wire(part) for part in message.held)
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
