"""Frames of adds to bytes and back, and their answers.

A section is encoded once, by the client that packaged its entries, and the same ``bytes`` go to every
bookie of the write set; a frame of several sections is their concatenation. The layout is in
bookie.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire import limits
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import (
    MalformedFrameError,
    parse_message,
    parse_reply,
    status_from_wire,
)
from bookie_server.wire.limits import FRAME_SIZE_MAX, HEADER_SIZE_MAX, defect_of
from bookie_server.wire.messages import Section, SectionReply
from bookie_server.wire.record import MalformedRecordsError, parse_run
from bookkeeper_metadata.model import DigestType

_SECTION = struct.Struct(">II")
_KNOWN_MAX, _KNOWN_SIZE_MAX = 1_024, 256
"""Headers that are kept as they were parsed, and their largest: a writer's sections have one, again and again."""
_SECTION_KEY = attrgetter("ledger_id", "first_entry", "last_entry", "is_recovery")


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


def parse_frame(frame: Buffer) -> list[Section]:
    """Split a frame into its sections; see :func:`sections_of`."""
    return list(sections_of(frame))


def sections_of(frame: Buffer) -> Iterator[Section]:
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
        header = _parse_header(bytes(view[offset + _SECTION.size : body]))
        offset = body + records_size
        # A view of the frame, not a copy: records are kept and written as they came.
        yield _section(header, view[body:offset])


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


def parse_write_reply(data: Buffer) -> list[SectionReply]:
    """Raises :class:`MalformedFrameError`."""
    message = parse_reply(pb.WriteReply(), data, "sections")
    return [
        SectionReply(*_SECTION_KEY(part), status_from_wire(part.status))
        for part in message.sections
    ]


@dataclass(frozen=True, slots=True)
class _Header:
    """A section's header; nobody looks at the digest type where there is a defect."""

    ledger_id: int
    master_key: bytes
    is_recovery: bool
    digest_type: DigestType
    defect: str


def _parse_header(data: bytes) -> _Header:
    return _known_header(data) if len(data) <= _KNOWN_SIZE_MAX else _known_header.__wrapped__(data)


@lru_cache(maxsize=_KNOWN_MAX)
def _known_header(data: bytes) -> _Header:
    header = parse_message(pb.SectionHeader(), data)
    defect = defect_of("SectionHeader", header)
    digest_type = DigestType.DUMMY if defect else DigestType(header.digest_type)
    return _Header(header.ledger_id, header.master_key, header.is_recovery, digest_type, defect)


def _section(header: _Header, records: memoryview) -> Section:
    try:
        run = parse_run(records, limits.RUN_ENTRIES_MAX)
    except MalformedRecordsError as cause:
        raise MalformedFrameError(str(cause)) from cause
    defect = header.defect
    # Key and fence are checked for the header's ledger, the records go to their own: they must be
    # the same. A negative entry id would be a record of a ledger's state in the journal.
    if run.ledger_id != header.ledger_id or run.first_entry < 0:
        defect = f"records of ledger {run.ledger_id} from entry {run.first_entry} on"
    if run.last_entry - run.first_entry >= limits.ID_SPAN_MAX:
        defect = f"entries {run.first_entry} to {run.last_entry} in one section"
    return Section(
        header.ledger_id, header.master_key, header.is_recovery, header.digest_type, run, defect
    )
