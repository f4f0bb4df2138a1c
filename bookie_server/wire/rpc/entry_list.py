"""Which entries of a ledger a bookie holds, as its answer to a request for the list has it.

    int32 version 0 · int32 count · 56 bytes of 0 · count times: int64 first start · int64 last start · int32 size · int32 period

A group stands for as many sequences of ``size`` ids each as fit: they start from the first start to the last one,
``period`` apart. A single one has a period of 0. Source: Apache ``AvailabilityOfEntriesOfLedger``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookkeeper_metadata.model import ENTRY_ID_MAX

_HEADER = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
_SIZE_MAX = 2**31 - 1
Ids = tuple[int, int]
"""First and last one of consecutive ids."""


class EntryListEncoder:
    """Encodes ascending ranges as they are found; those of one size at equal distances, as a striped ledger has, are
    one group."""

    def __init__(self) -> None:
        self._groups = bytearray()
        self._start = self._last_start = self._size = self._period = 0

    @property
    def size_bytes(self) -> int:
        """Of the list so far, about."""
        return _HEADER.size + len(self._groups)

    def add(self, first: int, last: int) -> None:
        """The entries from ``first`` to ``last`` are there, too."""
        # None is too large for its field.
        for start in range(first, last + 1, _SIZE_MAX):
            self._add(start, min(last + 1 - start, _SIZE_MAX))

    def finish(self) -> bytes:
        """The whole list."""
        self._end_group()
        self._size = 0
        return _HEADER.pack(0, len(self._groups) // _GROUP.size) + bytes(self._groups)

    def _add(self, start: int, size: int) -> None:
        distance = start - self._last_start
        if size == self._size and distance <= _SIZE_MAX and self._period in (0, distance):
            self._last_start, self._period = start, distance
            return
        self._end_group()
        self._start = self._last_start = start
        self._size, self._period = size, 0

    def _end_group(self) -> None:
        if self._size:
            group = self._start, self._last_start, self._size, self._period
            self._groups += _GROUP.pack(*group)


def parse_entry_list(encoded: Buffer, first_entry: int = 0) -> Iterator[Ids]:
    """The ranges that end at ``first_entry`` or behind, one by one: their number is the peer's word.

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
        is_possible = size >= 1 and last_start + size - 1 <= ENTRY_ID_MAX
        if (
            start <= before
            or not is_possible
            or not (is_one or (last_start > start and period >= size))
        ):
            raise MalformedFrameError(f"a group of entries. start={start} size={size}")
        step = 1 if is_one else period
        # Of those that end at the first entry wanted or behind; a range of that many has no length.
        skipped = max(0, -((start + size - 1 - first_entry) // step))
        for first in range(start + skipped * step, last_start + 1, step):
            yield first, first + size - 1
        before = last_start + size - 1
