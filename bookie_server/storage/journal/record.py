"""What the journal holds: entries as received, and the changes of ledger handle state.

On disk every record is ``int32 length`` and that many bytes, the first sixteen of which are a ledger
id and an entry id. Records that are not entries use Apache's reserved negative entry ids
(``BookieImpl.METAENTRY_ID_*``), so no entry can pass for one: the wire refuses negative ids.
Below Apache's there are some of our own: tombstones, entries that replace damaged ones, drops, and
the journal's word about itself, ``Roll``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

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
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.record import (
    LENGTH_SIZE,
    RECORD_OVERHEAD,
    MalformedRecordsError,
    Run,
    compact_ids,
    parse_run,
)
from bookkeeper_metadata.model import ENTRY_ID_MAX

MASTER_KEY_ID = -0x1000
FENCE_ID = -0x2000
EXPLICIT_LAC_ID = -0x8000
TOMBSTONE_ID = -0x10000
"""Ours; Apache's journals know no tombstones."""
ROLL_ID = -0x20000
"""Ours as well; since format 2."""
REPLACE_ID = -0x40000
"""Ours as well; since format 2."""
DROP_ID = -0x80000
"""Ours as well; since format 2."""

_HEAD = struct.Struct(">iqq")
_LENGTH = struct.Struct(">i")
_LEDGER = struct.Struct(">q")
_MIXED_STRETCH = 64
"""Records parsed one by one before a uniform run is looked for again."""


class MalformedBodyError(ValueError):
    """The group passes its checksum but holds no records: a defect, or a foreign format."""


@dataclass(frozen=True, slots=True)
class Roll:
    """The last record of a journal file: it goes on in file ``next_file_id``, which exists."""

    next_file_id: int


def encode_record(record: JournalRecord | Roll) -> Buffer:
    """Encode a record; for an add these are the bytes of its run, not copied."""
    match record:
        case Add(run):
            return run.data
        case Replace(run):
            return _encode_state(run.ledger_id, REPLACE_ID, bytes(run.data))
        case MasterKey(ledger_id, key):
            return _encode_state(ledger_id, MASTER_KEY_ID, _LENGTH.pack(len(key)) + key)
        case Fence(ledger_id):
            return _encode_state(ledger_id, FENCE_ID, b"")
        case ExplicitLac(ledger_id, packet):
            return _encode_state(ledger_id, EXPLICIT_LAC_ID, _LENGTH.pack(len(packet)) + packet)
        case Tombstone(first_ledger, last_ledger):
            return _encode_state(first_ledger, TOMBSTONE_ID, _LEDGER.pack(last_ledger))
        case Drop(ledger_id):
            return _encode_state(ledger_id, DROP_ID, b"")
        case Roll(next_file_id):
            return _encode_state(next_file_id, ROLL_ID, b"")


def _encode_state(ledger_id: int, entry_id: int, content: bytes) -> bytes:
    return _HEAD.pack(_HEAD.size - LENGTH_SIZE + len(content), ledger_id, entry_id) + content


def decode_records(body: memoryview) -> Iterator[JournalRecord | Roll]:
    """The records of a group's body, in order; neighbouring entries of a ledger come as one run.

    Raises:
        MalformedBodyError: the bytes are not a sequence of records.
    """
    at, end = 0, len(body)
    while at < end:
        size, ledger_id, entry_id = _head_at(body, at, end)
        if entry_id < 0:
            # Copied: a handle state lives on, and a view of it
            # would keep the whole group in memory.
            content = bytes(body[at + _HEAD.size : at + LENGTH_SIZE + size])
            yield _decode_state(ledger_id, entry_id, content)
            at += LENGTH_SIZE + size
            continue
        run = _uniform_run(body, at, end) or _mixed_run(body, at, end)
        yield Add(run)
        at += run.size_bytes


