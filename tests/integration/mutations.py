"""Requests of every kind, and what becomes of them when somebody changes them field by field."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bookie_server.wire import add_frames
from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.digest import DummyDigest
from bookie_server.wire.limits import (
    FRAME_SECTIONS_MAX,
    FRAME_SIZE_MAX,
    HEADER_SIZE_MAX,
    PIECE_SIZE_MAX,
)
from bookie_server.wire.pieces import messages_of
from bookie_server.wire.record import HEADER_SIZE, LENGTH_SIZE, encode_lac_packet
from tests.doubles.records import CRC32C, KEY, records

LEDGERS = range(1, 40)
"""What valid requests speak of."""
KEPT = range(4_000_000_000, 4_000_000_004)
"""Ledgers that no request may speak of."""
INTEGERS = (
    *(
        sign * 2**bits + by
        for bits in (7, 8, 15, 16, 31, 32, 62, 63)
        for sign in (1, -1)
        for by in (-1, 0, 1)
    ),
    *range(-3, 4),
    *(19, 20, 21, 4_096, 16_383, 65_535),
)
SIZES = (0, 1, 15, 16, 17, 19, 20, 21, 35, 36, 37, 1_000, 65_535, 65_536, 70_000)
_SIZES_AT = struct.Struct(">II")


class Mutator:
    """Makes requests at random; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    # -- valid requests ---------------------------------------------------------------------------

    def header(self) -> pb.SectionHeader:
        return pb.SectionHeader(
            ledger_id=self.rng.choice(LEDGERS),
            master_key=KEY,
            is_recovery=self.rng.random() < 0.2,
            digest_type="CRC32C",
        )

    def records(self, ledger_id: int) -> bytes:
        """A run, mostly of one size."""
        rng = self.rng
        sizes = [rng.choice((0, 1, 10, 5_000))] * rng.choice((1, 2, 50))
        if rng.random() < 0.3:
            sizes[-1] += 1
        first_entry = rng.choice((*range(0, 200, 5), 2**40, 2**63 - 60))
        return records(
            [bytes([rng.randrange(3)]) * size for size in sizes], first_entry, ledger_id=ledger_id
        )

    def section(self) -> bytes:
        header = self.header()
        return add_frames.encode_section(
            header.SerializeToString(), [self.records(header.ledger_id)]
        )

    def read(self) -> pb.ReadRequest:
        first_entry = self.rng.randrange(100)
        request = pb.ReadRequest(
            request_id=self.rng.randrange(2**64),
            ledger_id=self.rng.choice(LEDGERS),
            first_entry=first_entry,
            last_entry=first_entry + self.rng.choice((0, 10, 10**6)),
            size_bytes_max=self.rng.choice((0, 1_000, 2**20)),
        )
        if self.rng.random() < 0.5:
            request.stripe.CopyFrom(pb.Stripe(ensemble_size=3, write_quorum=2, index=1))
        if self.rng.random() < 0.1:
            request.is_fencing, request.master_key = True, KEY
        return request

    def read_lac(self) -> pb.ReadLacRequest:
        request = pb.ReadLacRequest(ledger_id=self.rng.choice(LEDGERS))
        if self.rng.random() < 0.5:
            request.long_poll.CopyFrom(
                pb.LongPoll(previous_lac=-1, timeout_ms=1, size_bytes_max=1_000)
            )
        return request

    def write_lac(self) -> pb.WriteLacRequest:
        ledger_id = self.rng.choice(LEDGERS)
        packet = encode_lac_packet(CRC32C, ledger_id, self.rng.randrange(100))
        return pb.WriteLacRequest(ledger_id=ledger_id, master_key=KEY, packet=packet)

    def list_entries(self) -> pb.ListEntriesRequest:
        ledger_id, ranges_max = self.rng.choice(LEDGERS), self.rng.choice((0, 1, 4_096))
        return pb.ListEntriesRequest(ledger_id=ledger_id, ranges_max=ranges_max)

    # -- mutations --------------------------------------------------------------------------------

    def mutated(self, make: Callable[[], Message]) -> bytes:
        """A valid message with some fields changed; now and then its bytes."""
        message = make()
        for _ in range(self.rng.choice((0, 1, 1, 1, 2, 4))):
            self._change(message)
        return self._spoilt(message.SerializeToString())

    def _change(self, message: Message) -> None:
        fields = message.DESCRIPTOR.fields
        if not fields:
            return
        field: FieldDescriptor = self.rng.choice(list(fields))  # type: ignore[assignment]
        if field.message_type is not None:
            part = getattr(message, field.name)
            part.SetInParent()
            self._change(part)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            setattr(message, field.name, self.rng.randbytes(self.rng.choice(SIZES)))
        elif field.type == FieldDescriptor.TYPE_BOOL:
            setattr(message, field.name, not getattr(message, field.name))
        else:
            number = self.rng.choice(INTEGERS)
            try:
                setattr(message, field.name, number)
            except ValueError:
                return  # the field's type has no such number
        if getattr(message, "ledger_id", 0) in KEPT:
            message.ledger_id = 1  # type: ignore[attr-defined]

    def _spoilt(self, data: bytes) -> bytes:
        """The bytes, one time in eight cut, changed, random or with a field of a later version."""
        rng = self.rng
        if rng.random() < 7 / 8:
            return data
        return rng.choice(
            (
                lambda: data[: rng.randrange(len(data) + 1)],
                lambda: self._flipped(data),
                lambda: rng.randbytes(rng.choice(SIZES)),
                lambda: data + b"\xfa\x01\x05later",
                lambda: data + b"\xfa\x01\xff\xff\x7f",
            )
        )()

    def _flipped(self, data: bytes) -> bytes:
        if not data:
            return data
        changed = bytearray(data)
        changed[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        return bytes(changed)

    def frame(self) -> bytes:
        """A frame: valid, or one of its sections changed, or no frame at all."""
        rng = self.rng
        parts = [self.section() for _ in range(rng.choice((0, 0, 1, 3)))]
        parts.insert(rng.randrange(len(parts) + 1), self._section())
        frame = b"".join(parts)
        if rng.random() < 0.1:
            return self._spoilt(self._spoilt(frame))
        return (
            frame
            if rng.random() < 0.99
            else bytes(rng.choice((FRAME_SIZE_MAX - 1, FRAME_SIZE_MAX + 1)))
        )

    def _section(self) -> bytes:
        header = self.header()
        content = self.records(header.ledger_id)
        kind = self.rng.randrange(7)
        if kind == 0:
            return add_frames.encode_section(self.mutated(self.header), [content])
        if kind == 1:
            content = self._with_changed_record(content)
        elif kind == 2:
            content = self._spoilt(self._flipped(content))
        elif kind == 3:
            # No digest to protect what is changed, so the bookie has to look at it.
            header.digest_type = self.rng.choice((pb.DigestType.DUMMY, pb.DigestType.HMAC))
            content = records([bytes(30)] * 3, 7, ledger_id=header.ledger_id, digest=DummyDigest())
            content = self._with_changed_record(content)
        elif kind == 4:
            # Gaps between the ids.
            step = self.rng.choice((2, 3, 30_000, 2**40))
            runs = (records([b"g"], step * at, ledger_id=header.ledger_id) for at in range(1, 60))
            content = b"".join(runs)
        encoded = header.SerializeToString()
        section = add_frames.encode_section(encoded, [content])
        if kind == 5:
            sizes = [len(encoded), len(content)]
            at = self.rng.randrange(2)
            wrong = (0, 1, sizes[at] - 1, sizes[at] + 1, HEADER_SIZE_MAX + 1, 2**31, 2**32 - 1)
            sizes[at] = self.rng.choice(wrong) % 2**32
            return _SIZES_AT.pack(*sizes) + section[_SIZES_AT.size :]
        return section

    def _with_changed_record(self, content: bytes) -> bytes:
        """Another number in the length or the header of the first or the last record."""
        size = LENGTH_SIZE + int.from_bytes(content[:LENGTH_SIZE], "big")
        begin = self.rng.choice((0, (len(content) // size - 1) * size))
        changed, number = bytearray(content), self.rng.choice(INTEGERS)
        at = self.rng.randrange(-1, HEADER_SIZE // 8)
        if at == 0 and number in KEPT:
            return content
        if at < 0:
            changed[begin : begin + LENGTH_SIZE] = (number % 2**32).to_bytes(LENGTH_SIZE)
        else:
            place = begin + LENGTH_SIZE + 8 * at
            changed[place : place + 8] = (number % 2**64).to_bytes(8)
        return bytes(changed)

    def flood(self) -> bytes:
        """As many sections as a frame may have, or more, all of one small entry."""
        header = self.header().SerializeToString()
        ledger_id = pb.SectionHeader.FromString(header).ledger_id
        first = self.rng.randrange(10**6)
        one = [
            add_frames.encode_section(header, [records([b""], first + at, ledger_id=ledger_id)])
            for at in range(self.rng.choice((FRAME_SECTIONS_MAX, FRAME_SECTIONS_MAX, 2_000)))
        ]
        return b"".join(one)

    def pieces(self) -> tuple[bytes, list[bytes]]:
        """A valid frame in pieces, and the messages it came to: some changed, left out, twice or cut."""
        ledger_id, rng = self.rng.choice(LEDGERS), self.rng
        header = pb.SectionHeader(ledger_id=ledger_id, master_key=KEY, digest_type="CRC32C")
        large = records([bytes(PIECE_SIZE_MAX + rng.randrange(10**6))], 500, ledger_id=ledger_id)
        frame = add_frames.encode_section(header.SerializeToString(), [large])
        messages = list(messages_of(frame))
        at = rng.randrange(len(messages))
        match rng.randrange(6):
            case 0:
                number = rng.choice(INTEGERS) % 2**32
                messages[0] = messages[0][:4] + number.to_bytes(4) + messages[0][8:]
            case 1:
                messages[at] = messages[at][: rng.choice(SIZES)]
            case 2:
                del messages[at]
            case 3:
                messages.insert(at, messages[at])
            case 4:
                messages.insert(at, self.section())
            case _:
                pass
        return frame, messages
