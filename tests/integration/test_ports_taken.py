"""Processes whose port is taken: they name it, the setting that chose it and what to do, and end with exit code 1."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.errors import LocalStartError
from spark_bookkeeper.local.guard import Guard
from spark_bookkeeper.local.ports import LOOPBACK
from tests.patience import seconds

pytestmark = pytest.mark.integration

NOWHERE = "zk+hierarchical://127.0.0.1:1/ledgers"
PLACES = ["--journal-directories", "journal", "--ledger-directories", "ledgers"]


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name", "flag"),
    [
        (["bookie", *PLACES], "BK_PORT_UNAVAILABLE", "--port"),
        (
            ["bookie", *PLACES, "--port=0", "--bookie-id=b"],
            "BK_PORT_UNAVAILABLE",
            "--socket-port",
        ),
        (
            ["bookie", *PLACES, "--port=0", "--bookie-id=b"],
            "BK_PORT_UNAVAILABLE",
            "--http-port",
        ),
        (["autorecovery"], "BK_PORT_UNAVAILABLE", "--http-port"),
        (["admin", "--metadata-service-uri", NOWHERE], "BK_PORT_UNAVAILABLE", "--port"),
        (["local"], "BK_LOCAL_START", "--port"),
    ],
    ids=["bookie", "bookie's sockets", "bookie's http", "autorecovery", "admin", "local"],
)
def test_a_port_that_is_taken_is_told_with_its_setting(
    command: list[str], name: str, flag: str, taken: int, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "spark_bookkeeper.cli", *command, flag, str(taken)],
        env=child_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=seconds(60),
        check=False,
    )

    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 1
    assert name in last
    assert str(taken) in last
    assert "another process has" in last
    assert "`ss -ltnp`" in last
    assert f"with {flag}" in last
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_local_bookie_whose_port_is_taken_is_not_started(taken: int, tmp_path: Path) -> None:
    """Its own process would advise another port, with which it would be another bookie."""

    class Unused:
        def popen(self, *arguments: Any, **options: Any) -> Any:
            raise AssertionError("spawned")

    bookie = LocalBookie(
        cast(Guard, Unused()),
        port=taken,
        http_port=0,
        socket_port=0,
        rpc_port=0,
        directory=tmp_path / "bookie0",
        metadata_service_uri=NOWHERE,
        settings={},
    )

    with pytest.raises(LocalStartError) as error:
        bookie.spawn()
    assert str(error.value) == (
        f"bookie {LOOPBACK}:{taken} did not start: another process has port {taken} (`ss -ltnp` names it); "
        "end it: the cluster's directory, which has its data, says this port."
    )
