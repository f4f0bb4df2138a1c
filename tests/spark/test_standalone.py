"""A cluster of separate hosts: copies of stragglers, executors and Python workers that die.

Everything Spark decides about attempts here it decides by its defaults, ``spark.task.maxFailures``
included; only the times after which it calls a task slow are short.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bookkeeper_metadata.environment import METADATA_URI_VARIABLE
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.environment import child_environment
from tests.patience import seconds
from tests.spark import calls
from tests.spark.drivers import CALL_TIMEOUT_S, JAVA_OPTIONS, SETTINGS, Driver, DriverError
from tests.spark.held_source import Hold
from tests.spark.kills.query import ZOMBIE_LIFE_S
from tests.spark.leftovers import assert_nothing_left
from tests.spark.servers import CORES_PER_WORKER, standalone_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCH_ROWS = 500


@pytest.fixture(scope="session")
def driver(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    directory = tmp_path_factory.mktemp("standalone")
    environment = {METADATA_URI_VARIABLE: cluster.metadata_service_uri}
    with standalone_spark(directory) as master:
        settings = {
            **SETTINGS,
            "spark.master": master,
            "spark.executor.cores": str(CORES_PER_WORKER),
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": child_environment()["PYTHONPATH"],
            "spark.local.dir": str(directory / "scratch"),
            # A task that Spark has killed goes on in Python for as long as its test needs.
            "spark.python.task.killTimeout": f"{seconds(ZOMBIE_LIFE_S):.0f}s",
            # An executor that says nothing for so long is lost.
            "spark.executor.heartbeatInterval": "2s",
            "spark.network.timeout": f"{seconds(45):.0f}s",
            "spark.network.timeoutInterval": "5s",
            "spark.speculation": "true",
            "spark.speculation.interval": "50ms",
            "spark.speculation.multiplier": "1.2",
            "spark.speculation.quantile": "0.5",
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        }
        with Driver(settings, directory / "driver.log", **environment) as running:
            yield running


@dataclass
class Write:
    """One append of ``calls.ROWS`` ids by the driver, as a batch or as a stream."""

    driver: Driver
    bk: BookKeeper
    log: str
    hold: Hold
    folder: str | None

    def __post_init__(self) -> None:
        self._ledgers_before = set(self.bk.list_ledgers())

    def begin(self, **options: object) -> Future[None]:
        """Start it; the options say which attempts are held."""
        held = {key: str(value) for key, value in options.items()}
        held["holdFolder"] = str(self.hold.folder)
        return self.driver.begin(calls.write_held, log=self.log, hold=held, folder=self.folder)

    def ledgers(self) -> set[int]:
        """Of this test's writes, visible or not."""
        return set(self.bk.list_ledgers()) - self._ledgers_before

    def visible(self) -> set[int]:
        """The log's ledgers."""
        return {item.ledger_id for item in self.bk.open_log(self.log).ledgers()}

    def check_done(self, *, days_later: int = 0) -> None:
        """Every id is in the log once, and nothing else is left."""
        assert self.driver.call(calls.read_ids, log=self.log) == list(range(calls.ROWS))
        assert_nothing_left(self.bk, self.log, self._ledgers_before, days_later=days_later)


@pytest.fixture
def write(
    driver: Driver, bk: BookKeeper, log: str, hold: Hold, tmp_path: Path, request: Any
) -> Write:
    """A batch, or a stream with the parameter ``stream``."""
    is_stream = getattr(request, "param", "batch") == "stream"
    return Write(driver, bk, log, hold, str(tmp_path / "stream") if is_stream else None)


LONG_STREAM = pytest.param("stream", marks=pytest.mark.full)


@pytest.mark.parametrize("write", ["batch", LONG_STREAM], indirect=True)
def test_a_copied_straggler_adds_nothing_not_even_after_the_commit(write: Write) -> None:
    # The write ends while the first attempt is held: a copy of it was committed.
    writing = write.begin(holdPartitions=0)
    (straggler,) = write.hold.wait_for_held(1)
    begun = write.ledgers()
    writing.result(seconds(CALL_TIMEOUT_S))

    assert begun - write.visible(), "the straggler had a ledger, and it did not become visible"
    # The sweep after the commit has deleted it under the straggler's hands.
    assert write.ledgers() == write.visible()
    assert len(write.visible()) == calls.PARTITIONS
    write.hold.release()
    assert "BK_" in write.hold.wait_for_end(straggler)
    write.check_done()


