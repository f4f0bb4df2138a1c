"""Entry logs: where entries rest. Each is written once, by one checkpoint, and never changes.

    log     = header · blocks · footer · trailer
    block   = records of one ledger, back to back, as received; at most ``block_size_bytes``, or one entry
    footer  = per block and id pattern: ledger id and the index's row
    trailer = where the footer is, checksums; the last 32 bytes

Blocks are sorted by (ledger, entry) and have nothing between them, so neighbours are read with one
``pread`` and are directly a run of records for a reply; their checksums stand in the footer and in
the index. The footer alone rebuilds the index's rows. The file is durable before the index names
it; a log without a sound trailer was never referred to, or is damaged.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.files import File, FileSystem
from bookie_server.storage.disk.group import CRC_SIZE, is_signed, signed
from bookie_server.storage.disk.numbered import numbered_name, numbers_in
from bookie_server.storage.logs.id_pattern import patterns_of
from bookie_server.storage.logs.rows import ROW_SIZE, Block, Row, are_possible, pack_row, unpack_row
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.digest import crc32c, crc32c_of
from bookie_server.wire.record import Run

SUFFIX = ".log"
FORMAT_VERSION = 1
FILE_MAGIC = b"BKELOG\r\n"
_TRAILER_MAGIC = b"BKELEND\n"
HEADER_SIZE = 64
WRITE_SIZE = 1024 * 1024
"""Bytes of one write; whole pages, so that each starts where a direct write may."""
PIECE_SIZE = 4 * WRITE_SIZE
"""Largest part that is synced by itself, so that a journal on the same disk never waits long."""

_CHECK_SIZE = 4 * 1024 * 1024
"""Bytes of a block read at a time when only its checksum is asked for."""

AfterWrite = Callable[[int], None]
"""Called behind each write of a part, on the thread that writes, with how many bytes that were."""
_HEADER = struct.Struct(">8sIq16s")
_TRAILER = struct.Struct(">8sqqI")
_LEDGER = struct.Struct(">q")
_FOOTER_ROW_SIZE = _LEDGER.size + ROW_SIZE
_FOOTER_LAYOUT = np.dtype([("ledger_id", ">i8"), ("row", f"V{ROW_SIZE}")])
TRAILER_SIZE = _TRAILER.size + CRC_SIZE


def file_name(log_id: int) -> str:
    """What the entry log of this id is called."""
    return numbered_name(log_id, SUFFIX)


def log_ids(files: FileSystem, directory: str) -> list[int]:
    """Ids of the entry logs in ``directory``, ascending."""
    return numbers_in(files, directory, SUFFIX)


def write_entry_log(
    files: FileSystem,
    directory: str,
    log_id: int,
    runs: Iterable[tuple[int, Iterable[Run]]],
    *,
    instance_id: bytes,
    block_size_bytes: int,
    after_write: AfterWrite | None = None,
) -> dict[int, bytes]:
    """Write the runs of each ledger to a new log; file and name are durable then.

    Ledgers ascend; one may come in several parts, which share no block. Returns each ledger's rows, packed and ascending.
    ``after_write`` may take its time.

    Raises:
        OSError: a part of the file may exist; nothing may refer to it.
    """
    with files.create(f"{directory}/{file_name(log_id)}") as file:
        writer = _LogWriter(file, log_id, after_write)
        header = _HEADER.pack(FILE_MAGIC, FORMAT_VERSION, log_id, instance_id)
        writer.put(signed(header, HEADER_SIZE))
        for ledger_id, part in runs:
            for pieces in _blocks(part, block_size_bytes):
                writer.put_block(ledger_id, pieces)
        writer.finish()
    # The index is about to name this log, and a name that is not synced can be lost.
    files.sync_dir(directory)
    return {ledger: bytes(rows) for ledger, rows in writer.rows.items()}


class _LogWriter:
    """Appends to a new log; writes and syncs it piece by piece."""

    def __init__(self, file: File, log_id: int, after_write: AfterWrite | None) -> None:
        self._file = file
        self._after_write = after_write
        self._log_id = log_id
        # Whole pages, which a direct write takes as they are; small enough to stay in a cache.
        self._memory = memoryview(mmap.mmap(-1, WRITE_SIZE))
        self._filled = 0
        """Of the memory: bytes that are not written yet."""
        self._written = 0
        self._synced = 0
        self.rows: dict[int, bytearray] = {}

    def put(self, content: Buffer) -> None:
        source = memoryview(content)
        while len(source):
            begin = self._filled
            self._filled = end = min(begin + len(source), WRITE_SIZE)
            self._memory[begin:end] = source[: end - begin]
            source = source[end - begin :]
            if end == WRITE_SIZE:
                self._write()
                if self._written - self._synced >= PIECE_SIZE:
                    self._sync()

    def put_block(self, ledger_id: int, runs: Sequence[Run]) -> None:
        offset = self._written + self._filled
        checksum = size = count = 0
        for run in runs:
            # One after the other, as long as the processor has the bytes at hand.
            checksum = crc32c_of(run.data, checksum)
            self.put(run.data)
            size += len(run.data)
            count += len(run)
        block = Block(self._log_id, offset, size, checksum, count)
        packed = self.rows.setdefault(ledger_id, bytearray())
        for pattern in patterns_of(_ids_of(runs)):
            packed += pack_row(Row(pattern, block))

    def finish(self) -> None:
        """Write footer and trailer, and sync them."""
        footer = b"".join(
            _LEDGER.pack(ledger_id) + packed[at : at + ROW_SIZE]
            for ledger_id, packed in self.rows.items()
            for at in range(0, len(packed), ROW_SIZE)
        )
        offset = self._written + self._filled
        self.put(footer)
        self.put(signed(_TRAILER.pack(_TRAILER_MAGIC, offset, len(footer), crc32c(footer))))
        self._write()
        self._sync()

    def _write(self) -> None:
        if self._filled:
            self._file.write_at(self._written, [self._memory[: self._filled]])
            written, self._filled = self._filled, 0
            self._written += written
            if self._after_write is not None:
                self._after_write(written)

    def _sync(self) -> None:
        self._file.sync()
        self._synced = self._written


def _blocks(runs: Iterable[Run], size_bytes_max: int) -> Iterator[list[Run]]:
    """Cut a ledger's runs into blocks; a uniform run is cut by arithmetic, not per entry."""
    block: list[Run] = []
    size = 0
    for run in runs:
        start = 0
        while start < len(run):
            stop = _fitting(run, start, size_bytes_max - size)
            if stop == start:
                if block:
                    yield block
                    block, size = [], 0
                    continue
                # A record larger than a block gets one of its own.
                stop = start + 1
            piece = run.slice(start, stop)
            block.append(piece)
            size += piece.size_bytes
            start = stop
    if block:
        yield block


