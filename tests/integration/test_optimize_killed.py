"""The optimizing process dies at any moment: the log is as it was or optimized, and nothing is in the way."""

from __future__ import annotations

import signal
import subprocess
import sys
from random import Random

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.environment import child_environment
from tests.integration.command_line import CommandLine
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RANGES = 24


def values(bk: BookKeeper, log: str) -> list[tuple[int, bytes]]:
    reader = bk.open_log(log).reader()
    return [(position.row, bytes(entry.payload)) for position, entry in reader]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=lambda how: str(how.name))
def test_an_optimize_that_is_ended_at_any_moment_changes_no_row(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster, how: signal.Signals
) -> None:
    log = f"ended-by-{how.name}"
    for number in range(RANGES):
        bookkeeper("logs", "append", log, stdin=f"{number}\n".encode())
    before, random = values(bk, log), Random(how)
    command = [sys.executable, "-m", "spark_bookkeeper.cli", "logs", "optimize", log, "--wait", "0"]
    uri = ("--metadata-service-uri", cluster.metadata_service_uri)

    for _ in range(4):
        with subprocess.Popen(
            [*command, *uri], env=child_environment(), stderr=subprocess.PIPE
        ) as process:
            # From its first import to beyond its end.
            try:
                process.wait(random.uniform(0.5, 2.5))
            except subprocess.TimeoutExpired:
                process.send_signal(how)
            assert process.wait(seconds(60)) in (0, 1, 130, -how, 128 + how)
        assert values(bk, log) == before

    report = bookkeeper.json("logs", "optimize", log, "--wait", 0)
    assert report["failures"] == []
    assert len(bk.open_log(log).ledgers()) == 1
    assert values(bk, log) == before
