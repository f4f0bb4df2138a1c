"""Decoders of what a bookie reads from its disks: indexes, entry logs, cookie files.

All of it stands behind checksums, which are made right again for most of the changed inputs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial

from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.storage.disk import group
from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.group import GroupEnd, GroupFormat
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
from bookie_server.storage.index.directory import GROUP_MAGIC, DirectoryIndex
from bookie_server.storage.index.handle_state import decode_handle_state, encode_handle_state
from bookie_server.storage.logs import entry_log
from bookie_server.storage.logs.id_pattern import IdPattern
from bookie_server.storage.logs.rows import Block, LedgerRows, Row, pack_row
from bookie_server.wire.digest import crc32c
from bookie_server.wire.record import parse_run
from tests.doubles.records import records
from tests.fuzzing.decoder import Bound, Decoder
from tests.fuzzing.one_file import one_file
from tests.fuzzing.wire import KEY, runs
from tests.simulation.kit.files import SimFileSystem

_AT = "bookie_server.storage"
_INSTANCE = b"instance-of-ours"
_SECTOR = 512
_LOG_ID = 1
_BLOCK_MAX = 16 << 20
"""As many ids as such a block may have are in memory at once."""
_STATE = IndexState(0, 0, 1, 1, False)


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


def _has_huge_blocks(content: bytes) -> bool:
    """Whether the delta has rows of blocks that are larger than any: how large they may be is a setting without limit."""
    try:
        delta = decode_delta(memoryview(content), _STATE)
    except MalformedDeltaError:
        return False
    rows = [*delta.rows.values(), *(moved.rows for moved in delta.moved.values())]
    return any(row.block.size_bytes > _BLOCK_MAX for packed in rows for row in LedgerRows(packed))


def _load(content: bytes) -> list[object] | None:
    """A bookie's start with this delta behind a sound snapshot; what is damaged is reported, whatever it is."""
    if _has_huge_blocks(content):
        return None
    header = index_header.IndexHeader(index_header.FILE_MAGIC, 2, 0, 5, _INSTANCE, 1)
    format, end = GroupFormat(GROUP_MAGIC, _SECTOR, _INSTANCE), GroupEnd(5, _SECTOR, 0)
    parts = [header.encode()]
    for body in (_deltas()[1], content or b"\0"):
        buffers, size = group.encode_group(format, 5, end, [body])
        end = GroupEnd(5, end.offset + size, end.sequence + 1)
        parts.append(b"".join(buffers))
    index = DirectoryIndex(one_file().of(b"".join(parts)), "/l", 0, _INSTANCE)
    index.load()
    index.close()
    rows = {ledger_id: list(each.between(0, 99)) for ledger_id, each in index.rows.items()}
    return [rows, len(index.damage)]


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
    files = one_file().of(content)
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
        name="index-delta",
        decode=lambda content: decode_delta(memoryview(content), _STATE),
        encode=_delta_of,
        errors=(MalformedDeltaError,),
        seeds=_deltas,
        covers=(f"{_AT}.index.delta.decode_delta",),
    ),
    Decoder(
        name="index-file",
        decode=_load,
        errors=(),
        seeds=_deltas,
        covers=(f"{_AT}.index.directory.DirectoryIndex.load",),
        memory=Bound(256 << 20, 512),
        steps=Bound(20_000, 100),
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
        decode=lambda content: cookie_file.read_cookie(one_file().of(content), "/d"),
        encode=_cookie_of,
        seeds=_cookies,
        seal=_sealed_line,
        covers=(f"{_AT}.identity.cookie_file.read_cookie",),
    ),
    _damaged(
        name="directory-starts",
        decode=lambda content: cookie_file.read_start(one_file().of(content), "/d"),
        encode=_start_of,
        seeds=lambda: [_start_of(Start(3, "a" * 32, "b" * 32, 1))],
        seal=_sealed_line,
        covers=(f"{_AT}.identity.cookie_file.read_start",),
    ),
)
