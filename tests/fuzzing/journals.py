"""Decoders of a bookie's journals: the first block of a file, the groups behind it, and the records in them.

Headers and bodies have checksums, which are made right again for most of the changed inputs.
"""

from __future__ import annotations

import struct
from functools import partial

from bookie_server.core.records import (
    Add,
    Drop,
    ExplicitLac,
    Fence,
    JournalRecord,
    MasterKey,
    Replace,
    Tombstone,
)
from bookie_server.storage.disk import group
from bookie_server.storage.disk.group import GroupEnd, GroupFormat, StampedFormat
from bookie_server.storage.disk.group_reader import GroupReader, StampedGroupReader
from bookie_server.storage.journal import journal_file
from bookie_server.storage.journal.record import (
    MalformedBodyError,
    Roll,
    decode_records,
    encode_record,
)
from bookie_server.wire.digest import crc32c, crc32c_of
from bookie_server.wire.record import parse_run
from tests.doubles.records import records
from tests.fuzzing.decoder import Bound, Decoder
from tests.fuzzing.one_file import one_file
from tests.fuzzing.wire import KEY, runs

_AT = "bookie_server.storage"
_INSTANCE = b"instance-of-ours"
_SECTOR = 512
_FILE_ID = 3
_ZEROED = GroupFormat(b"BKJGROUP", _SECTOR, _INSTANCE)
_STAMPED = StampedFormat(b"BKJGRP3\n", _SECTOR, _INSTANCE, 2)
_GROUP_FIELDS = struct.Struct(">8sq16sqqqIII")
_HEADER_SIZE = struct.calcsize(">8sIHqq16sqqq")
_WINDOWS = Bound(4 << 20, 16)
"""Files are searched a MiB at a time."""


def _journal_records() -> list[JournalRecord | Roll]:
    packet = b"\0" * 7 + b"\7" + b"\0" * 8 + b"sign"
    return [
        *(Add(parse_run(data)) for data in runs()),
        Replace(parse_run(records([b"mended"] * 3, 4))),
        MasterKey(7, KEY),
        Fence(7),
        ExplicitLac(7, packet),
        Tombstone(3, 9),
        Drop(7),
        Roll(4),
    ]


def _bodies() -> list[bytes]:
    each = [bytes(encode_record(record)) for record in _journal_records()]
    return [*each, b"".join(each), b"".join(reversed(each))]


def _records_of(content: bytes) -> list[JournalRecord | Roll]:
    return list(decode_records(memoryview(content)))


def _headers() -> list[bytes]:
    end = GroupEnd(2, 8192, 6)
    made = [
        journal_file.JournalFileHeader(
            version, 0, 3, 65_536, _INSTANCE, end, 2 if version >= 3 else 0, b"k" * 16 if version >= 4 else b""
        )
        for version in (1, 2, 3, 4)
    ]  # fmt: skip
    return [journal_file.encode_file_header(each).rstrip(b"\0") for each in made]


def _block(content: bytes) -> bytes:
    return content[: journal_file.BLOCK_SIZE].ljust(journal_file.BLOCK_SIZE, b"\0")


def _sealed_header(content: bytes) -> bytes:
    version = int.from_bytes(content[8:12])
    size = _HEADER_SIZE + (4 if version >= 3 else 0) + (16 if version >= 4 else 0)
    return group.signed(content[:size].ljust(size, b"\0"))


def _group_of(format: GroupFormat, body: bytes) -> bytes:
    previous = GroupEnd(_FILE_ID, 0, 0)
    if isinstance(format, StampedFormat):
        room = bytearray(format.size_of(len(body)))
        group.put_stamped_group(memoryview(room), format, _FILE_ID, previous, [body])
        return bytes(room)
    buffers, _ = group.encode_group(format, _FILE_ID, previous, [body])
    return b"".join(buffers)


def _groups(format: GroupFormat) -> list[bytes]:
    one, two = (_group_of(format, body) for body in (_bodies()[0], bytes(600) + _bodies()[2]))
    return [one, two, one + two, bytes(_SECTOR) + one]


def _sealed_group(content: bytes) -> bytes:
    """With a sound header; of what is not stamped the body is sound, too."""
    if len(content) < group.HEADER_SIZE:
        return content
    fields = list(_GROUP_FIELDS.unpack_from(content))
    fields[:3] = content[:8], _FILE_ID, _INSTANCE
    body = content[group.HEADER_SIZE :][: fields[6]]
    unsigned = _GROUP_FIELDS.pack(*fields)[:-4]
    fields[8] = crc32c_of(unsigned, crc32c(body))
    return group.signed(_GROUP_FIELDS.pack(*fields)) + content[group.HEADER_SIZE :]


def _read_groups(format: GroupFormat, content: bytes) -> list[object]:
    with one_file().of(content).open("") as file:
        reader = (
            StampedGroupReader(format, file, _FILE_ID)
            if isinstance(format, StampedFormat)
            else GroupReader(format, file, _FILE_ID)
        )
        first, next_one = reader.read(0), reader.next_valid(0)
        has = reader.has_group(GroupEnd(_FILE_ID, _SECTOR, 1))
    return [first.kind, None if next_one is None else next_one.offset, has]


def _header_of_group(content: bytes) -> group.GroupHeader | None:
    header = group.parse_group_header(_ZEROED, content)
    if header is not None:
        group.body_is_valid(content, header, memoryview(content)[group.HEADER_SIZE :])
    return header


DECODERS: tuple[Decoder, ...] = (
    Decoder(
        name="journal-records",
        decode=_records_of,
        encode=lambda found: b"".join(map(encode_record, found)),
        errors=(MalformedBodyError,),
        seeds=_bodies,
        covers=(f"{_AT}.journal.record.decode_records",),
        memory=Bound(64 * 1024, 96),
        steps=Bound(4_000, 32),
    ),
    Decoder(
        name="journal-file-header",
        decode=lambda content: journal_file.parse_file_header(_block(content)),
        encode=lambda found: None if found is None else journal_file.encode_file_header(found),
        errors=(),
        seeds=_headers,
        seal=_sealed_header,
        covers=(f"{_AT}.journal.journal_file.parse_file_header",),
    ),
    Decoder(
        name="group-header",
        decode=_header_of_group,
        errors=(),
        seeds=lambda: _groups(_ZEROED)[:2],
        seal=_sealed_group,
        covers=(f"{_AT}.disk.group.parse_group_header", f"{_AT}.disk.group.body_is_valid"),
    ),
    Decoder(
        name="journal-groups",
        decode=partial(_read_groups, _ZEROED),
        errors=(),
        seeds=lambda: _groups(_ZEROED),
        seal=_sealed_group,
        covers=(
            f"{_AT}.disk.group_reader.GroupReader.read",
            f"{_AT}.disk.group_reader.GroupReader.next_valid",
        ),
        memory=_WINDOWS,
    ),
    Decoder(
        name="journal-stamped-groups",
        decode=partial(_read_groups, _STAMPED),
        errors=(),
        seeds=lambda: _groups(_STAMPED),
        seal=_sealed_group,
        covers=(
            f"{_AT}.disk.group_reader.StampedGroupReader.read",
            f"{_AT}.disk.stamps.without_stamps",
        ),
        memory=_WINDOWS,
    ),
)
