"""A cluster of separate hosts: copies of stragglers, executors and Python workers that die.

Everything Spark decides about attempts here it decides by its defaults, ``spark.task.maxFailures``
included; only the times after which it calls a task slow are short.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.ports import LOOPBACK
from tests.spark import calls
from tests.spark.drivers import CALL_TIMEOUT_S, Driver
from tests.spark.held_source import Hold
from tests.spark.leftovers import assert_nothing_left
from tests.spark.standalone import CORES_PER_WORKER, StandaloneSpark

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCH_ROWS = 500


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    directory = tmp_path_factory.mktemp("standalone")
    with StandaloneSpark(directory) as standalone:
        settings = {
            "master": standalone.master,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.executor.cores": str(CORES_PER_WORKER),
            "spark.executor.memory": "512m",
            "spark.local.dir": str(directory / "scratch"),
            # A task that Spark has killed goes on in Python for as long as its test needs.
            "spark.python.task.killTimeout": "120s",
            "spark.speculation": "true",
            "spark.speculation.interval": "50ms",
            "spark.speculation.multiplier": "1.2",
            "spark.speculation.quantile": "0.5",
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        with Driver(settings, directory / "driver.log", {}) as running:
            yield running


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Attempts held in ``tmp_path``; a test that fails still lets them go."""
    hold = Hold(tmp_path)
    yield hold
    hold.release()


def begin_write(
    driver: Driver, cluster: LocalCluster, hold: Hold, log: str, **options: object
) -> Future[None]:
    """Start appending ``calls.ROWS`` ids to ``log``; options say which attempts are held."""
    held = {"holdFolder": str(hold.folder), **{key: str(each) for key, each in options.items()}}
    uri = cluster.metadata_service_uri
    return driver.begin(calls.write_held, uri=uri, log=log, hold=held)


def ids(driver: Driver, cluster: LocalCluster, log: str) -> list[int]:
    """Every id in the log, as often as it is there."""
    found: list[int] = driver.call(calls.read_ids, uri=cluster.metadata_service_uri, log=log)
    return sorted(found)


def visible(bk: BookKeeper, log: str) -> set[int]:
    return {item.ledger_id for item in bk.open_log(log).ledgers()}


def test_a_copied_straggler_adds_nothing_not_even_after_the_commit(
    driver: Driver, cluster: LocalCluster, bk: BookKeeper, hold: Hold
) -> None:
    log, before = "copied", set(bk.list_ledgers())

    # The call returns while the first attempt is held: a copy of it was committed.
    writing = begin_write(driver, cluster, hold, log, holdPartitions=0)
    (straggler,) = hold.wait_for_held(1)
    begun = set(bk.list_ledgers()) - before
    writing.result(CALL_TIMEOUT_S)

    assert begun - visible(bk, log), "the straggler had a ledger, and it did not become visible"
    # The sweep after the commit has deleted it under the straggler's hands.
    assert set(bk.list_ledgers()) - before == visible(bk, log)
    assert len(visible(bk, log)) == calls.PARTITIONS
    hold.release()
    assert "BK_" in hold.wait_for_end(straggler)
    assert ids(driver, cluster, log) == list(range(calls.ROWS))
    assert_nothing_left(bk, log, before)


def test_a_straggler_and_its_copy_may_finish_at_once(
    driver: Driver, cluster: LocalCluster, bk: BookKeeper, hold: Hold
) -> None:
    log, before = "at-once", set(bk.list_ledgers())

    writing = begin_write(driver, cluster, hold, log, holdPartitions=0, holdAttempts=2)
    attempts = hold.wait_for_held(2)
    hold.release()
    writing.result(CALL_TIMEOUT_S)

    for attempt in attempts:
        hold.wait_for_end(attempt)
    assert attempts[0].executor_pid != attempts[1].executor_pid
    assert ids(driver, cluster, log) == list(range(calls.ROWS))
    assert_nothing_left(bk, log, before)


@pytest.mark.parametrize("victim", ["executor_pid", "worker_pid"])
def test_a_killed_process_costs_its_attempts_and_no_row(
    driver: Driver, cluster: LocalCluster, bk: BookKeeper, hold: Hold, victim: str
) -> None:
    log, before = f"killed-{victim}", set(bk.list_ledgers())

    # All attempts are held, so none finishes and none is copied: what follows is retries.
    writing = begin_write(driver, cluster, hold, log, holdPartitions="all")
    attempts = hold.wait_for_held(calls.PARTITIONS)
    pid = getattr(attempts[0], victim)
    os.kill(pid, signal.SIGKILL)
    hold.release()
    writing.result(CALL_TIMEOUT_S)

    survivors = [attempt for attempt in attempts if getattr(attempt, victim) != pid]
    assert [hold.wait_for_end(attempt) for attempt in survivors] == ["finished"] * len(survivors)
    assert len(survivors) == calls.PARTITIONS - (CORES_PER_WORKER if "exec" in victim else 1)
    assert ids(driver, cluster, log) == list(range(calls.ROWS))
    assert_nothing_left(bk, log, before)
