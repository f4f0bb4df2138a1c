"""Messages to bytes and back; the only file that knows protobuf's classes.

A section is encoded once, by whoever packaged its entries, and the same ``bytes`` go to every
bookie of the write set; a frame of several sections is their concatenation. Sizes are limited here,
before anything is allocated by a peer's say-so. The layout is in bookie.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from google.protobuf.message import DecodeError, Message

from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.digest import MASTER_KEY_SIZE
from bookie_server.wire.messages import (
    BookieInfo,
    EntryList,
    IdRange,
    LongPoll,
    ReadLacReply,
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


class MalformedFrameError(ValueError):
    """Bytes that are no frame; the stream they came on cannot be trusted further."""


def encode_section_header(
    ledger_id: int, master_key: bytes, digest_type: DigestType, *, is_recovery: bool = False
) -> bytes:
    """The part of a section that is the same for all adds of a writer."""
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
    """The sections of a frame; records are shared with ``frame``, not copied.

    Raises:
        MalformedFrameError: the frame does not parse to its last byte, or breaks a limit.
    """
    sections: list[Section] = []
    view = memoryview(frame)
    offset, end = 0, len(frame)
    if not _SECTION.size < end <= FRAME_SIZE_MAX:
        raise MalformedFrameError(f"a frame of {end} bytes")
    while offset < end:
        if end - offset < _SECTION.size:
            raise MalformedFrameError(f"{end - offset} bytes behind the last section")
        header_size, records_size = _SECTION.unpack_from(view, offset)
        body = offset + _SECTION.size + header_size
        if header_size > _HEADER_SIZE_MAX or records_size > end - body:
            raise MalformedFrameError(f"a section at {offset} that exceeds its frame")
        header = pb.SectionHeader()
        _parse_into(header, bytes(view[offset + _SECTION.size : body]))
        offset = body + records_size
        # A frame of one section is the common case: its records need no second buffer object.
        sections.append(_section(header, view[body:offset]))
    return sections


def _section(header: pb.SectionHeader, records: memoryview) -> Section:
    try:
        run = parse_run(records)
        digest_type = DigestType(header.digest_type)
    except ValueError as cause:
        raise MalformedFrameError(str(cause)) from cause
    if run.ledger_id != header.ledger_id or header.ledger_id < 0 or run.first_entry < 0:
        raise MalformedFrameError(
            f"records of ledger {run.ledger_id} entry {run.first_entry} in a section of ledger {header.ledger_id}"
        )
    _check_key(header.master_key)
    return Section(header.ledger_id, header.master_key, header.is_recovery, digest_type, run)


def _check_key(master_key: bytes) -> None:
    """A ledger is bound to the key of the first add or fence, so no other size may ever get in."""
    if len(master_key) != MASTER_KEY_SIZE:
        raise MalformedFrameError(f"a master key of {len(master_key)} bytes")


def _parse_into(message: Message, data: bytes) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError as cause:
        raise MalformedFrameError(f"{type(message).__name__} does not parse") from cause


def encode_write_reply(replies: Iterable[SectionReply]) -> bytes:
    """Answers for any number of sections."""
    return pb.WriteReply(
        sections=[
            pb.SectionReply(
                ledger_id=reply.ledger_id,
                first_entry=reply.first_entry,
                last_entry=reply.last_entry,
                is_recovery=reply.is_recovery,
                status=_to_wire(reply.status),
            )
            for reply in replies
        ]
    ).SerializeToString()


def parse_write_reply(data: bytes) -> list[SectionReply]:
    """Raises :class:`MalformedFrameError`."""
    message = pb.WriteReply()
    _parse_into(message, data)
    return [
        SectionReply(
            part.ledger_id,
            part.first_entry,
            part.last_entry,
            part.is_recovery,
            _from_wire(part.status),
        )
        for part in message.sections
    ]


def encode_read_request(request_id: int, request: ReadRequest) -> bytes:
    """``request_id`` ties the reply to its request."""
    message = pb.ReadRequest(
        request_id=request_id,
        ledger_id=request.ledger_id,
        first_entry=request.first_entry,
        last_entry=request.last_entry,
        is_fencing=request.is_fencing,
        master_key=request.master_key,
        size_bytes_max=request.size_bytes_max,
    )
    if request.stripe is not None:
        message.stripe.ensemble_size = request.stripe.ensemble_size
        message.stripe.write_quorum = request.stripe.write_quorum
        message.stripe.index = request.stripe.index
    return message.SerializeToString()


def parse_read_request(data: bytes) -> tuple[int, ReadRequest]:
    """Request id and request; raises :class:`MalformedFrameError` for what makes no sense."""
    message = pb.ReadRequest()
    _parse_into(message, data)
    stripe = None
    if message.HasField("stripe"):
        wire = message.stripe
        if not (1 <= wire.write_quorum <= wire.ensemble_size and wire.index < wire.ensemble_size):
            raise MalformedFrameError("an impossible stripe")
        stripe = Stripe(wire.ensemble_size, wire.write_quorum, wire.index)
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
    """One join: the records go into the message as they were stored."""
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
    header = pb.ReadReplyHeader()
    _parse_into(header, frame[_REPLY.size : body])
    runs: tuple[Run, ...] = ()
    if body < len(frame):
        try:
            runs = (parse_run(memoryview(frame)[body:]),)
        except MalformedRecordsError as cause:
            raise MalformedFrameError(str(cause)) from cause
    missing = tuple(_id_range_from_wire(part) for part in header.missing)
    return header.request_id, ReadReply(runs, missing, header.last_add_confirmed)


def encode_read_lac_request(
    ledger_id: int, *, is_fencing: bool, master_key: bytes, long_poll: LongPoll | None = None
) -> bytes:
    """``master_key`` matters to a fencing read only."""
    message = pb.ReadLacRequest(ledger_id=ledger_id, is_fencing=is_fencing, master_key=master_key)
    if long_poll is not None:
        message.long_poll.previous_lac = long_poll.previous_lac
        message.long_poll.timeout_ms = long_poll.timeout_ms
        message.long_poll.size_bytes_max = long_poll.size_bytes_max
    return message.SerializeToString()


def parse_read_lac_request(data: bytes) -> tuple[int, bool, bytes, LongPoll | None]:
    """``(ledger_id, is_fencing, master_key, long_poll)``; raises :class:`MalformedFrameError`."""
    message = pb.ReadLacRequest()
    _parse_into(message, data)
    if message.ledger_id < 0:
        raise MalformedFrameError(f"a LAC read of ledger {message.ledger_id}")
    if message.is_fencing:
        _check_key(message.master_key)
    long_poll = None
    if message.HasField("long_poll"):
        wire = message.long_poll
        if wire.previous_lac < -1 or message.is_fencing:
            raise MalformedFrameError("a long poll that fences, or from before the first entry")
        long_poll = LongPoll(
            previous_lac=wire.previous_lac,
            timeout_ms=wire.timeout_ms,
            size_bytes_max=wire.size_bytes_max,
        )
    return message.ledger_id, message.is_fencing, message.master_key, long_poll


def encode_read_lac_reply(reply: ReadLacReply) -> bytes:
    """Absent records travel as empty bytes: neither is ever empty when present."""
    return pb.ReadLacReply(
        status=_to_wire(reply.status),
        last_entry=reply.last_entry or b"",
        explicit_lac=reply.explicit_lac or b"",
        records=reply.records,
    ).SerializeToString()


def parse_read_lac_reply(data: bytes) -> ReadLacReply:
    """Raises :class:`MalformedFrameError`."""
    message = pb.ReadLacReply()
    _parse_into(message, data)
    return ReadLacReply(
        _from_wire(message.status),
        message.last_entry or None,
        message.explicit_lac or None,
        message.records,
    )


def encode_write_lac_request(ledger_id: int, master_key: bytes, packet: bytes) -> bytes:
    """``packet`` travels as its writer signed it."""
    return pb.WriteLacRequest(
        ledger_id=ledger_id, master_key=master_key, packet=packet
    ).SerializeToString()


def parse_write_lac_request(data: bytes) -> tuple[int, bytes, bytes]:
    """``(ledger_id, master_key, packet)``; raises :class:`MalformedFrameError`."""
    message = pb.WriteLacRequest()
    _parse_into(message, data)
    if message.ledger_id < 0:
        raise MalformedFrameError(f"an explicit LAC of ledger {message.ledger_id}")
    _check_key(message.master_key)
    if not 16 <= len(message.packet) <= 36 or message.packet[:8] != message.ledger_id.to_bytes(8):
        raise MalformedFrameError("an explicit LAC packet of another ledger or size")
    return message.ledger_id, message.master_key, message.packet


def encode_status(status: Status) -> bytes:
    """The reply of a request whose whole outcome is a status."""
    return pb.StatusReply(status=_to_wire(status)).SerializeToString()


def parse_status(data: bytes) -> Status:
    """Raises :class:`MalformedFrameError`."""
    message = pb.StatusReply()
    _parse_into(message, data)
    return _from_wire(message.status)


def encode_info(info: BookieInfo) -> bytes:
    """What ``bookkeeper bookies`` shows of a bookie."""
    return pb.InfoReply(
        bookie_id=info.bookie_id,
        instance_id=info.instance_id,
        version=info.version,
        ledger_count=info.ledger_count,
        disk_total_bytes=info.disk_total_bytes,
        disk_free_bytes=info.disk_free_bytes,
    ).SerializeToString()


def parse_info(data: bytes) -> BookieInfo:
    """Raises :class:`MalformedFrameError`."""
    message = pb.InfoReply()
    _parse_into(message, data)
    return BookieInfo(
        message.bookie_id,
        message.instance_id,
        message.version,
        message.ledger_count,
        message.disk_total_bytes,
        message.disk_free_bytes,
    )


def encode_list_entries_request(ledger_id: int) -> bytes:
    """Asks for all entries of a ledger; there is nothing else to say."""
    return pb.ListEntriesRequest(ledger_id=ledger_id).SerializeToString()


def parse_list_entries_request(data: bytes) -> int:
    """The ledger id; raises :class:`MalformedFrameError`."""
    message = pb.ListEntriesRequest()
    _parse_into(message, data)
    return message.ledger_id


def encode_entry_list(entries: EntryList) -> bytes:
    """Ranges in ascending order, as storage lists them."""
    return pb.ListEntriesReply(
        status=_to_wire(entries.status), held=[_id_range_to_wire(part) for part in entries.held]
    ).SerializeToString()


def parse_entry_list(data: bytes) -> EntryList:
    """Raises :class:`MalformedFrameError`."""
    message = pb.ListEntriesReply()
    _parse_into(message, data)
    return EntryList(
        _from_wire(message.status), tuple(_id_range_from_wire(part) for part in message.held)
    )


def _to_wire(status: Status) -> str:
    return status.name


def _from_wire(number: int) -> Status:
    try:
        return Status(number)
    except ValueError:
        return Status.UNKNOWN  # a status of a later version proves nothing


def _id_range_to_wire(part: IdRange) -> pb.IdRange:
    return pb.IdRange(
        first_entry=part.first_entry, last_entry=part.last_entry, status=_to_wire(part.status)
    )


def _id_range_from_wire(part: pb.IdRange) -> IdRange:
    return IdRange(part.first_entry, part.last_entry, _from_wire(part.status))
