"""One change of a directory's index, and its bytes: items of tag, length and content.

A delta is what one checkpoint adds. A snapshot is the same kind of thing, only with everything in
it, spread over several groups.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from itertools import chain, starmap

from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.logs.id_pattern import IdPattern, PatternIds, patterns_of
from bookie_server.storage.logs.rows import ROW_SIZE, are_possible
from bookie_server.wire.buffer import Buffer

_ITEM = struct.Struct(">BI")
_STATE = struct.Struct(">qqHHB")
_MARK = struct.Struct(">Hqqq")
_LEDGER = struct.Struct(">q")
_RANGE = struct.Struct(">qq")
_PATTERN = struct.Struct(">qqqq")
_COUNT = struct.Struct(">I")
_PLACE = struct.Struct(">qq")
_STATE_TAG, _MARK_TAG, _HANDLE_TAG, _ROWS_TAG, _TOMBSTONE_TAG, _REPLACED_TAG = 1, 2, 3, 4, 5, 6
_MOVED_TAG, _DROPPED_TAG = 7, 8
_MOVED_HEAD_SIZE = _LEDGER.size + _COUNT.size
_DAMAGED = 1
_GROUP_BODY_SIZE = 4 * 1024 * 1024
_REPLACED_IDS_MAX = 1 << 20
"""Most ids of one pattern: those of a record that replaces entries are far fewer, and each is looked for in the rows."""


class MalformedDeltaError(ValueError):
    """The group passes its checksum but holds no delta: a defect, or a foreign format."""


@dataclass(frozen=True, slots=True)
class IndexState:
    """What a directory's index says about the whole bookie, in the order of its fields on disk.

    The newest delta's state holds.
    """

    checkpoint: int
    """Number of the checkpoint that wrote it, counted over the bookie's life."""
    last_log_id: int
    """Highest entry log the directory's rows may name."""
    journal_count: int
    directory_count: int
    is_damaged: bool
    """Records may have been lost, and it is not known yet of which ledgers."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Entries of one ledger that were copied to other places."""

    places: tuple[tuple[int, int], ...]
    """Log id and offset of the blocks they were in."""
    rows: bytes
    """Packed rows, ascending: where they are now, as far as a row still named one of the places."""


@dataclass(slots=True)
class IndexDelta:
    """What a checkpoint changes in one directory."""

    state: IndexState
    marks: dict[int, GroupEnd]
    """Per journal: every record before it is in entry logs and indexes, and needs no replay."""
    handles: dict[int, bytes] = field(default_factory=dict)
    tombstones: list[tuple[int, int]] = field(default_factory=list)
    rows: dict[int, bytes] = field(default_factory=dict)
    """Packed rows per ledger, ascending."""
    replaced: dict[int, list[Sequence[int]]] = field(default_factory=dict)
    """Per ledger: ids that no row before this delta stands for any more. In a snapshot they are gone
    from the rows."""
    dropped: Collection[int] = ()
    """Ledgers of which no row before this delta counts any more; in a snapshot they have none."""
    moved: dict[int, Moved] = field(default_factory=dict)
    """Per ledger, behind everything else."""


def encode_delta(delta: IndexDelta) -> list[Buffer]:
    """Encode a delta as the body of one group."""
    # One group: a delta counts whole or not at all. A snapshot may be cut up,
    # because its file gets its name only when all of it is synced.
    return list(_items(delta))


def encode_snapshot(
    delta: IndexDelta, rows: Iterable[tuple[int, bytes]] = ()
) -> Iterator[list[Buffer]]:
    """Encode a delta, and further ``rows`` behind it, as the bodies of several groups of bounded size."""
    body: list[Buffer] = []
    size = 0
    further = (_item(_ROWS_TAG, _LEDGER.pack(ledger_id) + packed) for ledger_id, packed in rows)
    for item in chain(_items(delta), further):
        if body and size + len(item) > _GROUP_BODY_SIZE:
            yield body
            body, size = [], 0
        body.append(item)
        size += len(item)
    yield body


