"""What a comparison does without its peer, and that its workloads are commands both clients know."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.peers import artifacts, comparing
from benchmarks.peers.workloads import label, workloads

COMMANDS = {
    "add": r"add (many|async) \d+ \d+ 3 \d+",
    "paced": r"paced \d+ \d+ 3",
    "read": r"read (runs|entries|batch) \d+ 17 3",
    "recover": r"recover \d+ \d+ 3",
    "life": r"life 3",
}


def test_a_machine_without_maven_skips_the_comparison_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(artifacts, "find_java", lambda: Path("/usr/bin/java"))
    monkeypatch.setattr(shutil, "which", lambda _: None)

    code = main(["peers", "--only", "life", "--cache", str(tmp_path)])

    assert code == 0
    assert "skipped, no peer to compare with: mvn is missing" in capsys.readouterr().out


def test_a_fetch_that_fails_leaves_nothing_that_looks_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "find_java", lambda: Path("/usr/bin/java"))
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/false")

    with pytest.raises(artifacts.PeerUnavailableError, match="could not fetch"):
        artifacts.prepare(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_every_workload_is_a_command_that_both_clients_know() -> None:
    for workload in workloads():
        for text in (workload.ours, workload.peer):
            command = text.format(seconds=3, ledger=17)
            assert re.fullmatch(COMMANDS[command.split()[0]], command), command


def test_both_sides_get_the_same_numbers() -> None:
    """They may differ in how they do it, and in nothing else."""
    for workload in workloads():
        ours, peer = (re.findall(r"\d+", text) for text in (workload.ours, workload.peer))

        assert ours == peer


def test_names_of_workloads_are_unique() -> None:
    names = [workload.name for workload in workloads()]

    assert len(set(names)) == len(names)


def test_a_name_that_no_workload_has_is_refused() -> None:
    with pytest.raises(SystemExit):
        comparing.main(["--only", "no such workload"])


def test_sizes_are_said_as_people_say_them() -> None:
    assert [label(size) for size in (100, 1024, 65_536, 1 << 20)] == [
        "100 B",
        "1 KiB",
        "64 KiB",
        "1 MiB",
    ]
