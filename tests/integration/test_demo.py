"""The demonstration runs to its end, would notice a difference, and leaves a log one can look at."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spark_bookkeeper import LocalCluster
from spark_bookkeeper.demo.lineitem import generate
from spark_bookkeeper.demo.queries import as_published
from spark_bookkeeper.demo.report import Report
from spark_bookkeeper.demo.run import LOG, STREAM_LOG, DemoSettings
from spark_bookkeeper.demo.stream import (
    BATCHES,
    StreamDriver,
    StreamLog,
    kill_session,
    run_killed_stream,
)
from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.environment import child_environment
from tests.integration.command_line import CommandLine
from tests.integration.processes import is_alive, processes_of
from tests.patience import seconds

Demo = tuple[Path, dict[str, Any]]
"""The directory of one whole run and its document."""
SCALE = "0.01"
ROWS = 60_175
"""Of ``lineitem`` at that scale, by TPC-H's definition."""
KILLED_AT = re.compile(
    r"batch (\d+) in the log, -?\d+ in Spark's checkpoint, unpublished ledgers: \d+"
)

WRITTEN_AT_KILL = re.compile(r"batch (\d+) in the log, ledgers being written: (\d+)")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    directory = tmp_path_factory.mktemp("demo")
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "spark_bookkeeper.cli", "demo", "--json", "--debug"),
            *("--scale", SCALE, "--keep", str(directory)),
        ],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=seconds(580),
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return directory, json.loads(finished.stdout)


@pytest.fixture(scope="module")
def cluster(demo: Demo) -> Iterator[LocalCluster]:
    """The kept cluster, started again."""
    with LocalCluster(3, directory=demo[0] / "cluster") as kept:
        yield kept


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(600)
class TestRun:
    def test_every_comparison_is_equal_and_every_step_measured(self, demo: Demo) -> None:
        directory, document = demo

        assert document["passed"] is True
        assert len(document["comparisons"]) >= 10
        assert all(each["equal"] for each in document["comparisons"])
        measured = [step for step in document["steps"] if step["rows"]]
        assert max(step["rows"] for step in measured) == ROWS
        assert all(step["rows_per_second"] > 0 for step in measured)
        assert processes_of(directory) == []

    def test_a_driver_dies_in_the_middle_twice_and_its_stream_is_compared(self, demo: Demo) -> None:
        _, document = demo

        kills = [each for each in document["steps"] if "SIGKILL driver" in each["step"]]
        batches = [int(found[1]) for each in kills if (found := KILLED_AT.match(each["note"]))]
        assert len(batches) == 2
        assert 0 < batches[0] <= batches[1] < BATCHES
        assert "the stream's log: every row, once" in {
            each["comparison"] for each in document["comparisons"]
        }

    def test_a_bookie_dies_while_the_stream_writes_to_it_and_stays_away(self, demo: Demo) -> None:
        """It died between two steps before, when nothing was written."""
        _, document = demo

        steps = [each["step"] for each in document["steps"]]
        (kill,) = (each for each in document["steps"] if "while they do" in each["step"])
        written = WRITTEN_AT_KILL.fullmatch(kill["note"])
        assert written
        assert 0 <= int(written[1]) < BATCHES - 1
        assert int(written[2]) > 0
        first_driver = next(at for at, step in enumerate(steps) if "SIGKILL driver" in step)
        assert steps.index(kill["step"]) < first_driver < steps.index("read with one bookie dead")

    def test_it_ends_with_a_bookie_that_is_lost_and_healed(self, demo: Demo) -> None:
        _, document = demo

        steps = [each["step"] for each in document["steps"]]
        heal = next(each for each in document["steps"] if each["step"].startswith("heal"))
        assert re.match(r"[1-9]\d* ledgers named .*, now none does", heal["note"])
        assert heal["mb_per_second"] > 0
        verified = steps.index("read every replica of every entry")
        assert steps.index("SIGKILL a bookie, for good") < steps.index(heal["step"]) < verified
        assert steps[-1] == "read with another bookie dead"
        compared = {each["comparison"] for each in document["comparisons"]}
        assert "copies that are missing or differ" in compared

    def test_the_log_it_leaves_can_be_listed_shown_and_read(self, bookkeeper: CommandLine) -> None:
        listed = bookkeeper.json("logs", "list")["logs"]
        shown = bookkeeper.json("logs", "show", LOG)
        text = bookkeeper("logs", "show", LOG)
        rows = bookkeeper.lines("logs", "read", LOG, "--first-row", 100, "--limit", 3)
        complaint = bookkeeper.refused("logs", "read", LOG, "--first-row", "soon", code=2)

        assert [(each["log"], each["rows"]) for each in listed] == [(LOG, ROWS), (STREAM_LOG, ROWS)]
        assert (shown["rows"], shown["next_row"]) == (ROWS, ROWS)
        assert sum(each["rows"] for each in shown["ranges"]) == ROWS
        assert len(shown["schema"]) == 16
        assert "l_shipdate" in text
        assert len(rows) == 3
        assert "'--first-row': 'soon' is no row number" in complaint
        assert set(rows[0]) == {each["column"] for each in shown["schema"]}

    def test_its_end_can_be_followed(self, bookkeeper: CommandLine) -> None:
        last_rows = bookkeeper("logs", "read", LOG, "--first-row", ROWS - 3)
        tail = ("logs", "tail", LOG, "--timeout", seconds(0.3))

        assert bookkeeper(*tail, "--from", ROWS - 3) == last_rows
        first = bookkeeper(*tail, "--from", ROWS - 3, "--limit", 2)
        assert first.splitlines() == last_rows.splitlines()[:2]
        assert bookkeeper(*tail) == ""

    def test_every_row_is_read_once(self, bookkeeper: CommandLine) -> None:
        rows = bookkeeper.lines("logs", "read", LOG)

        keys = {(row["l_orderkey"], row["l_linenumber"]) for row in rows}
        assert (len(rows), len(keys)) == (ROWS, ROWS)

    def test_nothing_is_left_to_collect(self, bookkeeper: CommandLine) -> None:
        report = bookkeeper.json("logs", "gc", LOG, "--dry-run")

        assert (report["dry_run"], report["ledgers_deleted"]) == (True, [])
        assert "ledgers deleted" in bookkeeper("logs", "gc", LOG)

    def test_a_ledger_of_it_verifies(self, bookkeeper: CommandLine) -> None:
        ledger_id = bookkeeper.json("ledgers", "list")["ledgers"][0]["ledger_id"]

        code, out, _ = bookkeeper.outcome("ledgers", "verify", ledger_id, "--json")

        assert json.loads(out)["passed"] is True
        # Two of three copies are enough to be acknowledged.
        assert code in (0, 3)


