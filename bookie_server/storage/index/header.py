"""The first sector of an index: whose it is, and how many groups its snapshot has."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.disk.group import is_signed, signed
from bookie_server.storage.disk.stamps import SECTOR_SIZE

FORMAT_VERSION = 2
"""2 has entries that replace damaged ones, rows that moved, and tombstones. An index of format 1 is read,
and then written anew."""
FILE_MAGIC = b"BKINDX\r\n"
_HEADER = struct.Struct(">8sIHq16sI")


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The fields, in the order they have on disk."""

    magic: bytes
    version: int
    directory_index: int
    generation: int
    """Grows with every snapshot; all groups of the file carry it."""
    instance_id: bytes
    snapshot_groups: int
    """Groups that the snapshot has: fewer of them are damage, for no crash leaves a part of one."""

    def encode(self) -> bytes:
        """The whole sector, signed."""
        return signed(_HEADER.pack(*astuple(self)), SECTOR_SIZE)


def parse_header(sector: bytes) -> IndexHeader | None:
    """The inverse of ``encode``; ``None`` where the sector is damaged."""
    if len(sector) < SECTOR_SIZE or not is_signed(sector, _HEADER.size):
        return None
    return IndexHeader(*_HEADER.unpack_from(sector))


def check_header(header: IndexHeader, path: str, directory_index: int, instance_id: bytes) -> None:
    """Refuse an index that is not this directory's.

    The header is signed: what does not fit here was written on purpose, and is not damage.

    Raises:
        StorageRefusedError: it is another bookie's, another directory's or of a newer format.
    """
    if header.magic != FILE_MAGIC or header.version > FORMAT_VERSION:
        raise StorageRefusedError(path, f"index format {header.version} is not one of ours")
    if header.instance_id != instance_id:
        raise StorageRefusedError(path, "index belongs to another bookie")
    if header.directory_index != directory_index:
        raise StorageRefusedError(
            path, f"ledger directories were reordered; this was number {header.directory_index}"
        )
