"""Exactly once, shown: a bookie is killed, a streaming driver twice, and the log equals its source.

The driver is a process of its own, killed with its JVM and its Python workers as when a machine
dies: once right after a commit, before Spark has noted it, so that the restarted query must skip a
replay; once while tasks are writing, so that ledgers are left which nobody may ever see. The bookie
goes first, while tasks write to it, and stays away: everything after that is written and read without
it. What is compared afterwards is the multiset of rows, and that no ledger is left which no log names.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from spark_bookkeeper import BookKeeper
from spark_bookkeeper.admin.log_documents import session_with
from spark_bookkeeper.demo.report import Report
from spark_bookkeeper.demo.stream_driver import StreamSettings
from spark_bookkeeper.errors import NoSuchLogError
from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.guard import Guard, GuardedProcess

DRIVER_MODULE = "spark_bookkeeper.demo.stream_driver"
BATCHES = 8
FILES_PER_BATCH = 2
"""Each file becomes a partition, and so a ledger."""
FIRST_KILL_BATCH = 2
SECOND_KILL_BATCH = 5
REPLAY_LINE = "replay skipped"

WAIT_TIMEOUT_S = 180.0
_POLL_INTERVAL_S = 0.05
_SHARP_POLL_INTERVAL_S = 0.002
"""Short enough to kill the driver in the hundredths of a second before Spark notes a commit."""
_LOG_TAIL_CHARS = 2000


class StreamDriver:
    """One streaming query in a process of its own, which may be killed and started again."""

    def __init__(self, settings: StreamSettings, guard: Guard) -> None:
        self._settings = settings
        self._guard = guard
        self._process: GuardedProcess | None = None
        self.directory = Path(settings.directory)

    def start(self) -> None:
        """Start the driver; it goes on where its checkpoint says."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", DRIVER_MODULE, json.dumps(asdict(self._settings))]
        with self._output.open("ab") as output:
            self._process = self._guard.popen(command, stdout=output, env=child_environment())

    def kill(self) -> None:
        """SIGKILL the driver, its JVM and its Python workers; returns when all are gone."""
        assert self._process is not None
        kill_session(self._process.pid)
        self._process.wait(WAIT_TIMEOUT_S)

    def wait_for(self, condition: Callable[[], bool], interval_s: float = _POLL_INTERVAL_S) -> bool:
        """Whether ``condition`` came true before the driver reached the end of its input.

        It is asked every ``interval_s`` seconds.

        Raises:
            RuntimeError: the driver failed, or neither happened in time.
        """
        assert self._process is not None
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        pause = threading.Event()
        while not condition():
            if (returncode := self._process.poll()) is not None:
                if returncode != 0:
                    raise RuntimeError(f"the streaming driver failed: {self._output_tail()}")
                return condition()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the stream does not get on: {self._output_tail()}")
            pause.wait(interval_s)
        return True

    def wait_for_end(self) -> None:
        """Return when all input is in the log; raises as :meth:`wait_for`."""
        self.wait_for(lambda: False)

    def last_batch_noted(self) -> int:
        """The last micro-batch in Spark's checkpoint, -1 for none."""
        commits = self.directory / "checkpoint" / "commits"
        return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1)

    def replays(self) -> int:
        """How many replays the commits of all runs have logged as skipped."""
        log = self.directory / "spark" / "spark.log"
        return log.read_text(errors="replace").count(REPLAY_LINE)

    @property
    def _output(self) -> Path:
        return self.directory / "driver.log"

    def _output_tail(self) -> str:
        return self._output.read_text(errors="replace")[-_LOG_TAIL_CHARS:]


class StreamLog:
    """The log that a query writes, as another process sees it."""

    def __init__(self, client: BookKeeper, name: str) -> None:
        self._client = client
        self._name = name
        self._session = session_with(client.metadata_service_uri)

    def last_batch(self) -> int:
        """The last micro-batch in the log, -1 for none."""
        try:
            transactions = self._client.open_log(self._name).transactions()
        except NoSuchLogError:
            return -1
        return max(transactions.values(), default=-1)

    def rows(self) -> int:
        """Rows committed so far."""
        return self._client.open_log(self._name).row_count

    def unpublished_ledgers(self) -> int:
        """Ledgers of tasks whose micro-batch is not committed."""
        session = self._session
        nodes = session.run(session.catalog.open(self._name))
        claimed = {
            child.ledger_id
            for epoch in session.run(nodes.epochs())
            for child in session.run(nodes.token_children(epoch))
        }
        return len(claimed - self.ledgers())

    def ledgers(self) -> set[int]:
        """The ledgers the log names."""
        return {each.ledger_id for each in self._client.open_log(self._name).ledgers()}

    def collect(self) -> None:
        """Collect the log as ``bookkeeper logs gc`` does."""
        nodes = self._session.run(self._session.catalog.open(self._name))
        self._session.run(self._session.collector.collect(nodes.log_id, log=self._name))