@pytest.mark.full
@pytest.mark.parametrize("write", ["batch", LONG_STREAM], indirect=True)
def test_a_straggler_and_its_copy_may_finish_at_once(write: Write) -> None:
    writing = write.begin(holdPartitions=0, holdAttempts=2)
    attempts = write.hold.wait_for_held(2)
    write.hold.release()
    writing.result(seconds(CALL_TIMEOUT_S))

    for attempt in attempts:
        write.hold.wait_for_end(attempt)
    assert attempts[0].executor_pid != attempts[1].executor_pid
    write.check_done()


@pytest.mark.full
@pytest.mark.parametrize("victim", ["executor_pid", "worker_pid"])
@pytest.mark.parametrize("write", ["batch", LONG_STREAM], indirect=True)
def test_a_killed_process_costs_its_attempts_and_no_row(write: Write, victim: str) -> None:
    # All attempts are held, so none finishes and none is copied before the kill.
    writing = write.begin(holdPartitions="all")
    attempts = write.hold.wait_for_held(calls.PARTITIONS)
    pid = getattr(attempts[0], victim)
    os.kill(pid, signal.SIGKILL)
    write.hold.release()
    writing.result(seconds(CALL_TIMEOUT_S))

    survivors = [attempt for attempt in attempts if getattr(attempt, victim) != pid]
    ends = [write.hold.wait_for_end(attempt) for attempt in survivors]
    # Once some have finished, Spark may copy one that has not, and the copy may be first.
    assert all(end in ("finished", "killed") or "BK_FENCED" in end for end in ends), ends
    assert len(survivors) == calls.PARTITIONS - (CORES_PER_WORKER if "exec" in victim else 1)
    write.check_done()


@pytest.mark.full
@pytest.mark.parametrize("write", ["batch", "stream"], indirect=True)
def test_an_executor_that_is_cut_off_shows_nothing_of_what_it_writes(write: Write) -> None:
    """Its JVM stands still, its Python tasks do not: Spark gives them up, they go on."""
    writing = write.begin(holdPartitions="all")
    attempts = write.hold.wait_for_held(calls.PARTITIONS)
    pid = attempts[0].executor_pid
    unheard, late = (attempt for attempt in attempts if attempt.executor_pid == pid)
    os.kill(pid, signal.SIGSTOP)
    try:
        write.hold.release(*(attempt for attempt in attempts if attempt != late))
        # On a busy machine Spark may have given it up before, and the copy has fenced it.
        heard_of = write.hold.wait_for_end(unheard)
        assert heard_of == "finished" or "BK_FENCED" in heard_of
        writing.result(seconds(CALL_TIMEOUT_S))
        write.hold.release()
        # The worker's host may have killed the executor for good by now, tasks included.
        end = write.hold.wait_for_end(late)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    assert end == "killed" or "BK_" in end
    write.check_done()


@pytest.mark.full
@pytest.mark.parametrize("write", ["batch", "stream"], indirect=True)
def test_a_driver_killed_in_the_middle_of_a_batch_is_followed_by_one_that_writes_it_once(
    write: Write,
) -> None:
    writing = write.begin(holdPartitions="all")
    write.hold.wait_for_held(calls.PARTITIONS)
    write.driver.kill()
    with pytest.raises(DriverError):
        writing.result(seconds(CALL_TIMEOUT_S))
    assert write.visible() == set()
    write.driver.start()
    write.begin(holdPartitions="none").result(seconds(CALL_TIMEOUT_S))
    write.hold.release()

    # Nothing names the batch that was to be: only its age tells that nobody will commit it.
    write.check_done(days_later=8 if write.folder is None else 0)


@pytest.mark.full
def test_a_retried_task_writes_its_rows_once(write: Write) -> None:
    write.driver.call(calls.write_with_retries, log=write.log)

    assert len(write.visible()) == calls.PARTITIONS
    assert write.ledgers() == write.visible()
    write.check_done()
