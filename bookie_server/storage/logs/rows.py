"""Rows of the index: which block of which entry log holds which entries of a ledger.

The spans of a ledger's rows never overlap; a late entry inside a row's span splits the row, so
that lookup is one bisection. Rows are kept packed, 48 bytes each: a bookie with a terabyte in
64 KiB blocks has sixteen million of them.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bookie_server.storage.logs.id_pattern import IdPattern, patterns_of
from bookie_server.wire.record import RECORD_OVERHEAD
from bookkeeper_metadata.model import ENTRY_ID_MAX

_ROW = struct.Struct(">qIIIIqqII")
ROW_SIZE = _ROW.size
_START = struct.Struct(">q")
_PATTERN = struct.Struct(">qIII")
_LOG_ID = struct.Struct(">q")
_BLOCK_PLACE = struct.Struct(">qqI")
_LOG_ID_AT = 24
_PIECE_SIZE = 8192 * ROW_SIZE
"""Looked at in one step, which keeps all other threads waiting."""
_FEW_ROWS = 8
"""So many are looked at one by one sooner than all at once."""
_LAYOUT = np.dtype(
    [
        ("start", ">i8"),
        *((name, ">u4") for name in ("size", "period", "count", "entry_count")),
        ("log_id", ">i8"),
        ("offset", ">i8"),
        ("size_bytes", ">u4"),
        ("checksum", ">u4"),
    ]
)


_Rows = npt.NDArray[np.void]
_Flags = npt.NDArray[np.bool_]


# Tuples, since a read of a MiB makes seventeen of each: they are made in a third of the time.
class Block(NamedTuple):
    """Records of one ledger, back to back, in an entry log."""

    log_id: int
    offset: int
    size_bytes: int
    checksum: int
    """CRC-32C of its bytes."""
    entry_count: int
    """Entries in the block; a row may stand for fewer of them."""


class Row(NamedTuple):
    """Some entries of a block: all of them, unless late entries split the row."""

    pattern: IdPattern
    block: Block

    @property
    def entry_ids(self) -> Sequence[int]:
        """The ids the row stands for, ascending."""
        return self.pattern.ids()


def pack_row(row: Row) -> bytes:
    """The row as 48 bytes."""
    pattern, block = row.pattern, row.block
    ids = pattern.start, pattern.size, pattern.period, pattern.count
    place = block.log_id, block.offset, block.size_bytes, block.checksum
    return _ROW.pack(*ids, block.entry_count, *place)


def unpack_row(packed: bytes | bytearray | memoryview, offset: int = 0) -> Row:
    """The inverse of ``pack_row``."""
    *ids, entry_count, log_id, at, size, checksum = _ROW.unpack_from(packed, offset)
    return Row(IdPattern(*ids), Block(log_id, at, size, checksum, entry_count))


def are_possible(packed: bytes | memoryview) -> bool:
    """Whether a checkpoint may have written each of these rows; the numbers are a disk's, and ids are made of them."""
    if len(packed) > _FEW_ROWS * ROW_SIZE:
        pieces = (packed[at : at + _PIECE_SIZE] for at in range(0, len(packed), _PIECE_SIZE))
        return all(map(_are_possible, pieces))
    # Without values made of them: a start does this for every ledger.
    return all(
        start >= 0
        and size >= 1
        and count >= 1
        and (count == 1 or period >= size)
        and size * count <= entry_count
        and entry_count * RECORD_OVERHEAD <= size_bytes
        and start + period * (count - 1) + size - 1 <= ENTRY_ID_MAX
        for start, size, period, count, entry_count, _, _, size_bytes, _ in _ROW.iter_unpack(packed)
    )


def _are_possible(packed: bytes | memoryview) -> bool:
    """The same of many at once."""
    rows = np.frombuffer(packed, _LAYOUT)
    names = ("size", "period", "count", "entry_count", "size_bytes")
    # Products of two of these have 64 bits, and no sign.
    size, period, count, entry_count, size_bytes = (rows[name].astype(np.uint64) for name in names)
    one = np.uint64(1)
    if not (size >= one).all() or not (count >= one).all() or rows["start"].min() < 0:
        return False
    behind = np.uint64(ENTRY_ID_MAX) - rows["start"].astype(np.uint64)
    return bool(
        (
            ((count == one) | (period >= size))
            & (size * count <= entry_count)
            & (entry_count * np.uint64(RECORD_OVERHEAD) <= size_bytes)
            & (period * (count - one) <= behind)
            & (size - one <= behind - np.minimum(period * (count - one), behind))
        ).all()
    )


