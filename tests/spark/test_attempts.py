"""Attempts that fail, drivers that die: rows are visible once or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import functions as sf

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.environment import child_environment
from tests.patience import Deadline, seconds
from tests.spark import attempts_job
from tests.spark.conftest import Logs

pytestmark = [pytest.mark.spark, pytest.mark.slow]

START_TIMEOUT_S = 120


def start(cluster: LocalCluster, log: str, mode: str, flag: Path) -> subprocess.Popen[bytes]:
    environment = {**child_environment(), "PYSPARK_PYTHON": sys.executable}
    with flag.with_suffix(".log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, attempts_job.__file__, cluster.metadata_service_uri, log, mode, flag],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def run(cluster: LocalCluster, log: str, mode: str, flag: Path) -> None:
    job = start(cluster, log, mode, flag)
    try:
        assert job.wait(seconds(START_TIMEOUT_S)) == 0, flag.with_suffix(".log").read_text()[-3000:]
    finally:
        kill(job)


def kill(job: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM and its Python workers at once, as when a machine dies."""
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    job.wait()


def facts(logs: Logs, log: str) -> tuple[int, int, int]:
    found = logs.read(log).agg(sf.count("id"), sf.count_distinct("id"), sf.sum("id")).collect()[0]
    return found[0], found[1], found[2] or 0


ALL = (attempts_job.ROWS, attempts_job.ROWS, sum(range(attempts_job.ROWS)))


@pytest.mark.full
def test_a_retried_task_writes_its_rows_once(
    logs: Logs, cluster: LocalCluster, bk: BookKeeper, tmp_path: Path
) -> None:
    before = set(bk.list_ledgers())

    run(cluster, "retried", "retry", tmp_path / "flag")

    assert facts(logs, "retried") == ALL
    visible = {row[0] for row in _ledgers(logs, "retried")}
    assert set(bk.list_ledgers()) - before == visible
    assert len(visible) == attempts_job.PARTITIONS


@pytest.mark.full
def test_a_driver_killed_in_the_middle_shows_nothing_and_stops_nobody(
    logs: Logs, cluster: LocalCluster, bk: BookKeeper, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    job = start(cluster, "killed", "hang", flag)
    try:
        deadline = Deadline(START_TIMEOUT_S)
        while not flag.exists():
            assert job.poll() is None, flag.with_suffix(".log").read_text()[-3000:]
            assert not deadline.has_passed
            threading.Event().wait(0.1)
    finally:
        kill(job)
    assert facts(logs, "killed") == (0, 0, 0)

    run(cluster, "killed", "plain", flag)

    assert facts(logs, "killed") == ALL


def _ledgers(logs: Logs, log: str) -> list[tuple[int]]:
    return logs.read(log, includeMetadata="true").select("_ledger").distinct().collect()  # type: ignore[return-value]
