"""What a snapshot of an index takes of a bookie's memory while it is written: a part, not all of it again."""

from __future__ import annotations

import tracemalloc
from contextlib import closing
from pathlib import Path

from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.index.delta import IndexDelta, IndexState
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.logs.id_pattern import IdPattern
from bookie_server.storage.logs.rows import ROW_SIZE, Block, Row, pack_row

LEDGERS, ROWS_EACH = 200, 4_000
STATE = IndexState(1, 1, 1, 1, False)
SNAPSHOT_BYTES_MAX = 12 * 1024 * 1024
"""Two groups of 4 MiB, encoded: of 37 MiB of rows."""


def index_in(directory: Path) -> DirectoryIndex:
    return DirectoryIndex(RealFileSystem(), str(directory), 0, b"i" * 16)


def test_a_snapshot_takes_a_bounded_part_of_what_it_writes(tmp_path: Path) -> None:
    rows = b"".join(
        pack_row(Row(IdPattern(entry, 1, 1, 1), Block(1, 100 * entry, 100, 7, 1)))
        for entry in range(ROWS_EACH)
    )
    with closing(index_in(tmp_path)) as index:
        index.establish()
        # One object for all: what counts is what the index makes of them.
        index.add_rows(dict.fromkeys(range(LEDGERS), rows))
        assert LEDGERS * len(rows) > 3 * SNAPSHOT_BYTES_MAX
        tracemalloc.start()
        try:
            index._write_snapshot(IndexDelta(STATE, {}, {0: b"handle"}))
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    with closing(index_in(tmp_path)) as reread:
        reread.load()

        assert reread.handles == {0: b"handle"}
        assert {len(found) for found in reread.rows.values()} == {len(rows) // ROW_SIZE}
        assert len(reread.rows) == LEDGERS
    assert peak_bytes < SNAPSHOT_BYTES_MAX
