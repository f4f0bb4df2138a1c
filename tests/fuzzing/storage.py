"""Decoders of what a bookie reads from its disks: journals, indexes, entry logs, cookie files.

All of it stands behind checksums, which are made right again for most of the changed inputs.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from functools import cache, partial

from bookie_server.core.handle_state import LedgerHandleState
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
from bookie_server.storage.disk import group
from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.files import File, FileSystem
from bookie_server.storage.disk.group import GroupEnd, GroupFormat, StampedFormat
from bookie_server.storage.disk.group_reader import GroupReader, StampedGroupReader
from bookie_server.storage.disk.real_files import RealFile
from bookie_server.storage.identity import cookie_file
from bookie_server.storage.identity.cookie_file import (
    DirectoryCookie,
    DirectorySet,
    Member,
    Start,
)
from bookie_server.storage.index import header as index_header
from bookie_server.storage.index.delta import (
    IndexDelta,
    IndexState,
    MalformedDeltaError,
    Moved,
    decode_delta,
    encode_delta,
)
from bookie_server.storage.index.handle_state import decode_handle_state, encode_handle_state
from bookie_server.storage.journal import journal_file
from bookie_server.storage.journal.record import (
    MalformedBodyError,
    Roll,
    decode_records,
    encode_record,
)
from bookie_server.storage.logs import entry_log
from bookie_server.storage.logs.id_pattern import IdPattern
from bookie_server.storage.logs.rows import Block, Row, pack_row
from bookie_server.wire.digest import crc32c
from bookie_server.wire.record import parse_run
from tests.doubles.records import records
from tests.fuzzing.decoder import Bound, Decoder
from tests.fuzzing.wire import KEY, runs
from tests.simulation.kit.files import SimFileSystem

_AT = "bookie_server.storage"
_INSTANCE = b"instance-of-ours"
_SECTOR = 512
_FILE_ID = 3
_LOG_ID = 1
_ZEROED = GroupFormat(b"BKJGROUP", _SECTOR, _INSTANCE)
_STAMPED = StampedFormat(b"BKJGRP3\n", _SECTOR, _INSTANCE, 2)
_GROUP_FIELDS = struct.Struct(">8sq16sqqqIII")
_STATE = IndexState(0, 0, 1, 1, False)
_WINDOWS = Bound(4 << 20, 16)
"""Files are searched a MiB at a time."""


class OneFile(FileSystem):
    """A file system whose every name is one real file in memory: what is asked of the kernel, it answers."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("fuzzed")
        os.set_inheritable(self._descriptor, False)

    def of(self, content: bytes) -> OneFile:
        """The same with this content."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, content, 0)
        return self

    def open(self, path: str, *, writable: bool = False) -> File:
        return RealFile(os.dup(self._descriptor))

    def _none(self, *_: object, **__: object) -> None:
        raise AssertionError("reading is all")

    create = make_directory = names = sync_dir = rename = delete = free_space = lock = _none  # type: ignore[assignment]


_one_file = cache(OneFile)


# -- journals -------------------------------------------------------------------------------------


def _journal_records() -> list[JournalRecord | Roll]:
    packet = b"\0" * 7 + b"\7" + b"\0" * 8 + b"sign"
    return [
        *(Add(parse_run(data)) for data in runs()),
        Replace(parse_run(records([b"mended"] * 3, 4))),
        MasterKey(7, KEY),
        Fence(7),
        ExplicitLac(7, packet),
        Tombstone(3, 9),
        Drop(7),
        Roll(4),
    ]


def _bodies() -> list[bytes]:
    each = [bytes(encode_record(record)) for record in _journal_records()]
    return [*each, b"".join(each), b"".join(reversed(each))]


def _records_of(content: bytes) -> list[JournalRecord | Roll]:
    return list(decode_records(memoryview(content)))


def _headers() -> list[bytes]:
    end = GroupEnd(2, 8192, 6)
    made = [
        journal_file.JournalFileHeader(
            version, 0, 3, 65_536, _INSTANCE, end, 2 if version >= 3 else 0, b"k" * 16 if version >= 4 else b""
        )
        for version in (1, 2, 3, 4)
    ]  # fmt: skip
    return [journal_file.encode_file_header(each).rstrip(b"\0") for each in made]


def _block(content: bytes) -> bytes:
    return content[: journal_file.BLOCK_SIZE].ljust(journal_file.BLOCK_SIZE, b"\0")


def _sealed_header(content: bytes) -> bytes:
    version = int.from_bytes(content[8:12])
    size = 78 - 16 + (4 if version >= 3 else 0) + (16 if version >= 4 else 0)
    size = _HEADER_SIZES.get(min(version, 4), size)
    return group.signed(content[:size].ljust(size, b"\0"))


def _header_sizes() -> dict[int, int]:
    base = struct.calcsize(">8sIHqq16sqqq")
    return {0: base, 1: base, 2: base, 3: base + 4, 4: base + 20}


_HEADER_SIZES = _header_sizes()


def _group_of(format: GroupFormat, body: bytes) -> bytes:
    previous = GroupEnd(_FILE_ID, 0, 0)
    if isinstance(format, StampedFormat):
        room = bytearray(format.size_of(len(body)))
        group.put_stamped_group(memoryview(room), format, _FILE_ID, previous, [body])
        return bytes(room)
    buffers, _ = group.encode_group(format, _FILE_ID, previous, [body])
    return b"".join(buffers)


def _groups(format: GroupFormat) -> list[bytes]:
    one, two = (_group_of(format, body) for body in (_bodies()[0], bytes(600) + _bodies()[2]))
    return [one, two, one + two, bytes(_SECTOR) + one]


def _sealed_group(content: bytes) -> bytes:
    """With a sound header; of what is not stamped the body is sound, too."""
    if len(content) < group.HEADER_SIZE:
        return content
    fields = list(_GROUP_FIELDS.unpack_from(content))
    fields[:3] = content[:8], _FILE_ID, _INSTANCE
    body = content[group.HEADER_SIZE :][: fields[6]]
    unsigned = _GROUP_FIELDS.pack(*fields)[:-4]
    fields[8] = group.crc32c_of(unsigned, crc32c(body))
    return group.signed(_GROUP_FIELDS.pack(*fields)) + content[group.HEADER_SIZE :]


def _read_groups(format: GroupFormat, content: bytes) -> list[object]:
    with _one_file().of(content).open("") as file:
        reader = (
            StampedGroupReader(format, file, _FILE_ID)
            if isinstance(format, StampedFormat)
            else GroupReader(format, file, _FILE_ID)
        )
        first, next_one = reader.read(0), reader.next_valid(0)
        has = reader.has_group(GroupEnd(_FILE_ID, _SECTOR, 1))
    return [first.kind, None if next_one is None else next_one.offset, has]


def _header_of_group(content: bytes) -> group.GroupHeader | None:
    header = group.parse_group_header(_ZEROED, content)
    if header is not None:
        group.body_is_valid(content, header, memoryview(content)[group.HEADER_SIZE :])
    return header


# -- index ----------------------------------------------------------------------------------------


def _rows(count: int) -> bytes:
    block = Block(1, 64, 500, 99, 10)
    return b"".join(pack_row(Row(IdPattern(at * 10, 2, 3, 3), block)) for at in range(count))


def _handles() -> list[bytes]:
    packet = b"\0" * 7 + b"\7" + b"\0" * 8
    return [
        encode_handle_state(LedgerHandleState()),
        encode_handle_state(LedgerHandleState(KEY, True, True, True, packet, 5, 0, 1)),
    ]


def _deltas() -> list[bytes]:
    state = IndexState(9, 4, 2, 2, True)
    replaced: list[Sequence[int]] = [range(3, 9), range(0, 30, 3), [0, 1, 5, 6, 10, 11]]
    whole = IndexDelta(
        state,
        {0: GroupEnd(3, 8192, 7), 1: GroupEnd(2, 4096, 1)},
        {7: _handles()[1]},
        [(3, 5), (9, 9)],
        {7: _rows(3)},
        {7: replaced},
        [11, 12],
        {7: Moved(((1, 64), (2, 128)), _rows(2))},
    )
    return [b"".join(encode_delta(each)) for each in (IndexDelta(state, {}), whole)]


def _delta_of(delta: IndexDelta) -> bytes | None:
    # Ids come back in as few patterns as describe them.
    return None if delta.replaced else b"".join(encode_delta(delta))


def _index_headers() -> list[bytes]:
    made = index_header.IndexHeader(index_header.FILE_MAGIC, 2, 0, 5, _INSTANCE, 1)
    return [made.encode().rstrip(b"\0")]


def _index_header(content: bytes) -> index_header.IndexHeader | None:
    return index_header.parse_header(content[:_SECTOR].ljust(_SECTOR, b"\0"))


def _sealed_index_header(content: bytes) -> bytes:
    return group.signed(content[:42].ljust(42, b"\0"))


# -- entry logs -----------------------------------------------------------------------------------


def _logs() -> list[bytes]:
    files = SimFileSystem()
    files.make_directory("/l")
    of = {7: [parse_run(runs()[0]), parse_run(runs()[3])], 8: [parse_run(records([b"z"], ledger_id=8))]}  # fmt: skip
    for log_id, ledgers in ((_LOG_ID, of), (_LOG_ID + 1, {7: [parse_run(runs()[1])]})):
        how = {"instance_id": _INSTANCE, "block_size_bytes": 128}
        entry_log.write_entry_log(files, "/l", log_id, ledgers.items(), **how)  # type: ignore[arg-type]
    return [_sealed_log(bytes(inode.cached)) for inode in files.names_now.values() if inode.cached]


def _sealed_log(content: bytes) -> bytes:
    """With a sound header; footer and trailer are sound wherever the trailer says the footer is."""
    trailer = content[-entry_log.TRAILER_SIZE :].ljust(28, b"\0")
    _, offset, length, _ = struct.unpack_from(">8sqqI", trailer)
    if crc32c(content) & 1:  # of half the inputs the numbers fit each other as well
        length -= length % 56
        offset = len(content) - entry_log.TRAILER_SIZE - length
    offset, length = (max(-(2**63), min(each, 2**63 - 1)) for each in (offset, length))
    inner = struct.pack(">8sIq16s", entry_log.FILE_MAGIC, entry_log.FORMAT_VERSION, _LOG_ID, _INSTANCE)  # fmt: skip
    begin = max(offset, 0)
    checksum = crc32c(content[begin : begin + max(length, 0)])
    return (
        group.signed(inner, entry_log.HEADER_SIZE)
        + content[entry_log.HEADER_SIZE : -entry_log.TRAILER_SIZE]
        + group.signed(struct.pack(">8sqqI", b"BKELEND\n", offset, length, checksum))
    )


def _footer(content: bytes) -> list[tuple[int, Row]]:
    files = _one_file().of(content)
    entry_log.blocks_size_bytes(files, "/l", _LOG_ID)
    ledger_ids = entry_log.ledgers_in(files, "/l", _LOG_ID, _INSTANCE)
    rows = entry_log.read_footer(files, "/l", _LOG_ID, _INSTANCE)
    assert sorted({ledger_id for ledger_id, _ in rows}) == ledger_ids
    return rows


# -- cookie files ---------------------------------------------------------------------------------


def _written(write: Callable[[SimFileSystem], None], name: str) -> bytes:
    files = SimFileSystem()
    files.make_directory("/d")
    write(files)
    return bytes(files.names_now[f"/d/{name}"].cached)


def _cookie_of(cookie: DirectoryCookie) -> bytes:
    return _written(
        lambda files: cookie_file.write_cookie(files, "/d", cookie), cookie_file.COOKIE_NAME
    )


def _start_of(start: Start) -> bytes:
    return _written(
        lambda files: cookie_file.write_start(files, "/d", start), cookie_file.STARTS_NAME
    )


def _cookies() -> list[bytes]:
    directories = DirectorySet(2, (Member("a", "/j"),), (Member("b", "/l0"), Member("c", "/l1")))
    return [_cookie_of(DirectoryCookie("127.0.0.1:3181", "c" * 36, "a", directories))]


def _sealed_line(content: bytes) -> bytes:
    line = content.rstrip(b"\n").partition(b"\n")[2]
    return b"%08x\n%s\n" % (crc32c(line), line)


_Row = Callable[..., Decoder]
_damaged: _Row = partial(Decoder, errors=(DamagedFileError,), memory=Bound(96 * 1024, 96))

DECODERS: tuple[Decoder, ...] = (
    Decoder(
        name="journal-records",
        decode=_records_of,
        encode=lambda found: b"".join(map(encode_record, found)),
        errors=(MalformedBodyError,),
        seeds=_bodies,
        covers=(f"{_AT}.journal.record.decode_records",),
        memory=Bound(64 * 1024, 96),
        steps=Bound(4_000, 32),
    ),
    Decoder(
        name="journal-file-header",
        decode=lambda content: journal_file.parse_file_header(_block(content)),
        encode=lambda found: None if found is None else journal_file.encode_file_header(found),
        errors=(),
        seeds=_headers,
        seal=_sealed_header,
        covers=(f"{_AT}.journal.journal_file.parse_file_header",),
    ),
    Decoder(
        name="group-header",
        decode=_header_of_group,
        errors=(),
        seeds=lambda: _groups(_ZEROED)[:2],
        seal=_sealed_group,
        covers=(f"{_AT}.disk.group.parse_group_header", f"{_AT}.disk.group.body_is_valid"),
    ),
    Decoder(
        name="journal-groups",
        decode=partial(_read_groups, _ZEROED),
        errors=(),
        seeds=lambda: _groups(_ZEROED),
        seal=_sealed_group,
        covers=(f"{_AT}.disk.group_reader.GroupReader.read", f"{_AT}.disk.group_reader.GroupReader.next_valid"),
        memory=_WINDOWS,
    ),
    Decoder(
        name="journal-stamped-groups",
        decode=partial(_read_groups, _STAMPED),
        errors=(),
        seeds=lambda: _groups(_STAMPED),
        seal=_sealed_group,
        covers=(f"{_AT}.disk.group_reader.StampedGroupReader.read", f"{_AT}.disk.stamps.without_stamps"),
        memory=_WINDOWS,
    ),
    Decoder(
        name="index-delta",
        decode=lambda content: decode_delta(memoryview(content), _STATE),
        encode=_delta_of,
        errors=(MalformedDeltaError,),
        seeds=_deltas,
        covers=(f"{_AT}.index.delta.decode_delta",),
    ),
    Decoder(
        name="index-handle-state",
        decode=decode_handle_state,
        encode=encode_handle_state,
        errors=(ValueError,),
        seeds=_handles,
        covers=(f"{_AT}.index.handle_state.decode_handle_state",),
    ),
    Decoder(
        name="index-header",
        decode=_index_header,
        encode=lambda found: None if found is None else found.encode(),
        errors=(),
        seeds=_index_headers,
        seal=_sealed_index_header,
        covers=(f"{_AT}.index.header.parse_header",),
    ),
    _damaged(
        name="entry-log",
        decode=_footer,
        seeds=_logs,
        seal=_sealed_log,
        covers=(
            f"{_AT}.logs.entry_log.read_footer",
            f"{_AT}.logs.entry_log.ledgers_in",
            f"{_AT}.logs.entry_log.blocks_size_bytes",
            f"{_AT}.logs.rows.unpack_row",
        ),
    ),
    _damaged(
        name="directory-cookie",
        decode=lambda content: cookie_file.read_cookie(_one_file().of(content), "/d"),
        encode=_cookie_of,
        seeds=_cookies,
        seal=_sealed_line,
        covers=(f"{_AT}.identity.cookie_file.read_cookie",),
    ),
    _damaged(
        name="directory-starts",
        decode=lambda content: cookie_file.read_start(_one_file().of(content), "/d"),
        encode=_start_of,
        seeds=lambda: [_start_of(Start(3, "a" * 32, "b" * 32, 1))],
        seal=_sealed_line,
        covers=(f"{_AT}.identity.cookie_file.read_start",),
    ),
)
