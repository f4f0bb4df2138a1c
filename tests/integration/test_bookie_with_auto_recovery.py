"""Auto-recovery beside a bookie, by a setting: it heals, comes again when it dies, and never outlives the bookie."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bookkeeper import LocalCluster
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.ports import free_port
from tests.integration.command_line import CommandLine
from tests.integration.processes import eventually, is_alive, new_bookie_id, processes_of
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3) as running:
        yield running


@pytest.fixture
def bookie(cluster: LocalCluster, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that is started as an operator would, from a file."""
    bookie_id = new_bookie_id()
    port = int(bookie_id.rpartition(":")[2])
    settings = {
        "bookie_id": bookie_id,
        "port": port,
        "socket_port": free_port(taken := {port}),
        "rpc_port": free_port(taken),
        "metadata_service_uri": cluster.metadata_service_uri,
        "journal_directories": [str(tmp_path / "journal")],
        "ledger_directories": [str(tmp_path / "ledgers")],
        "autorecovery": True,
        "autorecovery_config": str(tmp_path / "autorecovery.toml"),
    }
    (tmp_path / "autorecovery.toml").write_text("open_ledger_grace_ms = 1000\npoll_ms = 100\n")
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    (tmp_path / "bookie.toml").write_text(lines)
    command = [sys.executable, "-m", "spark_bookkeeper.cli", "bookie"]
    with subprocess.Popen(
        [*command, "--config", str(tmp_path / "bookie.toml")], env=child_environment()
    ) as process:
        yield process
        if process.poll() is None:
            process.kill()


def companions(tmp_path: Path) -> list[int]:
    """Processes of auto-recovery that were told this test's file."""
    return processes_of(tmp_path / "autorecovery.toml")


def auditor(bookkeeper: CommandLine) -> str | None:
    status: dict[str, str | None] = bookkeeper.json("autorecovery", "status")
    return status["auditor"]


def test_it_runs_beside_the_bookie_as_long_as_that_does(
    bookkeeper: CommandLine, bookie: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert eventually(lambda: auditor(bookkeeper) is not None, 60)
    (first,) = companions(tmp_path)

    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: companions(tmp_path) not in ([], [first]), 60)
    (second,) = companions(tmp_path)

    assert bookie.poll() is None
    bookie.send_signal(signal.SIGTERM)
    assert bookie.wait(seconds(60)) == 0
    assert not is_alive(second)


def test_it_ends_with_a_bookie_that_is_killed(
    bookkeeper: CommandLine, bookie: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert eventually(lambda: companions(tmp_path) != [], 60)
    assert eventually(lambda: auditor(bookkeeper) is not None, 60)

    bookie.kill()

    assert eventually(lambda: companions(tmp_path) == [], 30)