class LedgerRows:
    """The rows of one ledger in one directory, ascending."""

    __slots__ = ("_packed",)

    def __init__(self, packed: bytes = b"") -> None:
        self._packed = bytearray(packed)

    def __len__(self) -> int:
        return len(self._packed) // ROW_SIZE

    def __getitem__(self, index: int) -> Row:
        return unpack_row(self._packed, index * ROW_SIZE)

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(len(self)))

    def packed(self) -> bytes:
        """All rows, packed."""
        return bytes(self._packed)

    def log_ids(self) -> set[int]:
        """The entry logs that the rows name."""
        # Many at once, where there are many: a start looks through those of all ledgers.
        if len(self) > _FEW_ROWS:
            found: set[int] = set()
            for at in range(0, len(self._packed), _PIECE_SIZE):
                rows = np.frombuffer(bytes(self._packed[at : at + _PIECE_SIZE]), _LAYOUT)
                found.update(np.unique(rows["log_id"].astype(np.int64)).tolist())
            return found
        return {
            _LOG_ID.unpack_from(self._packed, at)[0]
            for at in range(_LOG_ID_AT, len(self._packed), ROW_SIZE)
        }

    def shares(self) -> Iterator[tuple[int, int, int]]:
        """Log, bytes and number of the blocks that rows name, in pieces; for any thread.

        An estimate: the rows may change meanwhile, and a block that two pieces name counts twice.
        """
        for at in range(0, len(self._packed), _PIECE_SIZE):
            piece = bytes(self._packed[at : at + _PIECE_SIZE])
            if len(piece) <= _FEW_ROWS * ROW_SIZE:
                offsets = range(_LOG_ID_AT, len(piece), ROW_SIZE)
                for log_id, _, size_bytes in {
                    _BLOCK_PLACE.unpack_from(piece, at) for at in offsets
                }:
                    yield log_id, size_bytes, 1
                continue
            rows = np.frombuffer(piece, _LAYOUT)
            logs, places = (rows[name].astype(np.int64) for name in ("log_id", "offset"))
            # By place: of a ledger with interleaved ids rows of other blocks stand between two of one.
            order = np.lexsort((places, logs))
            rows, logs, places = rows[order], logs[order], places[order]
            is_first = np.ones(len(rows), bool)
            is_first[1:] = (logs[1:] != logs[:-1]) | (places[1:] != places[:-1])
            found, of_log = np.unique(logs[is_first], return_inverse=True)
            sizes = np.bincount(of_log, weights=rows["size_bytes"][is_first])
            counts = np.bincount(of_log)
            yield from zip(found.tolist(), map(int, sizes.tolist()), counts.tolist(), strict=True)

    @property
    def last_entry(self) -> int:
        # By itself: a checkpoint asks this of every ledger it wrote, on the loop's thread.
        at = len(self._packed) - ROW_SIZE
        start, size, period, count = _PATTERN.unpack_from(self._packed, at)
        return int(start + period * (count - 1) + size - 1)

    def between(self, first: int, last: int) -> Iterator[Row]:
        """Rows whose spans touch ``first..last``, ascending. The rows must not change meanwhile."""
        for index in range(self._first_index(first), len(self)):
            row = self[index]
            if row.pattern.start > last:
                return
            yield row

    def append_packed(self, packed: bytes | memoryview) -> bool:
        """Append ascending rows in bulk; ``False``, and nothing done, unless all lie behind the rest."""
        # Rows are ascending, so the first one decides for all of them.
        if len(self) and _START.unpack_from(packed)[0] <= self.last_entry:
            return False
        self._packed += packed
        return True

    def insert(self, row: Row) -> None:
        """Add a row for those of its ids that no row has yet; rows are split where they interleave."""
        if not len(self) or row.pattern.start > self.last_entry:
            self._packed += pack_row(row)
            return
        begin = self._first_index(row.pattern.start)
        olds = list(self.between(row.pattern.start, row.pattern.last))
        merged = _merge(olds, row)
        self._packed[begin * ROW_SIZE : (begin + len(olds)) * ROW_SIZE] = b"".join(
            map(pack_row, merged)
        )

    def remove(self, entry_ids: Sequence[int]) -> None:
        """Forget where these ascending ids are; rows that stand for others as well are split.

        In one step, for another thread may be copying the rows.
        """
        taken = set(entry_ids)
        begin = self._first_index(entry_ids[0])
        olds = list(self.between(entry_ids[0], entry_ids[-1]))
        left = [
            pack_row(Row(pattern, row.block))
            for row in olds
            if (ids := [id for id in row.entry_ids if id not in taken])
            for pattern in patterns_of(ids)
        ]
        self._packed[begin * ROW_SIZE : (begin + len(olds)) * ROW_SIZE] = b"".join(left)

    def move(self, places: Sequence[tuple[int, int]], new: LedgerRows) -> None:
        """Have what was in blocks at these places (log id, offset) be where ``new`` says; of entries
        that are no longer there, nothing.

        ``new`` stands for whatever rows stood for when the blocks were copied.
        """
        begin, end = self._between_logs({log_id for log_id, _ in places})
        if begin == end:
            return
        part = LedgerRows(bytes(self._packed[begin:end]))
        few = part._move_few(places, new) if len(part) + len(new) <= _FEW_ROWS else None
        # In one step, for another thread may be copying the rows.
        self._packed[begin:end] = part._move_many(places, new) if few is None else few

    def _between_logs(self, log_ids: set[int]) -> tuple[int, int]:
        """Where the rows of these logs, and all between them, begin and end."""
        if len(self) <= _FEW_ROWS:
            return 0, len(self._packed)
        logs = np.frombuffer(self.packed(), _LAYOUT)["log_id"].astype(np.int64)
        found = np.flatnonzero(np.isin(logs, list(log_ids)))
        return (int(found[0]) * ROW_SIZE, int(found[-1] + 1) * ROW_SIZE) if len(found) else (0, 0)

    def _move_few(self, places: Sequence[tuple[int, int]], new: LedgerRows) -> bytes | None:
        """The rows as they are then; ``None`` where they are not as they were when they were copied."""
        wanted = set(places)
        left: list[Row] = []
        gone_count = 0
        for row in self:
            if (row.block.log_id, row.block.offset) in wanted:
                gone_count += len(row.pattern)
            else:
                left.append(row)
        added = list(new)
        if gone_count != sum(len(row.pattern) for row in added):
            return None
        merged = sorted([*left, *added], key=lambda row: row.pattern.start)
        if any(row.pattern.last >= then.pattern.start for row, then in pairwise(merged)):
            return None
        return b"".join(map(pack_row, merged))

    def _move_many(self, places: Sequence[tuple[int, int]], new: LedgerRows) -> bytes:
        rows = np.frombuffer(self.packed(), _LAYOUT)
        is_moved = _is_at(rows, places)
        left, gone = rows[~is_moved], rows[is_moved]
        added = np.frombuffer(new.packed(), _LAYOUT)
        # Rows lose ids and never win any: as many as then are the same ones.
        if _id_count(gone) != _id_count(added):
            there = {id for row in LedgerRows(gone.tobytes()) for id in row.entry_ids}
            added = np.frombuffer(new._only(there), _LAYOUT)
        merged = np.concatenate([left, added])
        # By numbers: to sort the rows themselves takes ten times as long.
        merged = merged[np.argsort(merged["start"].astype(np.int64), kind="stable")]
        if (merged["start"][1:] > _lasts(merged)[:-1]).all():
            # Joined, they have the machine's byte order.
            return bytes(merged.astype(_LAYOUT).tobytes())
        interleaved = LedgerRows(left.tobytes())
        for row in LedgerRows(added.tobytes()):
            interleaved.insert(row)
        return interleaved.packed()

    def _only(self, wanted: set[int]) -> bytes:
        """The rows, packed, for those of their ids that are wanted."""
        return b"".join(
            pack_row(Row(pattern, row.block))
            for row in self
            if (ids := [id for id in row.entry_ids if id in wanted])
            for pattern in patterns_of(ids)
        )

    def _first_index(self, entry_id: int) -> int:
        """The index of the first row whose last entry is not below ``entry_id``."""
        at = bisect_right(range(len(self)), entry_id, key=self._start_of)
        return at - 1 if at and self[at - 1].pattern.last >= entry_id else at

    def _start_of(self, index: int) -> int:
        return int(_START.unpack_from(self._packed, index * ROW_SIZE)[0])


