"""The checksummed group: the one frame in which journal and index put bytes on disk.

    group = header (72 bytes) · body · zeros up to the file's alignment

The header carries whose it is (magic, file id, key), where it stands in the chain
(sequence, end of the group before it), the body's length, how many of its 512-byte sectors are zero
*by content*, a CRC-32C over all that and the body, and one over the header alone so that a length
is never believed unchecked. A disk writes whole sectors in any order, so after a crash a group that
was never acknowledged has sectors still zero which should not be: it is *torn*. A CRC failure with
every sector written cannot be told from damage to acknowledged bytes: it is *ambiguous*.

Behind damage groups are searched for, and payloads are anybody's bytes. So the *key* is what no client can know: each journal
file draws its own. Where clients write no payloads, and in older files, it is the bookie's instance id.

In a file that is written lap after lap, sectors that were not reached are not zero. There a group is *stamped*
(see :mod:`bookie_server.storage.disk.stamps`), and its header carries the lap instead of the zero sectors.

This module makes and checks the bytes; ``group_reader`` finds groups in files and tells torn from
ambiguous.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bookie_server.storage.disk.stamps import SECTOR_SIZE, stamp, stamped_size
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.digest import crc32c, crc32c_of

BODY_SIZE_MAX = 1024 * 1024 * 1024
_JOIN_BELOW = 8 * 1024
"""Bodies of many buffers smaller than this on average are joined: cheaper than one iovec each."""

_FIELDS = struct.Struct(">8sq16sqqqIII")
_CRC = struct.Struct(">I")
CRC_SIZE = _CRC.size
HEADER_SIZE = _FIELDS.size + CRC_SIZE
_ZERO_SECTOR = bytes(SECTOR_SIZE)


def signed(fields: bytes, size: int = 0) -> bytes:
    """Packed fields with their CRC-32C behind them, filled up to ``size`` with zeros."""
    return (fields + _CRC.pack(crc32c(fields))).ljust(size, b"\0")


def is_signed(content: bytes, fields_size: int) -> bool:
    """Whether the first ``fields_size`` bytes are there and match the CRC-32C behind them."""
    if len(content) < fields_size + CRC_SIZE:
        return False
    return bool(crc32c(content[:fields_size]) == _CRC.unpack_from(content, fields_size)[0])


@dataclass(frozen=True, slots=True, order=True)
class GroupEnd:
    """The place just behind a group: file, offset (alignment included), and its sequence."""

    file_id: int
    offset: int
    sequence: int


@dataclass(frozen=True, slots=True)
class GroupFormat:
    """What the groups of all files of one kind, of one bookie, have in common."""

    magic: bytes
    alignment: int
    key: bytes
    """16 bytes that every header bears."""

    def aligned(self, size: int) -> int:
        """``size``, rounded up to a multiple of the alignment."""
        return -(-size // self.alignment) * self.alignment

    def stored_size(self, body_size: int) -> int:
        """Bytes of a group without what aligns it."""
        return HEADER_SIZE + body_size

    def size_of(self, body_size: int) -> int:
        """Bytes that a group takes in its file."""
        return self.aligned(self.stored_size(body_size))


@dataclass(frozen=True, slots=True)
class StampedFormat(GroupFormat):
    """Of one file that is written lap after lap; the alignment is a multiple of the sector's size."""

    lap: int

    def stored_size(self, body_size: int) -> int:
        return stamped_size(HEADER_SIZE + body_size)


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """A header whose own checksum holds."""

    file_id: int
    sequence: int
    previous_file_id: int
    previous_offset: int
    body_size: int
    zero_sectors: int
    """Of a stamped group: the lap."""
    checksum: int


def encode_group(
    format: GroupFormat, file_id: int, previous: GroupEnd, body: Sequence[Buffer]
) -> tuple[list[Buffer], int]:
    """Encode the group that follows ``previous``: its buffers, padding included, and their size."""
    size = _checked(sum(map(len, body)))
    # Checksum, sector count and write all go buffer by buffer, so many small ones are dear.
    if len(body) > 1 and size < len(body) * _JOIN_BELOW:
        body = [b"".join(body)]
    checksum = 0
    for buffer in body:
        checksum = crc32c_of(buffer, checksum)
    padded = format.size_of(size)
    padding = bytes(padded - HEADER_SIZE - size)
    # The header fills the first bytes of its sector, and is never all zero.
    zero_sectors = count_zero_sectors(HEADER_SIZE, [*body, padding])
    header = _header(format, file_id, previous, size, zero_sectors, checksum)
    return [header, *body, padding], padded