@contextmanager
def stream_driver(settings: StreamSettings) -> Iterator[StreamDriver]:
    """A driver that ends with the block, and with this process however that ends."""
    with closing(Guard()) as guard:
        yield StreamDriver(settings, guard)


def run_killed_stream(
    driver: StreamDriver, log: StreamLog, report: Report, bookie: LocalBookie
) -> None:
    """Stream everything into the log, with the bookie killed and then the driver twice on the way."""
    with report.step("stream into a log, until tasks write to it again"):
        driver.start()
        # Behind the first commit: there is a log then, and the stream has begun.
        driver.wait_for(lambda: log.last_batch() >= 0)
        written = 0

        def are_writing() -> bool:
            nonlocal written
            written = log.unpublished_ledgers()
            return written > 0

        driver.wait_for(are_writing, _SHARP_POLL_INTERVAL_S)
    with report.step(f"SIGKILL bookie {bookie.bookie_id} while they do") as step:
        bookie.kill()
        step.note = f"batch {log.last_batch()} in the log, ledgers being written: {written}"

    with report.step(f"stream on without it, to {FIRST_KILL_BATCH + 1} of {BATCHES} batches"):
        driver.wait_for(lambda: log.last_batch() >= FIRST_KILL_BATCH - 1)
        # Only the last batch is watched closely: each look asks ZooKeeper, at the driver's expense.
        driver.wait_for(lambda: log.last_batch() >= FIRST_KILL_BATCH, _SHARP_POLL_INTERVAL_S)
    replays = _kill(driver, log, report)

    _start_again(driver, log, report)
    with _count_rows("stream on, until tasks write", log, report):
        driver.wait_for(
            lambda: log.last_batch() + 1 >= SECOND_KILL_BATCH and log.unpublished_ledgers() > 0,
            _SHARP_POLL_INTERVAL_S,
        )
    replays += _kill(driver, log, report)

    _start_again(driver, log, report)
    with _count_rows("stream the rest", log, report):
        driver.wait_for_end()
    log.collect()
    # As many as Spark made, and not always as many as there is input for: killed between its source's note of a batch's
    # files and its own of the batch, it gives the next one these files and its own.
    report.compare("batches in the log", driver.last_batch_noted() + 1, log.last_batch() + 1)
    report.compare("replays skipped, of commits Spark had not noted", replays, driver.replays())


def _kill(driver: StreamDriver, log: StreamLog, report: Report) -> int:
    """Kill the driver; returns how many commits Spark has not noted and will ask for again."""
    with report.step("SIGKILL driver, JVM and Python workers") as step:
        driver.kill()
        committed, noted = log.last_batch(), driver.last_batch_noted()
        step.note = (
            f"batch {committed} in the log, {noted} in Spark's checkpoint, "
            f"unpublished ledgers: {log.unpublished_ledgers()}"
        )
    return committed - noted


def _start_again(driver: StreamDriver, log: StreamLog, report: Report) -> None:
    killed_at = log.last_batch()
    with report.step("start it again, to its next commit"):
        driver.start()
        driver.wait_for(lambda: log.last_batch() > killed_at)


@contextmanager
def _count_rows(name: str, log: StreamLog, report: Report) -> Iterator[None]:
    """Run a step that counts the rows committed during it."""
    before = log.rows()
    with report.step(name) as step:
        yield
        step.rows = log.rows() - before


def kill_session(session_id: int) -> None:
    """SIGKILL every process of a session; returns when none of them lives.

    A driver leads its session, which its JVM and all Python workers belong to.

    Raises:
        RuntimeError: some survive it.
    """
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    # Until none is found: one may have been forked between the listing and the kill.
    while members := _session_members(session_id):
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes survive SIGKILL: {members}")


def _session_members(session_id: int) -> list[int]:
    """Every live process of a session; Spark's Python workers have process groups of their own."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError):
            # From behind the last parenthesis: a command's name stands in front of it and may hold
            # anything.
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == session_id and state not in "ZX":
                found.append(int(entry.name))
    return found
