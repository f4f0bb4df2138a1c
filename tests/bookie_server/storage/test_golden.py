"""Files of earlier formats stay readable for ever: these were written by version 0.1.0, and on the way to 0.2."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from bookie_server.core.records import Add, Drop, Fence, MasterKey, Replace, Tombstone
from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.engine import Storage
from bookie_server.storage.journal.journal_file import BLOCK_SIZE
from bookie_server.storage.journal.replay import ORIGIN, Replay
from bookie_server.storage.opening import open_storage
from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.record import parse_run, run_verifies, split_records
from tests.simulation.kit.storage_model import records_of, run_of


def payloads(storage: Storage, ledger_id: int) -> list[bytes]:
    plan = storage.contents.plan_read(ledger_id, 0, 99, size_bytes_max=1 << 20)
    found: list[bytes] = []
    for chunk in storage.execute(plan).chunks:
        run = parse_run(chunk)
        assert run_verifies(run, Crc32cDigest())
        found += [bytes(payload) for _, _, payload in split_records(run, Crc32cDigest.size)]
    return found


def test_a_journal_entry_log_and_index_of_version_1_are_read(
    repository: Path, tmp_path: Path
) -> None:
    shutil.copytree(repository / "tests/golden/v1/storage", tmp_path, dirs_exist_ok=True)
    settings = StorageSettings(
        journal_directories=(str(tmp_path / "journal"),),
        ledger_directories=(str(tmp_path / "ledgers"),),
        journal_file_size_bytes=65536,
        journal_zero_chunk_bytes=8192,
    )

    files = RealFileSystem()
    storage = open_storage(
        files,
        settings,
        lock_directories(files, settings.directories),
        instance_id=b"golden-bookie-id",
        clock_ms=lambda: 2,
    )

    with closing(storage):
        assert storage.recovery.damage == []
        assert payloads(storage, 7) == [b"zero", b"one", b"two", b"three"]
        assert payloads(storage, 9) == [b"nine"]
        facts = storage.contents.ledgers[7]
        assert (facts.master_key, facts.is_fenced) == (b"k" * 20, True)
        assert facts.last_add_confirmed == 3
        assert not storage.contents.ledgers[9].is_fenced
        assert 21 in storage.contents.tombstones


def test_a_journal_file_of_format_3_is_read(repository: Path) -> None:
    """In its second lap, before files had keys of their own."""
    directory = str(repository / "tests/golden/v3/journal")
    mark = GroupEnd(file_id=3, offset=BLOCK_SIZE, sequence=6)
    replay = Replay(RealFileSystem(), directory, 0, b"golden-bookie-id", mark)

    groups = [group.records for group in replay.groups()]

    assert replay.report.damage == []
    assert [[type(record) for record in records] for records in groups] == [
        [Add],
        [MasterKey, Add],
        [Fence],
    ]


def test_journals_of_format_2_are_read(repository: Path) -> None:
    """Written by the last version that filled every file with zeros; the second file follows a roll record."""
    directory = str(repository / "tests/golden/v2/journal")
    replay = Replay(RealFileSystem(), directory, 0, b"golden-bookie-id", ORIGIN)

    groups = [group.records for group in replay.groups()]

    assert replay.report.damage == []
    key, add = groups[0]
    assert key == MasterKey(7, b"k" * 20)
    assert isinstance(add, Add)
    assert records_of(add.run) == records_of(run_of(7, range(3), size=300))
    replaced, fence = groups[1]
    assert isinstance(replaced, Replace)
    assert records_of(replaced.run) == records_of(run_of(7, [1], size=300, salt=1))
    assert fence == Fence(7)
    striped, drop, tombstone = groups[2]
    assert isinstance(striped, Add)
    assert list(striped.run.entry_ids) == [0, 2, 4]
    assert (drop, tombstone) == (Drop(11), Tombstone(21, 22))


def test_groups_of_format_2_are_read_behind_a_damaged_file_header(
    repository: Path, tmp_path: Path
) -> None:
    shutil.copytree(repository / "tests/golden/v2/journal", tmp_path, dirs_exist_ok=True)
    path = tmp_path / "0000000000000001.txn"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    replay = Replay(RealFileSystem(), str(tmp_path), 0, b"golden-bookie-id", ORIGIN)

    groups = [group.records for group in replay.groups()]

    assert replay.report.damage
    assert MasterKey(7, b"k" * 20) in groups[0]
    assert len(groups) == 3
