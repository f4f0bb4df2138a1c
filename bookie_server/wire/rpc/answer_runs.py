"""Answers to adds that are alike, read as one: a bookie grants what it synced together, entry after entry.

One by one, the three answers to a small add would cost a client more than all else it does for it. Whatever is not alike
is left to :mod:`bookie_server.wire.rpc.quick`, which says the same of each.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bookie_server.wire.rpc import v2
from bookie_server.wire.rpc.frames import LENGTH_SIZE
from bookie_server.wire.rpc.quick import QuickAnswer, answer_at, places_in_v3
from bookie_server.wire.rpc.statuses import RpcStatus
from bookkeeper_metadata.model import ENTRY_ID_MAX

_FEW = 4
"""Answers that it takes less to read one by one than to make a table of."""
_TABLE_AT_FIRST, _TABLE_GROWTH = 16, 4
"""Rows: of a striped ledger few are alike, one behind the other, and a table of all the rest would be made for each few."""
_LAYOUTS_MAX = 256
_ID = struct.Struct(">q")
_ID_SIZE = _ID.size
"""Of version 2, at the end of an answer."""


class Answers(NamedTuple):
    """To adds that follow each other."""

    ledger_id: int | None
    """``None``: the numbers of version 3 say whose they are."""
    first: int
    """The first entry's id; of version 3 its number."""
    entries: int
    """How many."""
    status: RpcStatus
    end: int
    """Where the last of them ends in what was received."""


class _Layout(NamedTuple):
    """Of frames that differ by the add they are for alone."""

    mask: np.ndarray
    """The bits that are the same in all of them."""
    begin: int
    end: int
    """Where what counts up stands."""
    is_varint: bool

    def values(self, rows: np.ndarray) -> np.ndarray:
        """What counts up, of each row."""
        found = rows[:, self.begin : self.end]
        if not self.is_varint:
            return np.ascontiguousarray(found).view(">i8")[:, 0]
        shifts = 7 * np.arange(self.end - self.begin)
        values: np.ndarray = ((found & 0x7F).astype(np.int64) << shifts).sum(axis=1)
        return values


def answers_at(received: memoryview, at: int) -> Answers | None:
    """The answers to adds that start at ``at``, as many as are alike; ``None``: there is none that is seen at one look."""
    answer = answer_at(received, at)
    if answer is None:
        return None
    is_v2 = received[at + LENGTH_SIZE] == v2.VERSION
    first = answer.entry_id if is_v2 else answer.number
    count = _count(received, at, answer, first, is_v2=is_v2)
    ledger_id = answer.ledger_id if is_v2 else None
    return Answers(ledger_id, first, count, answer.status, at + count * (answer.end - at))


def _count(received: memoryview, at: int, answer: QuickAnswer, first: int, *, is_v2: bool) -> int:
    size = answer.end - at
    most = (len(received) - at) // size
    if most < _FEW or first > ENTRY_ID_MAX - most:
        return 1
    # Of the ledgers of many writers answers come mixed, and a table would be made for nothing.
    if is_v2 and _ID.unpack_from(received, at + _FEW * size - _ID_SIZE)[0] != first + _FEW - 1:
        return 1
    ahead = answer_at(received, at + (_FEW - 1) * size)
    if (
        ahead is None
        or (ahead.entry_id if is_v2 else ahead.number) != first + _FEW - 1
        or (ahead.ledger_id, ahead.status) != (answer.ledger_id, answer.status)
    ):
        return 1
    layout = _v2_layout(size) if is_v2 else _v3_layout(size, *places_in_v3(received, at))
    pattern = np.frombuffer(received, np.uint8, size, at)
    count, rows_max = 0, _TABLE_AT_FIRST
    while count < most:
        some = min(rows_max, most - count)
        rows = np.frombuffer(received, np.uint8, some * size, at + count * size)
        rows = rows.reshape(some, size)
        are_alike = ((rows ^ pattern) & layout.mask == 0).all(axis=1)
        are_alike &= layout.values(rows) == np.arange(first + count, first + count + some)
        if not are_alike.all():
            return count + int(are_alike.argmin())
        count += some
        rows_max *= _TABLE_GROWTH
    return count


@lru_cache(maxsize=1)
def _v2_layout(size: int) -> _Layout:
    mask = np.full(size, 0xFF, np.uint8)
    mask[-_ID_SIZE:] = 0
    return _Layout(mask, size - _ID_SIZE, size, is_varint=False)


@lru_cache(maxsize=_LAYOUTS_MAX)
def _v3_layout(size: int, number: tuple[int, int], entry: tuple[int, int]) -> _Layout:
    mask = np.full(size, 0xFF, np.uint8)
    for begin, end in (number, entry):
        # Where a varint ends is the same in all of them.
        mask[begin:end] = 0x80
    return _Layout(mask, *number, is_varint=True)
