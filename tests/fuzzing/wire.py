"""Decoders of our own protocol: frames, records and the messages of gRPC and of the plain socket."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bookie_server.wire import add_frames, codec, envelope, record
from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.codec import BadRequestError, MalformedFrameError
from bookie_server.wire.digest import Crc32cDigest, master_key
from bookie_server.wire.limits import FRAME_SIZE_MAX, PIECE_SIZE_MAX
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
from bookie_server.wire.pieces import Pieces
from bookie_server.wire.record import MalformedRecordsError, Run
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.model import DigestType
from tests.doubles.records import records
from tests.fuzzing.decoder import Bound, Decoder

KEY = master_key(b"p")
CRC32C = Crc32cDigest()
_MARK = b"\xff" * 4
_RANGES = (IdRange(0, 9, Status.OK), IdRange(12, 12, Status.NO_ENTRY), IdRange(13, 2**63 - 1, Status.UNKNOWN))  # fmt: skip


def runs() -> list[bytes]:
    """Records of one size, of several, with gaps, more than are looked at one by one."""
    one = records([b"payload"])
    return [
        one,
        records([b"a", b"bb", b"", b"cccc"], 5, lac=3),
        records([b"same"] * 30, 100, lac=99, length_before=7),
        one + records([b"later"], 9) + records([b"even later"], 2**62),
        records([b"x" * 300, b"y" * 300]),
    ]


def section(data: bytes, ledger_id: int = 7, **how: Any) -> bytes:
    """A section of these records."""
    header = add_frames.encode_section_header(ledger_id, KEY, DigestType.CRC32C, **how)
    return add_frames.encode_section(header, [data])


def _frames() -> list[bytes]:
    frames = [section(data) for data in runs()]
    mixed = section(runs()[0], is_recovery=True) + section(records([b"z"], 3, ledger_id=8), 8)
    return [*frames, mixed, b"".join(frames)]


def _frame_of(sections: Sequence[Section]) -> bytes | None:
    if any(each.defect or each.digest_type is None for each in sections):
        return None
    headers = [
        add_frames.encode_section_header(
            each.ledger_id, each.master_key, each.digest_type or DigestType.DUMMY, is_recovery=each.is_recovery
        )
        for each in sections
    ]  # fmt: skip
    return b"".join(
        add_frames.encode_section(header, [each.run.data])
        for header, each in zip(headers, sections, strict=True)
    )


def _read_reply_of(found: tuple[int, ReadReply]) -> bytes:
    number, reply = found
    chunks = tuple(run.data for run in reply.runs)
    stored = StoredReply(chunks, reply.missing, reply.last_add_confirmed)
    return codec.encode_read_reply(number, stored)


def _read_requests() -> list[bytes]:
    return [
        codec.encode_read_request(number, request)
        for number, request in enumerate(
            (
                ReadRequest(ledger_id=7, first_entry=0, last_entry=99),
                ReadRequest(ledger_id=7, first_entry=5, last_entry=5, stripe=Stripe(3, 2, 1)),
                ReadRequest(ledger_id=2**62, first_entry=0, last_entry=0, is_fencing=True, master_key=KEY),
            )
        )
    ]  # fmt: skip


def _read_replies() -> list[bytes]:
    found = [StoredReply((run,), _RANGES, 8) for run in runs()]
    return [codec.encode_read_reply(9, each) for each in (*found, StoredReply((), _RANGES, -1))]


def _lac_requests() -> list[bytes]:
    poll = LongPoll(previous_lac=5, timeout_ms=1_000)
    of = (ReadLacRequest(7), ReadLacRequest(7, True, KEY), ReadLacRequest(7, long_poll=poll))
    return [codec.encode_read_lac_request(each) for each in of]


def _lac_replies() -> list[bytes]:
    packet = record.encode_lac_packet(CRC32C, 7, 4)
    of = (ReadLacReply(Status.OK, runs()[0], packet, runs()[1]), ReadLacReply(Status.NO_LEDGER))
    return [codec.encode_read_lac_reply(each) for each in of]


def _lac_packets() -> list[bytes]:
    return [record.encode_lac_packet(CRC32C, 7, lac) for lac in (-1, 0, 2**62)]


def _sealed_packet(content: bytes) -> bytes:
    return content[:16] + CRC32C.compute(content[:16], b"")


def _pieces(content: bytes) -> int:
    """A frame of zeros: its size, and then the sizes of its pieces behind the first."""
    size, *others = struct.unpack(f">{len(content) // 4}I", content[: len(content) // 4 * 4]) or (
        0,
    )
    found = Pieces(_MARK + size.to_bytes(4) + bytes(PIECE_SIZE_MAX - 8))
    for other in others:
        found.add(bytes(min(other, PIECE_SIZE_MAX)))
    return len(found.join()) if not found.missing_bytes else -1


def _sizes_of_pieces() -> list[bytes]:
    first, rest = PIECE_SIZE_MAX - 8, 400 * 1024
    sizes = ((first + rest, rest), (first + 2 * rest, rest, rest), (first + 9, 9), (2 * first,))
    return [struct.pack(f">{len(each)}I", *each) for each in sizes]


def _head(content: bytes) -> envelope.Head:
    """Of sixteen bytes, as all callers hand over."""
    return envelope.parse_head(content[:16].ljust(16, b"\0"))


def _run_of(run: Run) -> bytes:
    return bytes(run.data)


def _bounded_run(content: bytes) -> Run:
    return record.parse_run(content, 100)


def _hellos() -> list[bytes]:
    of = envelope.Hello("127.0.0.1:3181", "c" * 36, "0.2")
    with_purpose = envelope.Hello("b", "", "", envelope.Purpose.ADDS)
    return [envelope.encode_hello(each) for each in (of, with_purpose)]


_Row = Callable[..., Decoder]
_codec: _Row = partial(Decoder, errors=(MalformedFrameError,))
_request: _Row = partial(Decoder, errors=(MalformedFrameError, BadRequestError))
_AT = "bookie_server.wire"


def _whole(content: bytes) -> list[Section]:
    return add_frames.parse_frame(content)


DECODERS: tuple[Decoder, ...] = (
    _codec(
        name="own-frame",
        decode=_whole,
        encode=_frame_of,
        seeds=_frames,
        covers=(f"{_AT}.add_frames.parse_frame",),
        memory=Bound(64 * 1024, 128),
    ),
    _codec(
        name="own-write-reply",
        decode=add_frames.parse_write_reply,
        encode=add_frames.encode_write_reply,
        seeds=lambda: [
            add_frames.encode_write_reply(
                [
                    SectionReply(7, 0, 9, False, Status.OK),
                    SectionReply(8, 1, 1, True, Status.FENCED),
                ]
            )
        ],
        covers=(f"{_AT}.add_frames.parse_write_reply",),
        memory=Bound(64 * 1024, 256),
    ),
    _request(
        name="own-read-request",
        decode=codec.parse_read_request,
        encode=lambda found: codec.encode_read_request(*found),
        seeds=_read_requests,
        covers=(f"{_AT}.codec.parse_read_request", f"{_AT}.codec.parse_message"),
    ),
    _codec(
        name="own-read-reply",
        decode=codec.parse_read_reply,
        encode=_read_reply_of,
        seeds=_read_replies,
        covers=(f"{_AT}.codec.parse_read_reply",),
        memory=Bound(64 * 1024, 256),
    ),
    _request(
        name="own-read-lac-request",
        decode=codec.parse_read_lac_request,
        encode=codec.encode_read_lac_request,
        seeds=_lac_requests,
        covers=(f"{_AT}.codec.parse_read_lac_request",),
    ),
    _codec(
        name="own-read-lac-reply",
        decode=codec.parse_read_lac_reply,
        encode=codec.encode_read_lac_reply,
        seeds=_lac_replies,
        covers=(f"{_AT}.codec.parse_read_lac_reply",),
    ),
    _request(
        name="own-write-lac-request",
        decode=codec.parse_write_lac_request,
        encode=lambda found: codec.encode_write_lac_request(*found),
        seeds=lambda: [codec.encode_write_lac_request(7, KEY, each) for each in _lac_packets()],
        covers=(f"{_AT}.codec.parse_write_lac_request",),
    ),
    _codec(
        name="own-status",
        decode=codec.parse_status,
        encode=codec.encode_status,
        seeds=lambda: [codec.encode_status(each) for each in (Status.OK, Status.DELETED)],
        covers=(f"{_AT}.codec.parse_status",),
    ),
    _codec(
        name="own-info-request",
        decode=codec.parse_info_request,
        seeds=lambda: [b"", pb.InfoRequest().SerializeToString(), b"\x08\x01"],
        covers=(f"{_AT}.codec.parse_info_request",),
    ),
    _codec(
        name="own-info",
        decode=codec.parse_info,
        encode=codec.encode_info,
        seeds=lambda: [codec.encode_info(BookieInfo("b:1", "c" * 36, "0.2", 3, 2**40, 2**39, 1))],
        covers=(f"{_AT}.codec.parse_info",),
    ),
    _request(
        name="own-list-request",
        decode=codec.parse_list_entries_request,
        encode=codec.encode_list_entries_request,
        seeds=lambda: [codec.encode_list_entries_request(ListRequest(7, 100))],
        covers=(f"{_AT}.codec.parse_list_entries_request",),
    ),
    _codec(
        name="own-list",
        decode=codec.parse_entry_list,
        encode=codec.encode_entry_list,
        seeds=lambda: [codec.encode_entry_list(EntryList(Status.OK, _RANGES, 99, 2))],
        covers=(f"{_AT}.codec.parse_entry_list", f"{_AT}.codec.parse_reply"),
        memory=Bound(64 * 1024, 256),
    ),
    _codec(
        name="socket-head",
        decode=_head,
        encode=envelope.encode_head,
        seeds=lambda: [
            envelope.encode_head(envelope.Head(kind, 100, number))
            for number, kind in enumerate(envelope.Kind)
        ],
        covers=(f"{_AT}.envelope.parse_head",),
    ),
    _codec(
        name="socket-hello",
        decode=envelope.parse_hello,
        encode=envelope.encode_hello,
        seeds=_hellos,
        covers=(f"{_AT}.envelope.parse_hello",),
    ),
    _codec(
        name="socket-farewell",
        decode=envelope.parse_farewell,
        encode=lambda found: envelope.encode_farewell(*found) if found[0] else None,
        seeds=lambda: [envelope.encode_farewell(each, "because") for each in envelope.Reason],
        covers=(f"{_AT}.envelope.parse_farewell",),
    ),
    _codec(
        name="grpc-pieces",
        decode=_pieces,
        seeds=_sizes_of_pieces,
        covers=(f"{_AT}.pieces.Pieces.add", f"{_AT}.pieces.Pieces.join"),
        memory=Bound(PIECE_SIZE_MAX * 3 + 2 * FRAME_SIZE_MAX, 4),
    ),
    Decoder(
        name="run",
        decode=record.parse_run,
        encode=_run_of,
        errors=(MalformedRecordsError,),
        seeds=runs,
        covers=(f"{_AT}.record.parse_run",),
    ),
    Decoder(
        name="run-of-few",
        decode=_bounded_run,
        encode=_run_of,
        errors=(MalformedRecordsError,),
        seeds=runs,
        covers=(f"{_AT}.record.parse_run",),
    ),
    Decoder(
        name="lac-packet",
        decode=lambda content: record.parse_lac_packet(content, CRC32C, 7),
        encode=lambda lac: None if lac is None else record.encode_lac_packet(CRC32C, 7, lac),
        errors=(),
        seeds=_lac_packets,
        seal=_sealed_packet,
        covers=(f"{_AT}.record.parse_lac_packet", f"{_AT}.record.is_possible_lac_packet"),
    ),
)