def put_stamped_group(
    room: memoryview,
    format: StampedFormat,
    file_id: int,
    previous: GroupEnd,
    body: Sequence[Buffer],
) -> None:
    """Put the group that follows ``previous`` in the same file into ``room``, which is of its size."""
    end = HEADER_SIZE
    for buffer in body:
        room[end : end + len(buffer)] = buffer
        end += len(buffer)
    size = _checked(end - HEADER_SIZE)
    checksum = crc32c_of(room[HEADER_SIZE:end])
    room[:HEADER_SIZE] = _header(format, file_id, previous, size, format.lap, checksum)
    stamp(room, end, format.lap, previous.offset)


def _checked(body_size: int) -> int:
    if not 0 < body_size <= BODY_SIZE_MAX:
        raise ValueError(f"a group holds 1..{BODY_SIZE_MAX} bytes; size_bytes={body_size}")
    return body_size


def _header(format: GroupFormat, file_id: int, previous: GroupEnd, *last: int) -> bytes:
    """Encode a header; ``last``: the body's size, what tells unwritten sectors, the body's checksum."""
    chain = previous.sequence + 1, previous.file_id, previous.offset
    fields = format.magic, file_id, format.key, *chain, *last
    # One checksum over header and body: the body's, continued over the fields.
    checksum = crc32c_of(_FIELDS.pack(*fields), last[-1])
    return signed(_FIELDS.pack(*fields[:-1], checksum))


def parse_group_header(format: GroupFormat, sector: bytes) -> GroupHeader | None:
    """The header at the start of ``sector``, or ``None`` if there is no sound one with this key."""
    if not sector.startswith(format.magic) or not is_signed(sector, _FIELDS.size):
        return None
    _, file_id, key, *rest = _FIELDS.unpack_from(sector)
    header = GroupHeader(file_id, *rest)
    # The size decides how much is read next, so an impossible one is refused although it is signed.
    if key != format.key or not 0 < header.body_size <= BODY_SIZE_MAX:
        return None
    return header


def key_of(magic: bytes, sector: bytes) -> bytes | None:
    """The key that a sound header at the start of ``sector`` bears, whatever it is."""
    if not sector.startswith(magic) or not is_signed(sector, _FIELDS.size):
        return None
    return bytes(_FIELDS.unpack_from(sector)[2])


def body_is_valid(header_bytes: bytes, header: GroupHeader, body: memoryview) -> bool:
    """Whether ``body`` is what the header was written for, by size and checksum."""
    if len(body) != header.body_size:
        return False
    checksum = crc32c_of(body)
    unsigned = header_bytes[: _FIELDS.size - _CRC.size] + _CRC.pack(checksum)
    return crc32c_of(unsigned, checksum) == header.checksum


def is_zero(data: Buffer) -> bool:
    """Whether every byte is zero."""
    # In words of eight bytes: a start looks through all that was zeroed ahead of the last group.
    whole = len(data) // 8 * 8
    view = memoryview(data)
    if whole and np.frombuffer(view[:whole], np.uint64).any():
        return False
    return not any(view[whole:])


def count_zero_sectors(position: int, buffers: Sequence[Buffer]) -> int:
    """Count the sectors that are all zero, when ``buffers`` start at ``position`` of the file.

    The bytes before ``position`` in its sector count as not zero, those behind the end as zero.
    """
    count = 0
    fill = position % SECTOR_SIZE
    is_blank = fill == 0
    for buffer in buffers:
        view = memoryview(buffer)
        if fill:
            head = view[: SECTOR_SIZE - fill]
            is_blank = is_blank and head == _ZERO_SECTOR[: len(head)]
            fill += len(head)
            if fill < SECTOR_SIZE:
                continue
            count += is_blank
            fill, is_blank, view = 0, True, view[len(head) :]
        whole = len(view) // SECTOR_SIZE
        if whole:
            count += _count_aligned_zero_sectors(view[: whole * SECTOR_SIZE])
        rest = view[whole * SECTOR_SIZE :]
        fill = len(rest)
        is_blank = rest == _ZERO_SECTOR[:fill]
    return count + (fill > 0 and is_blank)


def _count_aligned_zero_sectors(view: memoryview) -> int:
    words = np.frombuffer(view, np.uint64).reshape(-1, SECTOR_SIZE // 8)
    # Nearly every written sector differs from zero in its first word already.
    candidates = np.flatnonzero(words[:, 0] == 0)
    return sum(not words[index].any() for index in candidates)
