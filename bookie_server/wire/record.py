"""The record: one encoding of an entry, in frames, journals, entry logs and read replies alike.

    record = int32 length · entry          (big-endian; length counts the entry only)
    entry  = int64 ledger id · int64 entry id · int64 LAC · int64 length · digest · payload

``length`` in the entry is cumulative: payload bytes of the ledger up to and including this entry.
A *run* is records of one ledger in ascending entry order, back to back. It is parsed once on
arrival and never re-encoded: everything downstream slices the bytes as received.
Source of the entry layout: Apache ``DigestManager.computeDigestAndPackageForSending``.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bookie_server.wire.buffer import Buffer
from bookie_server.wire.digest import Crc32cDigest, Crc32Digest, Digest
from bookie_server.wire.limits import ENTRY_SIZE_MAX
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import ENTRY_ID_MAX

LENGTH_SIZE = 4
HEADER_SIZE = 32
RECORD_OVERHEAD = LENGTH_SIZE + HEADER_SIZE
"""Bytes of a record besides digest and payload."""

_SHARED_FROM = 4096
"""Bytes of a payload from which it costs more to copy it than to look at it where it is."""
_FEW = 24
"""Records that it takes less to look at one by one than to make a table of."""
_LAYOUTS_MAX = 256
"""Layouts of records kept; those of most writers are few."""
RECORD_HEAD = struct.Struct(">iqqqq")
"""Length and header: what comes in front of the digest."""
_IDS = struct.Struct(">iqq")
_LAC_PACKET = struct.Struct(">qq")
_CUMULATIVE = struct.Struct(">28xq")


class MalformedRecordsError(ValueError):
    """The bytes are not a run of records of one ledger."""


@dataclass(frozen=True, slots=True)
class Run:
    """Records of one ledger, ascending by entry id, as received.

    Ids and offsets are ``range`` objects wherever records are consecutive and of one size, so a run
    of a thousand small entries costs no more than a run of one.
    """

    ledger_id: int
    entry_ids: Sequence[int]
    offsets: Sequence[int]
    """Where each record starts in ``data``."""
    data: bytes | memoryview

    @property
    def first_entry(self) -> int:
        return self.entry_ids[0]

    @property
    def last_entry(self) -> int:
        return self.entry_ids[-1]

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def __len__(self) -> int:
        return len(self.entry_ids)

    def end_of(self, index: int) -> int:
        """The offset just behind record ``index``."""
        return self.offsets[index + 1] if index + 1 < len(self.offsets) else len(self.data)

    def slice(self, start: int, stop: int) -> Run:
        """Records ``start`` up to, not including, ``stop``; shares the bytes."""
        invariant(0 <= start < stop <= len(self.entry_ids), "a slice of a run holds a record")
        if start == 0 and stop == len(self.entry_ids):
            return self
        begin, end = self.offsets[start], self.end_of(stop - 1)
        return Run(
            self.ledger_id,
            self.entry_ids[start:stop],
            _shifted(self.offsets[start:stop], begin),
            memoryview(self.data)[begin:end],
        )

    def between(self, first_entry: int, last_entry: int) -> Run | None:
        """The records with ids in ``first_entry..last_entry``; ``None`` if the run has none of them."""
        start = bisect_left(self.entry_ids, first_entry)
        stop = bisect_left(self.entry_ids, last_entry + 1)
        return self.slice(start, stop) if start < stop else None

    def without(self, is_taken: Callable[[int], bool]) -> list[Run]:
        """The parts of the run that are left when the records of all taken ids are cut out."""
        parts: list[Run] = []
        begin = 0
        for at, entry_id in enumerate(self.entry_ids):
            if is_taken(entry_id):
                if begin < at:
                    parts.append(self.slice(begin, at))
                begin = at + 1
        return [*parts, self.slice(begin, len(self))] if begin < len(self) else parts

    def record(self, index: int) -> memoryview:
        """The bytes of record ``index``, its length prefix included."""
        return memoryview(self.data)[self.offsets[index] : self.end_of(index)]

    def last_add_confirmed(self) -> int:
        """The LAC of the last record, the highest one: writers never let it fall.

        Where Apache's re-replication packaged some of the entries anew it may fall; then less is known
        than could be.
        """
        return int(RECORD_HEAD.unpack_from(self.data, self.offsets[-1])[3])


def _shifted(offsets: Sequence[int], by: int) -> Sequence[int]:
    if isinstance(offsets, range):
        return range(offsets.start - by, offsets.stop - by, offsets.step)
    return [offset - by for offset in offsets]


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The 32 bytes in front of every entry."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int


def parse_header(record: bytes | memoryview, offset: int = 0) -> EntryHeader:
    """The header of the record that starts at ``offset``."""
    _, ledger_id, entry_id, lac, length = RECORD_HEAD.unpack_from(record, offset)
    return EntryHeader(ledger_id, entry_id, lac, length)


def length_of(data: bytes | memoryview, offset: int) -> int:
    """The cumulative length in the header of the record that starts at ``offset``."""
    return int(_CUMULATIVE.unpack_from(data, offset)[0])


def encode_lac_packet(digest: Digest, ledger_id: int, last_add_confirmed: int) -> bytes:
    """An explicit LAC as its writer signs it: int64 ledger id, int64 LAC, digest of both.

    Source: Apache ``DigestManager.computeDigestAndPackageForSendingLac``.
    """
    header = _LAC_PACKET.pack(ledger_id, last_add_confirmed)
    return header + digest.compute(header, b"")


def parse_lac_packet(packet: bytes, digest: Digest, ledger_id: int) -> int | None:
    """The LAC of a packet; ``None`` when it is damaged, another ledger's or an impossible one."""
    header, stored = packet[: _LAC_PACKET.size], packet[_LAC_PACKET.size :]
    if len(header) != _LAC_PACKET.size or not digest.verifies(header, stored, b""):
        return None
    found_id, last_add_confirmed = _LAC_PACKET.unpack(header)
    return last_add_confirmed if found_id == ledger_id and last_add_confirmed >= -1 else None


