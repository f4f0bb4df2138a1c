"""Stamps: which sectors of a file that is written lap after lap belong to its present lap.

A file that is filled with zeros before its use shows by them which sectors a write that was cut short has
not reached. One that is written again has its old content there. So each of its sectors ends with the
stamp of the lap in which it was written, and the words that stood there are kept in a table:

    stamped = content · zeros up to a sector · table of the displaced words, 127 a sector · zeros up to the size

Whoever reads puts the words back before he looks at any checksum. So a stamp is no part of what is
stored: it is asked only where a checksum fails, or nothing is found. A sector is then of this lap, or *blank*,
which is that it bears a stamp of an earlier lap or was never written; anything else is damage. The stamps
of laps lie far apart, so that no flipped bit makes one of another, and each place has its own, so that a sector
which was meant for another is damage as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bookie_server.wire.buffer import Buffer

SECTOR_SIZE = 512
LAPS_MAX = 1_000
"""A file is not written more often: of the stamps of so few laps even two flipped bits make no other's, and none is
zero, up to files of 5 GiB."""
_WORD = np.dtype("<u4")
_WORDS = SECTOR_SIZE // _WORD.itemsize
_LAST = _WORDS - 1
# Odd, so that no two laps have one stamp, nor two places.
_SPREAD = 0x9E3779B1
_GATHER = pow(_SPREAD, -1, 1 << 32)
_SPREAD_PLACES = 0x85EBCA6B
_NO_LAP = (1 << 32) - 1


def stamped_size(content_size: int) -> int:
    """Bytes of content, table and stamps; whole sectors."""
    sectors = -(-content_size // SECTOR_SIZE)
    return (sectors + -(-sectors // _LAST)) * SECTOR_SIZE


def stamp(room: memoryview, content_size: int, lap: int, offset: int) -> None:
    """Make ``room``, whole sectors that begin with the content, a stamped whole for that offset of the file."""
    room[content_size:] = bytes(len(room) - content_size)
    sectors = _sectors(room)
    count = -(-content_size // SECTOR_SIZE)
    rest = sectors[count:]
    table = np.zeros(len(rest) * _LAST, _WORD)
    table[:count] = sectors[:count, _LAST]
    rest[:, :_LAST] = table.reshape(-1, _LAST)
    sectors[:, _LAST] = np.uint32(lap * _SPREAD % (1 << 32)) ^ _places(offset, len(sectors))


def without_stamps(data: Buffer, content_size: int) -> memoryview:
    """The content of a stamped whole; what there is of it where ``data`` is too short."""
    whole = bytearray(data)
    if len(whole) >= stamped_size(content_size):
        sectors = _sectors(memoryview(whole))
        count = -(-content_size // SECTOR_SIZE)
        table = sectors[count:, :_LAST].reshape(-1)
        sectors[:count, _LAST] = table[:count]
    return memoryview(whole)[:content_size].toreadonly()


def count_blank(data: Buffer, lap: int, offset: int) -> int:
    """How many sectors from the offset on a write in this lap has not reached; 0 where any sector was damaged."""
    laps = _laps(data, offset)
    if (laps > lap).any():
        return 0
    return int((laps < lap).sum())


def is_blank(data: Buffer, lap: int, offset: int) -> bool:
    """Whether no sector from the offset on was written in this lap, or damaged; less than a sector has to be zero."""
    whole = len(data) // SECTOR_SIZE * SECTOR_SIZE
    return bool((_laps(data, offset) < lap).all()) and not any(memoryview(data)[whole:])


def is_written(data: Buffer, lap: int, offset: int) -> bool:
    """Whether each sector from the offset on was written there, in this lap."""
    return bool((_laps(data, offset) == lap).all())


def _laps(data: Buffer, offset: int) -> NDArray[np.uint32]:
    """The lap in which each whole sector was written; 0: never; a huge one: nobody wrote it so, or not here."""
    whole = len(data) // SECTOR_SIZE * SECTOR_SIZE
    sectors = _sectors(memoryview(data)[:whole])
    stamps = sectors[:, _LAST]
    laps = (stamps ^ _places(offset, len(sectors))) * np.uint32(_GATHER)
    laps[laps == 0] = _NO_LAP
    # Never written is what is zero as a whole, not what ends with zeros.
    ending = np.flatnonzero(stamps == 0)
    laps[ending[~sectors[ending].any(axis=1)]] = 0
    return laps


def _places(offset: int, count: int) -> NDArray[np.uint32]:
    first = offset // SECTOR_SIZE
    return np.arange(first, first + count).astype(np.uint32) * np.uint32(_SPREAD_PLACES)


def _sectors(data: Buffer) -> NDArray[np.uint32]:
    return np.frombuffer(data, _WORD).reshape(-1, _WORDS)