def _fitting(run: Run, start: int, room_bytes: int) -> int:
    """The index behind the last record that fits, when records from ``start`` on fill ``room_bytes``."""
    limit = run.offsets[start] + room_bytes
    if run.size_bytes <= limit:
        return len(run)
    # Record i ends where record i + 1 starts; the offsets of a uniform run are a range.
    return max(start, bisect_right(run.offsets, limit, start) - 1)


def _ids_of(runs: Sequence[Run]) -> Sequence[int]:
    if len(runs) == 1:
        return runs[0].entry_ids
    count = sum(map(len, runs))
    if runs[-1].last_entry - runs[0].first_entry + 1 == count:
        return range(runs[0].first_entry, runs[-1].last_entry + 1)
    return [entry_id for run in runs for entry_id in run.entry_ids]


def read_footer(
    files: FileSystem, directory: str, log_id: int, instance_id: bytes
) -> list[tuple[int, Row]]:
    """``(ledger id, row)`` of every block pattern, sorted; what the index's rows are rebuilt from.

    Raises:
        DamagedFileError: header, trailer or footer do not pass their checksums.
        OSError: the file cannot be read.
    """
    footer = _read_footer(files, directory, log_id, instance_id)
    packed = np.frombuffer(footer, _FOOTER_LAYOUT)["row"].tobytes()
    if not are_possible(packed):
        raise DamagedFileError(f"{directory}/{file_name(log_id)}", "rows of impossible blocks")
    return [
        (_LEDGER.unpack_from(footer, at)[0], unpack_row(footer, at + _LEDGER.size))
        for at in range(0, len(footer), _FOOTER_ROW_SIZE)
    ]


def ledgers_in(files: FileSystem, directory: str, log_id: int, instance_id: bytes) -> list[int]:
    """The ledgers that a log was written for, each once.

    Raises:
        DamagedFileError, OSError: as :func:`read_footer`.
    """
    footer = _read_footer(files, directory, log_id, instance_id)
    rows = np.frombuffer(footer, _FOOTER_LAYOUT)
    ledger_ids: list[int] = np.unique(rows["ledger_id"]).tolist()
    return ledger_ids


def blocks_size_bytes(files: FileSystem, directory: str, log_id: int) -> int:
    """Bytes of a log's blocks, without what stands around them; more where the trailer is damaged.

    Raises:
        OSError: the file cannot be read.
    """
    with files.open(f"{directory}/{file_name(log_id)}") as file:
        size = file.size()
        trailer = file.read_at(max(size - TRAILER_SIZE, 0), TRAILER_SIZE)
    if not is_signed(trailer, _TRAILER.size):
        return size
    _, offset, _, _ = _TRAILER.unpack_from(trailer)
    return int(offset) - HEADER_SIZE


def _read_footer(files: FileSystem, directory: str, log_id: int, instance_id: bytes) -> bytes:
    path = f"{directory}/{file_name(log_id)}"
    with files.open(path) as file:
        size = file.size()
        header = file.read_at(0, HEADER_SIZE)
        trailer = file.read_at(max(size - TRAILER_SIZE, 0), TRAILER_SIZE)
        if len(header) < HEADER_SIZE or not is_signed(header, _HEADER.size):
            raise DamagedFileError(path, "header")
        if _HEADER.unpack_from(header) != (FILE_MAGIC, FORMAT_VERSION, log_id, instance_id):
            raise DamagedFileError(path, "header of another log, bookie or format")
        if not is_signed(trailer, _TRAILER.size):
            raise DamagedFileError(path, "trailer")
        magic, offset, length, checksum = _TRAILER.unpack_from(trailer)
        if (
            magic != _TRAILER_MAGIC
            # Either may be negative, and their sum fit all the same.
            or offset < HEADER_SIZE
            or length < 0
            # The trailer is found from the file's end, so a shorter or longer file must not pass.
            or offset + length + TRAILER_SIZE != size
            or length % _FOOTER_ROW_SIZE
        ):
            raise DamagedFileError(path, "trailer does not fit the file")
        footer = file.read_at(offset, length)
    if crc32c(footer) != checksum:
        raise DamagedFileError(path, "footer")
    return footer


def is_block_sound(file: File, block: Block) -> bool:
    """Whether the block is in its log as it was written.

    Raises:
        OSError: it cannot be read.
    """
    checksum = 0
    for at in range(0, block.size_bytes, _CHECK_SIZE):
        size = min(_CHECK_SIZE, block.size_bytes - at)
        content = file.read_at(block.offset + at, size)
        if len(content) < size:
            return False
        checksum = crc32c_of(content, checksum)
    return checksum == block.checksum