def is_possible_lac_packet(packet: bytes, ledger_id: int) -> bool:
    """Whether the packet may be genuine, as far as a bookie can see without the ledger's password.

    The packet's size gives its digest type away, and CRC-32C and CRC-32 need no password to check.
    """
    for digest in (Crc32cDigest(), Crc32Digest()):
        if len(packet) == _LAC_PACKET.size + digest.size:
            return parse_lac_packet(packet, digest, ledger_id) is not None
    if len(packet) < _LAC_PACKET.size:
        return False
    found_id, last_add_confirmed = _LAC_PACKET.unpack_from(packet)
    return bool(found_id == ledger_id and last_add_confirmed >= -1)


def parse_run(data: bytes | memoryview, entries_max: int | None = None) -> Run:
    """Find the records of a non-empty run: ascending ids of one ledger, at most ``entries_max``.

    Raises:
        MalformedRecordsError: the bytes are anything else.
    """
    if len(data) < RECORD_OVERHEAD:
        raise MalformedRecordsError(f"{len(data)} bytes hold no record")
    run = uniform_run(data) or _parse_mixed(data, entries_max)
    if entries_max is not None and len(run) > entries_max:
        raise MalformedRecordsError(f"a run of {len(run)} records")
    return run


def uniform_run(data: bytes | memoryview) -> Run | None:
    """The records as :func:`parse_run` finds them, all at once; ``None`` unless they have one size and consecutive ids."""
    if len(data) < RECORD_OVERHEAD:
        return None
    size, ledger_id, first_entry = _IDS.unpack_from(data, 0)
    stride = LENGTH_SIZE + size
    # The size is a peer's word: it is checked before it becomes the stride of a table.
    if not HEADER_SIZE <= size <= ENTRY_SIZE_MAX or len(data) % stride:
        return None
    count = len(data) // stride
    # Beyond the largest id numpy would go on in floats, where neighbours are equal.
    if first_entry > ENTRY_ID_MAX - count:
        return None
    if count <= _FEW:
        for at in range(1, count):
            if _IDS.unpack_from(data, at * stride) != (size, ledger_id, first_entry + at):
                return None
    else:
        table = np.frombuffer(data, layout(stride))
        if not (
            (table["size"] == size).all()
            and (table["ledger"] == ledger_id).all()
            and (table["entry"] == np.arange(first_entry, first_entry + count)).all()
        ):
            return None
    return Run(
        ledger_id, range(first_entry, first_entry + count), range(0, len(data), stride), data
    )


@lru_cache(maxsize=_LAYOUTS_MAX)
def layout(stride: int) -> np.dtype[np.void]:
    """The fields of records that are so long, digest and payload in one; to describe them costs more than to read a section's."""
    fields = [
        ("size", ">i4"),
        ("ledger", ">i8"),
        ("entry", ">i8"),
        ("lac", ">i8"),
        ("length", ">i8"),
    ]
    return np.dtype([*fields, ("rest", f"V{stride - RECORD_OVERHEAD}")])


