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

import pytest

from spark_bookkeeper import BookKeeper
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.ports import LOOPBACK
from tests.patience import seconds
from tests.spark import calls
from tests.spark.drivers import CALL_TIMEOUT_S, Driver, DriverError
from tests.spark.held_source import Hold
from tests.spark.kills.query import ZOMBIE_LIFE_S
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
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        with Driver(settings, directory / "driver.log", {}) as running:
            yield running


@dataclass(frozen=True)
class Write:
    """One append of ``calls.ROWS`` ids by the driver, as a batch or as a stream."""

    driver: Driver
    bk: BookKeeper
    log: str
    hold: Hold
    folder: str | None

    def begin(self, **options: object) -> Future[None]:
        """Start it; the options say which attempts are held."""
        held = {"holdFolder": str(self.hold.folder)}
        held |= {key: str(value) for key, value in options.items()}
        uri = self.bk.metadata_service_uri
        return self.driver.begin(
            calls.write_held, uri=uri, log=self.log, hold=held, folder=self.folder
        )

    def visible(self) -> set[int]:
        """The log's ledgers."""
        return {item.ledger_id for item in self.bk.open_log(self.log).ledgers()}

    def ids(self) -> list[int]:
        """Every id in the log, as often as it is there."""
        uri = self.bk.metadata_service_uri
        found: list[int] = self.driver.call(calls.read_ids, uri=uri, log=self.log)
        return sorted(found)


@pytest.fixture
def write(
    driver: Driver, bk: BookKeeper, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Write]:
    """A write of the way named by the parameter; a test that fails still lets its tasks go."""
    hold = Hold(tmp_path / "hold")
    hold.folder.mkdir()
    stream = str(tmp_path / "stream") if request.param == "stream" else None
    log = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
    yield Write(driver, bk, log, hold, stream)
    hold.release()


LONG_STREAM = pytest.param("stream", marks=pytest.mark.full)


@pytest.mark.parametrize("write", ["batch", LONG_STREAM], indirect=True)
def test_a_copied_straggler_adds_nothing_not_even_after_the_commit(write: Write) -> None:
    before = set(write.bk.list_ledgers())

    # The write ends while the first attempt is held: a copy of it was committed.
    writing = write.begin(holdPartitions=0)
    (straggler,) = write.hold.wait_for_held(1)
    begun = set(write.bk.list_ledgers()) - before
    writing.result(seconds(CALL_TIMEOUT_S))

    assert begun - write.visible(), "the straggler had a ledger, and it did not become visible"
    # The sweep after the commit has deleted it under the straggler's hands.
    assert set(write.bk.list_ledgers()) - before == write.visible()
    assert len(write.visible()) == calls.PARTITIONS
    write.hold.release()
    assert "BK_" in write.hold.wait_for_end(straggler)
    assert write.ids() == list(range(calls.ROWS))
    assert_nothing_left(write.bk, write.log, before)


@pytest.mark.full
@pytest.mark.parametrize("write", ["batch", LONG_STREAM], indirect=True)
def test_a_straggler_and_its_copy_may_finish_at_once(write: Write) -> None:
    before = set(write.bk.list_ledgers())

    writing = write.begin(holdPartitions=0, holdAttempts=2)
    attempts = write.hold.wait_for_held(2)
    write.hold.release()
    writing.result(seconds(CALL_TIMEOUT_S))

    for attempt in attempts:
        write.hold.wait_for_end(attempt)
    assert attempts[0].executor_pid != attempts[1].executor_pid
    assert write.ids() == list(range(calls.ROWS))
    assert_nothing_left(write.bk, write.log, before)


@pytest.mark.full
@pytest.mark.parametrize("victim", ["executor_pid", "worker_pid"])
@pytest.mark.parametrize("write", ["batch", LONG_STREAM], indirect=True)
def test_a_killed_process_costs_its_attempts_and_no_row(write: Write, victim: str) -> None:
    before = set(write.bk.list_ledgers())

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
    assert [
        end for end in ends if end not in ("finished", "killed") and "BK_FENCED" not in end
    ] == []
    assert len(survivors) == calls.PARTITIONS - (CORES_PER_WORKER if "exec" in victim else 1)
    assert write.ids() == list(range(calls.ROWS))
    assert_nothing_left(write.bk, write.log, before)


@pytest.mark.full
@pytest.mark.parametrize("write", ["batch", "stream"], indirect=True)
def test_an_executor_that_is_cut_off_shows_nothing_of_what_it_writes(write: Write) -> None:
    """Its JVM stands still, its Python tasks do not: Spark gives them up, they go on."""
    before = set(write.bk.list_ledgers())

    writing = write.begin(holdPartitions="all")
    attempts = write.hold.wait_for_held(calls.PARTITIONS)
    pid = attempts[0].executor_pid
    unheard, late = (attempt for attempt in attempts if attempt.executor_pid == pid)
    os.kill(pid, signal.SIGSTOP)
    try:
        write.hold.release(*(attempt for attempt in attempts if attempt != late))
        assert write.hold.wait_for_end(unheard) == "finished"
        writing.result(seconds(CALL_TIMEOUT_S))
        write.hold.release()
        # The worker's host may have killed the executor for good by now, tasks included.
        end = write.hold.wait_for_end(late)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    assert end == "killed" or "BK_" in end
    assert write.ids() == list(range(calls.ROWS))
    assert_nothing_left(write.bk, write.log, before)


@pytest.mark.full
@pytest.mark.parametrize("write", ["stream"], indirect=True)
def test_a_driver_killed_in_the_middle_of_a_batch_is_followed_by_one_that_writes_it_once(
    write: Write,
) -> None:
    before = set(write.bk.list_ledgers())

    writing = write.begin(holdPartitions="all")
    write.hold.wait_for_held(calls.PARTITIONS)
    write.driver.kill()
    with pytest.raises(DriverError):
        writing.result(seconds(CALL_TIMEOUT_S))
    assert write.visible() == set()
    write.driver.start()
    write.begin(holdPartitions="none").result(seconds(CALL_TIMEOUT_S))
    write.hold.release()

    assert write.ids() == list(range(calls.ROWS))
    assert_nothing_left(write.bk, write.log, before)