def _head_at(body: memoryview, at: int, end: int) -> tuple[int, int, int]:
    if end - at < _HEAD.size:
        raise MalformedBodyError(f"{end - at} bytes behind the last record")
    size, ledger_id, entry_id = _HEAD.unpack_from(body, at)
    # An entry has at least its 32 bytes of header; a state's record may end behind the two ids.
    smallest = RECORD_OVERHEAD - LENGTH_SIZE if entry_id >= 0 else _HEAD.size - LENGTH_SIZE
    if not smallest <= size <= end - at - LENGTH_SIZE:
        raise MalformedBodyError(f"impossible record length {size} at offset {at}")
    return size, ledger_id, entry_id


def _decode_state(ledger_id: int, entry_id: int, content: bytes) -> JournalRecord | Roll:
    match entry_id:
        # Numbers, since a bare name in a pattern would match anything. The sizes have to fit as
        # well: a record that is half understood must not pass for a fence or a key.
        case -0x2000 if not content:
            return Fence(ledger_id)
        case -0x1000 | -0x8000 if len(content) >= _LENGTH.size:
            value = content[_LENGTH.size :]
            if _LENGTH.unpack_from(content)[0] == len(value):
                kind = MasterKey if entry_id == MASTER_KEY_ID else ExplicitLac
                return kind(ledger_id, value)
        case -0x10000 if len(content) == _LEDGER.size:
            return Tombstone(ledger_id, _LEDGER.unpack(content)[0])
        case -0x20000 if not content:
            # The place of the ledger id is all it needs.
            return Roll(ledger_id)
        case -0x40000 if (run := _replacing_run(content)).ledger_id == ledger_id:
            return Replace(run)
        case -0x80000 if not content:
            return Drop(ledger_id)
    raise MalformedBodyError(f"unknown record; entry_id={entry_id} size_bytes={len(content)}")


def _replacing_run(content: bytes) -> Run:
    try:
        return parse_run(content)
    except MalformedRecordsError as cause:
        raise MalformedBodyError(f"replacing records: {cause}") from cause


def _uniform_run(body: memoryview, at: int, end: int) -> Run | None:
    """Find records of one size and equal id distances in bulk; ``None`` if fewer than 3 begin at ``at``."""
    size, ledger_id, first = _HEAD.unpack_from(body, at)
    stride = LENGTH_SIZE + size
    if end - at < 3 * stride:
        return None
    second_size, second_ledger, second = _HEAD.unpack_from(body, at + stride)
    step = second - first
    # Ids must ascend within a run; entries journalled out of order become runs of their own.
    if (second_size, second_ledger) != (size, ledger_id) or step <= 0:
        return None
    layout = np.dtype(
        [("size", ">i4"), ("ledger", ">i8"), ("entry", ">i8"), ("rest", f"V{stride - 20}")]
    )
    # Beyond 2^63-1 the expected ids would wrap around and take a state's record for an entry.
    available = min((end - at) // stride, (ENTRY_ID_MAX - first) // step + 1)
    count, window = 2, 8
    # Windows double, so that a short run among others never costs a look at the whole body.
    while count < available:
        n = min(window, available - count)
        table = np.frombuffer(body, layout, n, at + count * stride)
        expected = first + step * np.arange(count, count + n)
        fits = (
            (table["size"] == size) & (table["ledger"] == ledger_id) & (table["entry"] == expected)
        )
        if not fits.all():
            count += int(fits.argmin())
            break
        count += n
        window *= 2
    if count < 3:
        return None
    return Run(
        ledger_id,
        range(first, first + step * count, step),
        range(0, count * stride, stride),
        body[at : at + count * stride],
    )


def _mixed_run(body: memoryview, begin: int, end: int) -> Run:
    ids: list[int] = []
    offsets: list[int] = []
    at = begin
    ledger_id = _HEAD.unpack_from(body, begin)[1]
    while at < end and len(ids) < _MIXED_STRETCH:
        size, ledger, entry_id = _head_at(body, at, end)
        if ledger != ledger_id or entry_id < 0 or (ids and entry_id <= ids[-1]):
            break
        ids.append(entry_id)
        offsets.append(at - begin)
        at += LENGTH_SIZE + size
    return Run(ledger_id, compact_ids(ids), offsets, body[begin:at])