class Script:
    """A stream whose tasks write two ledgers a batch; each look at it is a step, four are a batch."""

    def __init__(self) -> None:
        self.steps = 0
        self.done: list[str] = []

    @property
    def batch(self) -> int:
        return min(self.steps // 4, BATCHES) - 1

    @property
    def ledgers_written(self) -> int:
        return 2 if self.steps % 4 > 1 else 0


class ScriptedDriver(StreamDriver):
    def __init__(self, script: Script) -> None:
        self._script = script

    def start(self) -> None:
        self._script.done.append("driver started")

    def kill(self) -> None:
        self._script.done.append("driver killed")

    def wait_for(self, condition: Callable[[], bool], interval_s: float = 0.0) -> bool:
        while not condition():
            self._script.steps += 1
            if self._script.batch == BATCHES - 1:
                return condition()
        return True

    def last_batch_noted(self) -> int:
        return self._script.batch

    def replays(self) -> int:
        return 0


class ScriptedLog(StreamLog):
    def __init__(self, script: Script) -> None:
        self._script = script

    def last_batch(self) -> int:
        self._script.steps += 1
        return self._script.batch

    def unpublished_ledgers(self) -> int:
        self._script.steps += 1
        return self._script.ledgers_written

    def rows(self) -> int:
        return 0

    def collect(self) -> None:
        self._script.done.append("collected")


class ScriptedBookie(LocalBookie):
    def __init__(self, script: Script) -> None:
        self._script = script
        self.bookie_id = "127.0.0.1:1"

    def kill(self) -> None:
        self._script.done.append(f"bookie killed, ledgers {self._script.ledgers_written}")


def test_the_bookie_is_killed_while_tasks_write_and_before_any_driver() -> None:
    script, report = Script(), Report(is_quiet=True)

    run_killed_stream(ScriptedDriver(script), ScriptedLog(script), report, ScriptedBookie(script))

    assert script.done == [
        "driver started",
        "bookie killed, ledgers 2",
        "driver killed",
        "driver started",
        "driver killed",
        "driver started",
        "collected",
    ]
    (kill,) = (step for step in report.steps if "while they do" in step.name)
    found = WRITTEN_AT_KILL.fullmatch(kill.note)
    assert found
    assert (int(found[1]) < 2, int(found[2])) == (True, 2)
    assert report.has_passed


FAMILY = """
import os, time
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    grandchild = os.fork()
    if grandchild == 0:
        print(os.getpid(), flush=True)
time.sleep(600)
"""
"""A process whose children have a process group of their own, as Spark's Python workers do."""


@pytest.mark.slow
@pytest.mark.integration
def test_a_killed_driver_takes_processes_of_other_groups_along() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], start_new_session=True, stdout=subprocess.PIPE
    ) as leader:
        assert leader.stdout is not None
        grandchild = int(leader.stdout.readline())

        kill_session(leader.pid)

    assert leader.returncode == -signal.SIGKILL
    assert not is_alive(grandchild)


@pytest.mark.slow
def test_the_generator_makes_the_table_tpc_h_defines(tmp_path: Path) -> None:
    table = generate(tmp_path, 0.01, 2)

    assert table.rows == ROWS
    assert table.size_bytes > ROWS * 100
    assert len(list(table.directory.glob("*.parquet"))) == 2


def test_one_difference_fails_the_run_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()

    report.compare("same", 1, 1)
    passed_before = report.has_passed
    report.compare("rows", 10, 9)

    assert passed_before
    assert not report.has_passed
    assert "DIFFERENT: rows\n    expected 10\n    actual   9\n" in capsys.readouterr().out
    assert report.as_document()["comparisons"][1] == {
        "comparison": "rows",
        "equal": False,
        "expected": "10",
        "actual": "9",
    }


def test_a_run_without_comparisons_has_proved_nothing() -> None:
    assert not Report(is_quiet=True).has_passed


def test_answers_are_rounded_to_cents_as_published() -> None:
    rows = [("A", Decimal("25.505"), Decimal("1.0449"), 3)]

    assert as_published(rows) == ["A|25.51|1.04|3"]


def test_impossible_settings_are_named_together(tmp_path: Path) -> None:
    (tmp_path / "something").touch()

    with pytest.raises(ValueError, match=r"scale must be .*; the directory to keep must be"):
        DemoSettings(scale=-1, keep=tmp_path)
