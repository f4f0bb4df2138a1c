"""The file format of the journal: names, the block in front, and the groups behind it.

A file is ``{id:016x}.txn``: one header block and then groups. From format 3 on the groups are stamped, since such a
file is written lap after lap (see :mod:`bookie_server.storage.disk.stamps`); each lap has another id and another key. Those
of formats 1 and 2 were filled with zeros and written once.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

from bookie_server.storage.disk.files import File, FileSystem
from bookie_server.storage.disk.group import (
    CRC_SIZE,
    GroupEnd,
    GroupFormat,
    StampedFormat,
    is_signed,
    key_of,
    signed,
)
from bookie_server.storage.disk.group_reader import GroupReader, StampedGroupReader
from bookie_server.storage.disk.numbered import numbered_name, numbers_in
from bookie_server.storage.disk.stamps import SECTOR_SIZE

SUFFIX = ".txn"
BLOCK_SIZE = 4096
FORMAT_VERSION = 4
"""2 has roll records, which version 0.1 would take for damage; 3 has stamps; 4 a key of each file's own. All are read."""
_STAMPED_SINCE = 3
_KEYED_SINCE = 4
FILE_MAGIC = b"BKJRNL\r\n"
_ZEROED_MAGIC = b"BKJGROUP"
_STAMPED_MAGIC = b"BKJGRP3\n"

_HEADER = struct.Struct(">8sIHqq16sqqq")
_LAP = struct.Struct(">I")
_KEY = struct.Struct(">16s")
KEY_SIZE = _KEY.size


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """The end of a group: everything of this journal up to here is durable."""

    journal_index: int
    end: GroupEnd


@dataclass(frozen=True, slots=True)
class JournalFileHeader:
    """The first block of a journal file, in the order of its fields on disk."""

    version: int
    journal_index: int
    file_id: int
    size_bytes: int
    """The file was this long before it got its name: a shorter one was truncated."""
    instance_id: bytes
    previous: GroupEnd
    """The end of the last sound group in older files when this one was begun."""
    lap: int = 0
    """How often the file was begun; the first time it is 1. Not told before format 3."""
    key: bytes = b""
    """What its groups bear and nobody else knows. Not told before format 4: it was the instance id."""


def stamped_format(key: bytes, lap: int) -> StampedFormat:
    """The format of the groups of a file that is begun for the ``lap``-th time."""
    return StampedFormat(_STAMPED_MAGIC, BLOCK_SIZE, key, lap)


def group_reader(
    file: File, file_id: int, instance_id: bytes, header: JournalFileHeader | None
) -> GroupReader:
    """The reader of a file's groups; ``None`` for the header that cannot be read."""
    zeroed = GroupReader(GroupFormat(_ZEROED_MAGIC, BLOCK_SIZE, instance_id), file, file_id)
    if header is not None:
        if header.version < _STAMPED_SINCE:
            return zeroed
        stamped = stamped_format(header.key or instance_id, header.lap)
    # Without its header a file is damaged, whatever its groups say; what they hold is read all the same.
    elif zeroed.next_valid(BLOCK_SIZE) is not None:
        return zeroed
    else:
        stamped = stamped_format(_key_of_first_group(file) or instance_id, 1)
    return StampedGroupReader(stamped, file, file_id)


def _key_of_first_group(file: File) -> bytes | None:
    """That of the one place where no payload can stand."""
    try:
        return key_of(_STAMPED_MAGIC, file.read_at(BLOCK_SIZE, SECTOR_SIZE))
    except OSError:
        return None


def file_name(file_id: int) -> str:
    """What the journal file of this id is called."""
    return numbered_name(file_id, SUFFIX)


def file_ids(files: FileSystem, directory: str) -> list[int]:
    """Ids of the journal files in ``directory``, ascending."""
    return numbers_in(files, directory, SUFFIX)


def encode_file_header(header: JournalFileHeader) -> bytes:
    """Encode the first block of a journal file."""
    *fields, previous, lap, key = astuple(header)
    packed = _HEADER.pack(FILE_MAGIC, *fields, *previous)
    if header.version >= _STAMPED_SINCE:
        packed += _LAP.pack(lap)
    if header.version >= _KEYED_SINCE:
        packed += _KEY.pack(key)
    return signed(packed, BLOCK_SIZE)


def parse_file_header(block: bytes) -> JournalFileHeader | None:
    """Parse a file's first block; ``None`` if its checksum fails or anything behind it is not zero."""
    if len(block) != BLOCK_SIZE or block[:8] != FILE_MAGIC:
        return None
    _, version, index, file_id, file_size, instance_id, *previous = _HEADER.unpack_from(block)
    size = _HEADER.size
    lap, key = 0, b""
    if version >= _STAMPED_SINCE:
        (lap,) = _LAP.unpack_from(block, size)
        size += _LAP.size
    if version >= _KEYED_SINCE:
        (key,) = _KEY.unpack_from(block, size)
        size += _KEY.size
    if any(block[size + CRC_SIZE :]) or not is_signed(block, size):
        return None
    return JournalFileHeader(
        version, index, file_id, file_size, instance_id, GroupEnd(*previous), lap, key
    )
