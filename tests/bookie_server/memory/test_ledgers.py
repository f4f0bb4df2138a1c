"""What a live ledger takes of a bookie's memory, while it runs and after a start: a million is a gigabyte's load."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import closing
from pathlib import Path

from bookie_server.core.records import Add, JournalRecord, MasterKey
from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.engine import Storage
from bookie_server.storage.opening import open_storage
from bookie_server.wire.record import parse_run
from tests.doubles.records import KEY, records

LEDGERS = 4_000
LEDGER_BYTES_MAX = 717
"""0.7 KiB."""
FIXED_BYTES = 256 * 1024
"""What a start takes whatever is stored."""


def opened(directory: Path) -> Storage:
    settings = StorageSettings(
        journal_directories=(str(directory / "journal"),),
        ledger_directories=(str(directory / "ledgers"),),
        journal_file_size_bytes=16 << 20,
        journal_zero_chunk_bytes=1 << 16,
    )
    files = RealFileSystem()
    return open_storage(
        files,
        settings,
        lock_directories(files, settings.directories),
        instance_id=b"i" * 16,
        clock_ms=lambda: 2,
    )


def fill(storage: Storage) -> None:
    """Ledgers of one entry each, a checkpoint after every thousand; each key an object of its own."""
    for first in range(0, LEDGERS, 1_000):
        group: list[JournalRecord] = []
        for ledger_id in range(first, first + 1_000):
            entry = parse_run(records([b"x" * 100], ledger_id=ledger_id))
            group += [MasterKey(ledger_id, bytes(bytearray(KEY))), Add(entry)]
        storage.contents.apply(group, storage.journals[0].write_group(group))
        storage.checkpoint_now()


def taken_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_a_live_ledger_takes_so_much_and_no_more(tmp_path: Path) -> None:
    for name in ("journal", "ledgers"):
        (tmp_path / name).mkdir()
    most = LEDGERS * LEDGER_BYTES_MAX + FIXED_BYTES
    with closing(opened(tmp_path)) as storage:
        tracemalloc.start()
        try:
            before = taken_bytes()
            fill(storage)
            assert taken_bytes() - before <= most
        finally:
            tracemalloc.stop()
    tracemalloc.start()
    try:
        before = taken_bytes()
        with closing(opened(tmp_path)) as storage:
            assert len(storage.contents.ledgers) == LEDGERS
            assert taken_bytes() - before <= most
    finally:
        tracemalloc.stop()
