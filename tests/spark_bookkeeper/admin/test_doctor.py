"""What the doctor makes of the facts: each illness by itself, and its advice."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bookkeeper_metadata.errors import (
    ClusterNotInitializedError,
    MetadataAccessError,
    MetadataUnavailableError,
)
from spark_bookkeeper.admin.doctor import machine
from spark_bookkeeper.admin.doctor.cluster import ClusterFacts, ahead_ms, judge_cluster
from spark_bookkeeper.admin.doctor.findings import Finding, Level
from spark_bookkeeper.cli.doctor import _examine_cluster
from spark_bookkeeper.ledger.errors import TlsNeededError
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.local.java import JavaNotFoundError


def bookie(number: int, **differently: Any) -> dict[str, Any]:
    healthy = {
        "bookie_id": f"b{number}:1",
        "address": f"b{number}:1",
        "state": "writable",
        "readonly_by": "",
        "answers": True,
        "version": "1",
        "ledger_count": 7,
        "limbo_count": 0,
        "disk_total_bytes": 100,
        "disk_free_bytes": 50,
    }
    return {**healthy, **differently}


def judged(*bookies: dict[str, Any], **differently: Any) -> dict[str, Finding]:
    healthy: dict[str, Any] = {
        "instance_id": "i",
        "sync_ms": 1.0,
        "clock_ms": 0,
        "bookies": [*bookies] or [bookie(number) for number in range(4)],
        "without_cookie": [],
        "marked_count": 0,
        "is_healing_enabled": True,
        "auditor": "host:1",
    }
    return {
        each.subject: each for each in judge_cluster(ClusterFacts(**{**healthy, **differently}))
    }


def test_a_healthy_cluster_has_nothing_but_good() -> None:
    found = judged()

    assert {each.level for each in found.values()} == {Level.GOOD}
    assert not any(each.advice for each in found.values())
    assert {"metadata service", "clock", "quorums", "auto-recovery", "bookie b0:1"} <= found.keys()


@pytest.mark.parametrize(
    ("differently", "level", "words"),
    [
        ({"state": "away", "answers": False}, Level.WARNING, "away"),
        ({"answers": False}, Level.PROBLEM, "does not answer"),
        ({"state": "readonly", "readonly_by": "disk"}, Level.WARNING, "read-only by disk"),
        ({"state": "readonly", "readonly_by": "hand"}, Level.WARNING, "read-only by hand"),
    ],
)
def test_a_bookie_that_is_ill_is_named(
    differently: dict[str, Any], level: Level, words: str
) -> None:
    found = judged(*(bookie(number) for number in range(4)), bookie(4, **differently))[
        "bookie b4:1"
    ]

    assert found.level is level
    assert words in found.found
    assert found.advice


def test_ledgers_in_limbo_are_told() -> None:
    found = judged(*(bookie(number) for number in range(4)), bookie(4, limbo_count=3))

    assert found["limbo on b4:1"].level is Level.WARNING
    assert "3 ledgers" in found["limbo on b4:1"].found


@pytest.mark.parametrize(
    ("differently", "subject", "level"),
    [
        ({"clock_ms": -3_000}, "clock", Level.WARNING),
        ({"clock_ms": 90_000}, "clock", Level.PROBLEM),
        ({"sync_ms": 900.0}, "metadata service", Level.WARNING),
        ({"without_cookie": ["b2:1"]}, "bookie b2:1", Level.PROBLEM),
        ({"doubtful_of_metadata": ["b2:1"]}, "metadata for b2:1", Level.WARNING),
        ({"marked_count": 3}, "auto-recovery", Level.WARNING),
        ({"auditor": None}, "auto-recovery", Level.WARNING),
        ({"auditor": None, "marked_count": 1}, "auto-recovery", Level.PROBLEM),
        ({"is_healing_enabled": False}, "auto-recovery", Level.WARNING),
        ({"quorums": QuorumConfig(4, 3, 2)}, "quorums", Level.WARNING),
        ({"quorums": QuorumConfig(5, 5, 2)}, "quorums", Level.WARNING),
        ({"quorums": QuorumConfig(5, 5, 5)}, "quorums", Level.PROBLEM),
    ],
)
def test_an_ill_cluster_is_told_what_to_do(
    differently: dict[str, Any], subject: str, level: Level
) -> None:
    found = judged(**differently)

    assert found[subject].level is level
    assert found[subject].advice
    assert all(each.level is Level.GOOD for name, each in found.items() if name != subject)


def test_bookies_that_do_not_answer_count_for_no_quorum() -> None:
    ill = [bookie(number, answers=False) for number in range(3)]

    assert judged(*ill, bookie(3))["quorums"].level is Level.PROBLEM


def test_full_disks_and_mixed_versions_are_named() -> None:
    found = judged(bookie(0, disk_free_bytes=5), bookie(1, version="2"), bookie(2), bookie(3))

    assert found["disk of b0:1"].level is Level.WARNING
    assert "1, 2" in found["versions"].found


def test_clocks_differ_by_what_is_outside_the_two_looks() -> None:
    assert ahead_ms(100, 105, 110) == 0
    assert ahead_ms(100, 40, 110) == 60
    assert ahead_ms(100, 150, 110) == -40


def test_this_machine_is_healthy() -> None:
    found = {each.subject: each for each in machine.examine_machine()}

    assert found["python"].level is Level.GOOD
    assert found["java"].level is Level.GOOD
    assert found["spark's python"].level is Level.GOOD, found["spark's python"]


def test_a_python_of_workers_without_the_package_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    for python in (str(bare), str(tmp_path / "missing")):
        monkeypatch.setenv("PYSPARK_PYTHON", python)

        found = machine._workers_python()

        assert found.level is Level.PROBLEM
        assert python in found.found
        assert "install spark-bookkeeper" in found.advice


def test_no_java_and_few_descriptors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise JavaNotFoundError("none")

    monkeypatch.setattr(machine, "find_java", none)
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1_024))

    assert machine._java().level is Level.PROBLEM
    assert machine._descriptors().level is Level.WARNING


@pytest.mark.parametrize(
    ("error", "subject", "words"),
    [
        (TlsNeededError("b:1", "b:1"), "cluster", "BOOKKEEPER_TLS_TRUST_PATH"),
        (MetadataAccessError("no", "/n", "me", "zk"), "cluster", "zookeeper_auth_path"),
        (MetadataUnavailableError("h:1", "silence"), "metadata service", "start ZooKeeper"),
        (ClusterNotInitializedError("/l"), "metadata service", "cluster init"),
    ],
)
async def test_what_keeps_it_from_the_cluster_has_an_advice_of_its_own(
    error: Exception, subject: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files of TLS or a user's password were missing it advised to start ZooKeeper, which ran."""

    def refuse(_: str) -> None:
        raise error

    monkeypatch.setattr("spark_bookkeeper.aio.BookKeeper", refuse)
    (found,) = await _examine_cluster("zk://h/l", 3, 3, 2)
    assert (found.subject, found.level) == (subject, Level.PROBLEM)
    assert words in found.advice