def _parse_mixed(data: bytes | memoryview, entries_max: int | None) -> Run:
    ids: list[int] = []
    offsets: list[int] = []
    ledger_id = _IDS.unpack_from(data, 0)[1]
    offset, end = 0, len(data)
    while offset < end:
        if end - offset < RECORD_OVERHEAD:
            raise MalformedRecordsError(f"{end - offset} bytes behind the last record")
        size, ledger, entry_id = _IDS.unpack_from(data, offset)
        if not HEADER_SIZE <= size <= min(ENTRY_SIZE_MAX, end - offset - LENGTH_SIZE):
            raise MalformedRecordsError(f"impossible record length {size} at offset {offset}")
        if ledger != ledger_id:
            raise MalformedRecordsError(
                f"a run of ledger {ledger_id} holds a record of ledger {ledger}"
            )
        if ids and entry_id <= ids[-1]:
            raise MalformedRecordsError(f"entry {entry_id} follows entry {ids[-1]}")
        if len(ids) == entries_max:
            raise MalformedRecordsError(f"a run of more than {entries_max} records")
        ids.append(entry_id)
        offsets.append(offset)
        offset += LENGTH_SIZE + size
    return Run(ledger_id, compact_ids(ids), offsets, data)


def compact_ids(ids: Sequence[int]) -> Sequence[int]:
    """The same ids, as a ``range`` where they are consecutive."""
    return range(ids[0], ids[-1] + 1) if ids[-1] - ids[0] + 1 == len(ids) else ids


def headers_are_possible(run: Run, *, may_know_itself: bool) -> bool:
    """Whether LAC and length of every record may be a writer's, as far as its header shows.

    A writer cannot know an entry confirmed before it is stored; ``may_know_itself`` allows that to
    those who package entries anew.
    """
    if isinstance(run.offsets, range) and len(run) > _FEW:
        table = np.frombuffer(run.data, layout(run.offsets.step))
        lacs = table["lac"]
        if lacs.min() < -1 or table["length"].min() < 0:
            return False
        # Of a writer's next entries none is confirmed yet: no need to look at each of them.
        if may_know_itself or lacs.max() < run.first_entry:
            return True
        ids = np.arange(run.first_entry, run.first_entry + len(run))
        return not bool((lacs >= ids).any())
    for offset in run.offsets:
        _, _, entry_id, lac, length = RECORD_HEAD.unpack_from(run.data, offset)
        if lac < -1 or length < 0 or (lac >= entry_id and not may_know_itself):
            return False
    return True


def smallest_record(run: Run) -> int:
    """Bytes of the smallest record of the run."""
    if isinstance(run.offsets, range):
        return len(run.data) // len(run)
    return min(run.end_of(index) - offset for index, offset in enumerate(run.offsets))


def run_verifies(run: Run, digest: Digest) -> bool:
    """Whether every record of the run matches its digest."""
    return first_unverified(run, digest) is None


def first_unverified(run: Run, digest: Digest) -> int | None:
    """Index of the first record whose digest does not match; ``None`` when all do."""
    if (parts := _parts_of_each(run, digest.size, digest.format)) is not None:
        return digest.first_unverified_unpacked(parts.iter_unpack(run.data))
    return digest.first_unverified(_split_each(run, digest.size))


def split_records(run: Run, digest_size: int) -> Iterator[tuple[bytes, bytes, Buffer]]:
    """Split each record into ``(header, digest, payload)``; large payloads are shared with the run.

    Where a record is too short for a digest, what it has of one is returned; that never verifies.
    """
    if (parts := _parts_of_each(run, digest_size, f"{digest_size}s")) is not None:
        return parts.iter_unpack(run.data)
    return _split_each(run, digest_size)


def _parts_of_each(run: Run, digest_size: int, digest_format: str) -> struct.Struct | None:
    """What takes all records of the run apart, with no arithmetic for each; ``None``: they differ, or are large."""
    if isinstance(run.offsets, range):
        payload_size = run.offsets.step - RECORD_OVERHEAD - digest_size
        if 0 <= payload_size < _SHARED_FROM:
            return _parts_of_record(digest_format, payload_size)
    return None


@lru_cache(maxsize=_LAYOUTS_MAX)
def _parts_of_record(digest_format: str, payload_size: int) -> struct.Struct:
    return struct.Struct(f">4x{HEADER_SIZE}s{digest_format}{payload_size}s")


def _split_each(run: Run, digest_size: int) -> Iterator[tuple[bytes, bytes, Buffer]]:
    data = memoryview(run.data)
    for index, offset in enumerate(run.offsets):
        at = offset + RECORD_OVERHEAD
        end = run.end_of(index)
        payload = data[at + digest_size : end]
        yield (
            bytes(data[offset + LENGTH_SIZE : at]),
            bytes(data[at : min(at + digest_size, end)]),
            payload if len(payload) >= _SHARED_FROM else bytes(payload),
        )
