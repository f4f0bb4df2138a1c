"""Which entries of a ledger a bookie holds, as its answer to a request for the list has it.

    int32 version 0 · int32 count · 56 bytes of 0 · count times: int64 first start · int64 last start · int32 size · int32 period

A group stands for as many sequences of ``size`` ids each as fit: they start from the first start to the last one,
``period`` apart. A single one has a period of 0. Source: Apache ``AvailabilityOfEntriesOfLedger``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError

_HEADER = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
_SIZE_MAX = 2**31 - 1
Ids = tuple[int, int]
"""First and last one of consecutive ids."""


def encode_entry_list(ranges: Iterable[Ids]) -> bytes:
    """Encode ascending ranges; those of one size at equal distances, as a striped ledger has, are one group."""
    groups = list(_groups(ranges))
    return _HEADER.pack(0, len(groups)) + b"".join(_GROUP.pack(*group) for group in groups)


def parse_entry_list(encoded: Buffer) -> Iterator[Ids]:
    """The ranges, one by one: their number is the peer's word.

    Raises:
        MalformedFrameError: it is no list, or its ids do not ascend.
    """
    if len(encoded) < _HEADER.size:
        raise MalformedFrameError(f"a list of entries of {len(encoded)} bytes")
    version, count = _HEADER.unpack_from(encoded)
    if version != 0 or len(encoded) != _HEADER.size + count * _GROUP.size:
        raise MalformedFrameError(f"a list of entries. version={version} count={count}")
    before = -1
    for at in range(_HEADER.size, len(encoded), _GROUP.size):
        start, last_start, size, period = _GROUP.unpack_from(encoded, at)
        is_one = start == last_start
        if start <= before or size < 1 or not (is_one or (last_start > start and period >= size)):
            raise MalformedFrameError(f"a group of entries. start={start} size={size}")
        for first in (start,) if is_one else range(start, last_start + 1, period):
            yield first, first + size - 1
        before = last_start + size - 1


def _groups(ranges: Iterable[Ids]) -> Iterator[tuple[int, int, int, int]]:
    start = last_start = size = period = 0
    for first, size_found in _in_ints(ranges):
        distance = first - last_start
        may_join = size_found == size and distance <= _SIZE_MAX and period in (0, distance)
        if may_join:
            last_start, period = first, distance
            continue
        if size:
            yield start, last_start, size, period
        start, last_start, size, period = first, first, size_found, 0
    if size:
        yield start, last_start, size, period


def _in_ints(ranges: Iterable[Ids]) -> Iterator[tuple[int, int]]:
    """First id and size of each, none too large for its field."""
    for first, last in ranges:
        for start in range(first, last + 1, _SIZE_MAX):
            yield start, min(last + 1 - start, _SIZE_MAX)