def _items(delta: IndexDelta) -> Iterator[bytes]:
    *counts, is_damaged = astuple(delta.state)
    yield _item(_STATE_TAG, _STATE.pack(*counts, _DAMAGED * is_damaged))
    for journal_index, end in delta.marks.items():
        yield _item(_MARK_TAG, _MARK.pack(journal_index, *astuple(end)))
    for ledger_id, content in delta.handles.items():
        yield _item(_HANDLE_TAG, _LEDGER.pack(ledger_id) + content)
    for first, last in delta.tombstones:
        yield _item(_TOMBSTONE_TAG, _RANGE.pack(first, last))
    for ledger_id, parts in delta.replaced.items():
        patterns = [astuple(pattern) for ids in parts for pattern in patterns_of(ids)]
        packed = b"".join(_PATTERN.pack(*pattern) for pattern in patterns)
        yield _item(_REPLACED_TAG, _LEDGER.pack(ledger_id) + packed)
    if delta.dropped:
        yield _item(_DROPPED_TAG, b"".join(map(_LEDGER.pack, delta.dropped)))
    for ledger_id, packed in delta.rows.items():
        yield _item(_ROWS_TAG, _LEDGER.pack(ledger_id) + packed)
    for ledger_id, moves in delta.moved.items():
        places = b"".join(_PLACE.pack(*place) for place in moves.places)
        head = _LEDGER.pack(ledger_id) + _COUNT.pack(len(moves.places))
        yield _item(_MOVED_TAG, head + places + moves.rows)


def _item(tag: int, content: bytes) -> bytes:
    return _ITEM.pack(tag, len(content)) + content


def decode_delta(body: memoryview, previous: IndexState) -> IndexDelta:
    """The inverse of ``encode_delta``; a snapshot's later groups carry no state of their own.

    Raises:
        MalformedDeltaError: the bytes are something else.
    """
    delta = IndexDelta(previous, {})
    at = 0
    while at < len(body):
        if len(body) - at < _ITEM.size:
            raise MalformedDeltaError("bytes behind the last item")
        tag, size = _ITEM.unpack_from(body, at)
        at += _ITEM.size
        if size > len(body) - at:
            raise MalformedDeltaError(f"item longer than its group; tag={tag}")
        _decode_item(delta, tag, bytes(body[at : at + size]))
        at += size
    return delta


def _decode_item(delta: IndexDelta, tag: int, content: bytes) -> None:
    match tag:
        # Numbers, since a bare name in a pattern would match anything. An unknown
        # tag is an error: to skip it could mean to lose a fence.
        case 1 if len(content) == _STATE.size:
            checkpoint, log_id, journals, directories, flags = _STATE.unpack(content)
            delta.state = IndexState(
                checkpoint, log_id, journals, directories, bool(flags & _DAMAGED)
            )
        case 2 if len(content) == _MARK.size:
            journal_index, *end = _MARK.unpack(content)
            delta.marks[journal_index] = GroupEnd(*end)
        case 3 if len(content) > _LEDGER.size:
            delta.handles[_LEDGER.unpack_from(content)[0]] = content[_LEDGER.size :]
        case 4 if len(content) > _LEDGER.size and (len(content) - _LEDGER.size) % ROW_SIZE == 0:
            delta.rows[_LEDGER.unpack_from(content)[0]] = _checked_rows(content[_LEDGER.size :])
        case 5 if len(content) == _RANGE.size:
            delta.tombstones.append(_RANGE.unpack(content))
        case 6 if (len(content) - _LEDGER.size) % _PATTERN.size == 0:
            patterns = starmap(IdPattern, _PATTERN.iter_unpack(content[_LEDGER.size :]))
            delta.replaced[_LEDGER.unpack_from(content)[0]] = list(map(_ids_of, patterns))
        case 7 if len(content) >= _MOVED_HEAD_SIZE:
            ledger_id, moves = _decode_moved(content)
            delta.moved[ledger_id] = moves
        case 8 if len(content) % _LEDGER.size == 0:
            delta.dropped = [ledger_id for (ledger_id,) in _LEDGER.iter_unpack(content)]
        case _:
            raise MalformedDeltaError(f"unknown item; tag={tag} size_bytes={len(content)}")


def _ids_of(pattern: IdPattern) -> Sequence[int]:
    """The ids of a pattern that a disk says, in no more memory than that takes."""
    if not pattern.is_possible or pattern.size * pattern.count > _REPLACED_IDS_MAX:
        raise MalformedDeltaError(f"no ids that are replaced; {pattern}")
    return pattern.ids() if 1 in (pattern.size, pattern.count) else PatternIds(pattern)


def _decode_moved(content: bytes) -> tuple[int, Moved]:
    (count,) = _COUNT.unpack_from(content, _LEDGER.size)
    end = _MOVED_HEAD_SIZE + count * _PLACE.size
    if end > len(content) or (len(content) - end) % ROW_SIZE:
        raise MalformedDeltaError(f"moves of {len(content)} bytes; count={count}")
    places = tuple(_PLACE.iter_unpack(content[_MOVED_HEAD_SIZE:end]))
    return _LEDGER.unpack_from(content)[0], Moved(places, _checked_rows(content[end:]))


def _checked_rows(packed: bytes) -> bytes:
    if not are_possible(packed):
        raise MalformedDeltaError("rows of blocks that there cannot be")
    return packed