def _is_at(rows: _Rows, places: Sequence[tuple[int, int]]) -> _Flags:
    """Which of the rows name a block at one of the places."""
    found = np.zeros(len(rows), bool)
    logs, offsets = (rows[name].astype(np.int64) for name in ("log_id", "offset"))
    for log_id in {log_id for log_id, _ in places}:
        wanted = [offset for each, offset in places if each == log_id]
        found |= (logs == log_id) & np.isin(offsets, wanted)
    return found


def _lasts(rows: _Rows) -> npt.NDArray[np.int64]:
    """The last id of each row."""
    period, count, size = (rows[name].astype(np.int64) for name in ("period", "count", "size"))
    lasts: npt.NDArray[np.int64] = rows["start"] + period * (count - 1) + size - 1
    return lasts


def _id_count(rows: _Rows) -> int:
    return int((rows["size"].astype(np.int64) * rows["count"]).sum())


def _merge(olds: Sequence[Row], new: Row) -> list[Row]:
    """Cut ``olds``, and ``new`` without the ids they hold, into rows whose spans are disjoint."""
    # Of two copies the one that has a row stays; a rebuild
    # adds the copy it trusts most first.
    known = {entry_id for old in olds for entry_id in old.pattern.ids()}
    fresh: Sequence[int] = new.pattern.ids()
    if known.intersection(fresh):
        fresh = [entry_id for entry_id in fresh if entry_id not in known]
    pieces: list[tuple[Sequence[int], Block]] = []
    # By place: to cut off what is done would copy the rest for each piece.
    done = 0
    for old in olds:
        ids = old.pattern.ids()
        at = 0
        while at < len(ids) and done < len(fresh) and fresh[done] < ids[-1]:
            if fresh[done] < ids[at]:
                stop = bisect_left(fresh, ids[at], done)
                pieces.append((fresh[done:stop], new.block))
                done = stop
            else:
                stop = bisect_left(ids, fresh[done], at)
                pieces.append((ids[at:stop], old.block))
                at = stop
        if at < len(ids):
            pieces.append((ids[at:], old.block))
    if done < len(fresh):
        pieces.append((fresh[done:], new.block))
    return [Row(pattern, block) for ids, block in pieces for pattern in patterns_of(ids)]
