"""`bookkeeper bookie --check`: directories judged while no bookie runs, and left as they were."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bookie_server.settings import REPLACE_FLAG
from spark_bookkeeper import LocalCluster
from tests.integration.command_line import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.zookeeper, pytest.mark.slow]


def everything(*directories: Path) -> dict[str, object]:
    """All that a write would change: names, bytes and times of files and directories."""
    paths = [path for each in directories for path in (each, *each.rglob("*"))]
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.stat().st_mode)
        + ((path.read_bytes(),) if path.is_file() else ())
        for path in paths
    }


def test_directories_are_judged_while_no_bookie_runs_and_left_as_they_were(
    cluster: LocalCluster, bookkeeper: CommandLine
) -> None:
    bookie = cluster.bookies[0]
    journal, ledgers = bookie.directory / "journal", bookie.directory / "ledgers"
    bookkeeper("ledgers", "append", "--ack-quorum", 3, stdin=b"line\n" * 1_000)
    check = ("bookie", "--check", ledgers, journal)

    err = bookkeeper.refused(*check)
    assert err.startswith("BK_STORAGE_REFUSED: ")
    assert f"a bookie runs on it; stop it first. path={journal}" in err

    bookie.stop()
    for path in (journal, ledgers, *journal.iterdir(), *ledgers.iterdir()):
        path.chmod(path.stat().st_mode & ~0o222)
    before = everything(journal, ledgers)
    code, out, err = bookkeeper.outcome(*check)
    assert code == 0, out + err
    assert f"journal  {journal}\nledgers  {ledgers}\n" in out
    assert "a start would go on with them, as start 2" in out
    assert "PROBLEM" not in out
    by_settings = ("bookie", "--check", "--config", bookie.directory / "bookie.toml")
    assert bookkeeper(*by_settings) == out
    assert everything(journal, ledgers) == before
    for path in (journal, ledgers, *journal.iterdir(), *ledgers.iterdir()):
        path.chmod(path.stat().st_mode | 0o200)

    # A flipped bit of what is stored, which a start would not notice.
    (log,) = ledgers.glob("*.log")
    with log.open("r+b") as file:
        file.seek(100)
        byte = os.pread(file.fileno(), 1, 100)
        file.write(bytes([byte[0] ^ 1]))
    code, out, _ = bookkeeper.outcome(*check)
    assert code == 1
    assert f"PROBLEM: {log}: block at 64 is damaged: entries of ledger " in out
    with log.open("r+b") as file:
        file.seek(100)
        file.write(byte)

    aside = bookie.directory / "aside"
    ledgers.rename(aside)
    ledgers.mkdir()
    code, out, _ = bookkeeper.outcome(*check)
    assert code == 1
    assert f"PROBLEM: {ledgers}: the ledger directory was lost or emptied" in out
    assert REPLACE_FLAG in out
    assert list(ledgers.iterdir()) == []
    shutil.rmtree(ledgers)
    aside.rename(ledgers)
    bookie.start()


def test_directories_that_cannot_be_a_bookies_are_wrong_use(
    bookkeeper: CommandLine, tmp_path: Path
) -> None:
    assert "go with --check" in bookkeeper.refused("bookie", tmp_path, code=2)
    assert "ledger_directories" in bookkeeper.refused("bookie", "--check", tmp_path, code=2)
    assert "exist" in bookkeeper.refused("bookie", "--check", tmp_path / "not", code=2)
    (tmp_path / "other").mkdir()
    out = bookkeeper("bookie", "--check", tmp_path, tmp_path / "other")
    assert "a start would make a new bookie of them" in out
