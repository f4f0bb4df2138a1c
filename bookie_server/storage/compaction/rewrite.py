"""Rewriting entry logs: what lives of some becomes one new log, sorted and in whole blocks again.

The new log is durable before the index names it, and the old ones go only when no row names them any
more. A block that cannot be read is not moved: its rows stay, and with them its log, for without them
the bookie would deny the entries that another copy may still mend.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby

from bookie_server.storage.disk.descriptors import is_shortage
from bookie_server.storage.disk.errors import NoRoomError, repeatable
from bookie_server.storage.disk.files import File, FileSystem
from bookie_server.storage.index.delta import IndexDelta, Moved
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.logs.entry_log import file_name, log_ids, write_entry_log
from bookie_server.storage.logs.rows import Block, LedgerRows, Row
from bookie_server.storage.logs.write_cache import pieces_of
from bookie_server.wire.digest import crc32c_of
from bookie_server.wire.record import MalformedRecordsError, Run, parse_run

_FILES_OPEN_MAX = 8


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What became durable; ``Contents.move_rows`` shows it to readers."""

    directory_index: int
    log_ids: tuple[int, ...]
    """The logs that were looked through."""
    moved: dict[int, Moved] = field(repr=False)
    copied_bytes: int
    pinned: frozenset[int]
    """Logs with blocks that cannot be read."""


def rewrite(
    files: FileSystem,
    index: DirectoryIndex,
    chosen: Collection[int],
    *,
    instance_id: bytes,
    block_size_bytes: int,
) -> Rewritten:
    """Copy what lives of the ``chosen`` logs into a new one, and commit that; blocks meanwhile.

    Raises:
        NoRoomError: nothing is changed, but that a part of a log may be left; the same where there is
            neither descriptor nor memory to read with.
        OSError: the index must not be used any more.
    """
    with ExitStack() as opened:
        source = _Source(files, index.directory, frozenset(chosen), opened)
        log_id = max([index.state.last_log_id, *log_ids(files, index.directory)]) + 1
        # Nothing refers to a log that failed, so neither its writes nor its syncs matter.
        with repeatable(index.directory):
            rows = write_entry_log(
                files,
                index.directory,
                log_id,
                source.runs(index),
                instance_id=instance_id,
                block_size_bytes=block_size_bytes,
            )
    moved = {
        ledger_id: Moved(source.whole_places(ledger_id), packed)
        for ledger_id, packed in rows.items()
    }
    if moved:
        state = replace(index.state, last_log_id=log_id)
        index.commit(IndexDelta(state, {}, moved=moved))
    else:
        files.delete(f"{index.directory}/{file_name(log_id)}")
    return Rewritten(
        index.index, tuple(sorted(chosen)), moved, source.copied_bytes, frozenset(source.pinned)
    )


class _Source:
    """Reads what lives of the chosen logs, ledger by ledger."""

    def __init__(
        self, files: FileSystem, directory: str, chosen: frozenset[int], opened: ExitStack
    ) -> None:
        self._files = files
        self._directory = directory
        self._chosen = chosen
        self._opened = opened
        self._files_open: dict[int, File] = {}
        self._places: defaultdict[int, dict[tuple[int, int], bool]] = defaultdict(dict)
        """By ledger and block: whether it could be read each time. One that several rows stand for may be
        read several times, and is moved whole or not at all."""
        self.pinned: set[int] = set()
        self.copied_bytes = 0

    def whole_places(self, ledger_id: int) -> tuple[tuple[int, int], ...]:
        """The ledger's blocks of which everything was copied."""
        return tuple(place for place, is_whole in self._places[ledger_id].items() if is_whole)

    def runs(self, index: DirectoryIndex) -> Iterator[tuple[int, Iterator[Run]]]:
        """Runs by ledger; one has several parts where rows of other logs lie in between."""
        for ledger_id in sorted(index.rows):
            rows = index.rows.get(ledger_id)
            if rows is None or self._chosen.isdisjoint(rows.log_ids()):
                continue
            # A copy: the loop thread goes on changing them.
            copied = LedgerRows(rows.packed())
            for is_chosen, part in groupby(copied, lambda row: row.block.log_id in self._chosen):
                if is_chosen:
                    yield ledger_id, self._runs_of(ledger_id, part)

    def _runs_of(self, ledger_id: int, rows: Iterator[Row]) -> Iterator[Run]:
        for block, sharers in groupby(rows, lambda row: row.block):
            whole = self._read(ledger_id, block)
            place, places = (block.log_id, block.offset), self._places[ledger_id]
            places[place] = places.get(place, True) and whole is not None
            if whole is None:
                self.pinned.add(block.log_id)
                continue
            for row in sharers:
                for piece in pieces_of(whole, row.entry_ids):
                    self.copied_bytes += piece.size_bytes
                    yield piece

    def _read(self, ledger_id: int, block: Block) -> Run | None:
        """The block's records; ``None`` where they are not what the row promises."""
        try:
            content = self._file(block.log_id).read_at(block.offset, block.size_bytes)
            if len(content) != block.size_bytes or crc32c_of(content) != block.checksum:
                return None
            whole = parse_run(memoryview(content))
        except MalformedRecordsError:
            return None
        except OSError as error:
            if is_shortage(error):
                # It says nothing of the block: the whole is tried again later.
                raise NoRoomError(self._directory, f"not read: {error}") from error
            return None
        return whole if whole.ledger_id == ledger_id else None

    def _file(self, log_id: int) -> File:
        if log_id not in self._files_open:
            if len(self._files_open) == _FILES_OPEN_MAX:
                self._files_open.pop(next(iter(self._files_open))).close()
            path = f"{self._directory}/{file_name(log_id)}"
            self._files_open[log_id] = self._opened.enter_context(self._files.open(path))
        return self._files_open[log_id]
