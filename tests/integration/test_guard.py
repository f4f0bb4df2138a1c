"""Processes started through the guard never outlive whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bookkeeper.local.guard import Guard
from tests.integration.processes import SLEEPS, eventually, first_line, is_alive, python
from tests.patience import seconds

pytestmark = pytest.mark.integration

LAUNCHER = """
import sys, time
from pathlib import Path
from spark_bookkeeper.local.guard import Guard
guard = Guard(remove=Path(sys.argv[1]))
child = guard.popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(guard.pid, child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.close()


def launch(directory: Path, script: str = LAUNCHER) -> tuple[subprocess.Popen[str], list[int]]:
    """A launcher of its own with one child: the launcher, and the process ids it prints."""
    launcher = python(script, directory)
    return launcher, [int(pid) for pid in first_line(launcher).split()]


@pytest.mark.parametrize(("x", "code"), [("here", 3), ("y" * 100_000, 0)], ids=["short", "large"])
def test_exit_codes_output_and_environment_pass_like_those_of_own_children(
    guard: Guard, tmp_path: Path, x: str, code: int
) -> None:
    with (tmp_path / "log").open("wb") as log:
        child = guard.popen(
            [sys.executable, "-c", f"import os; print(os.environ['X'], os.getcwd()); exit({code})"],
            stdout=log,
            env={**os.environ, "X": x},
            cwd=tmp_path,
        )

    assert child.wait(seconds(10)) == code
    assert (tmp_path / "log").read_text() == f"{x} {tmp_path}\n"


def test_a_signalled_child_reports_the_signal(guard: Guard) -> None:
    child = guard.popen(SLEEPS)

    child.terminate()

    assert child.wait(seconds(10)) == -signal.SIGTERM
    child.kill()  # nothing happens to a process that has ended


def test_a_command_that_does_not_exist_is_an_error_here(guard: Guard, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        guard.popen([str(tmp_path / "missing")])


def test_waiting_for_a_running_child_times_out(guard: Guard) -> None:
    child = guard.popen(SLEEPS)

    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.05)


def test_closing_the_guard_kills_its_children_and_removes_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "temporary"
    directory.mkdir()
    guard = Guard(remove=directory)
    pid = guard.popen(SLEEPS).pid

    guard.close()
    guard.close()

    assert not is_alive(pid)
    assert not directory.exists()
    with pytest.raises(OSError, match="closed"):
        guard.popen(SLEEPS)


@pytest.mark.parametrize("is_paused", [False, True])
def test_children_die_with_a_launcher_killed_by_sigkill(tmp_path: Path, is_paused: bool) -> None:
    directory = tmp_path / "temporary"
    directory.mkdir()
    launcher, pids = launch(directory)
    if is_paused:
        os.kill(pids[1], signal.SIGSTOP)

    launcher.kill()
    launcher.communicate()

    assert eventually(lambda: not any(map(is_alive, pids)))
    assert eventually(lambda: not directory.exists())


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_children_die_with_the_guard_itself(tmp_path: Path) -> None:
    launcher, (guard_pid, child_pid) = launch(tmp_path / "unused")

    os.kill(guard_pid, signal.SIGKILL)

    assert eventually(lambda: not is_alive(child_pid))
    launcher.kill()
    launcher.communicate()


@pytest.mark.slow
def test_a_fork_that_holds_the_control_socket_saves_nobody(tmp_path: Path) -> None:
    forking = LAUNCHER.replace(
        "print(",
        "import os\nif (fork := os.fork()) == 0: time.sleep(20); os._exit(0)\nprint(fork, ",
    )
    launcher, (fork_pid, *pids) = launch(tmp_path / "unused", forking)

    launcher.kill()
    launcher.wait()

    try:
        assert eventually(lambda: not any(map(is_alive, pids)))
    finally:
        os.kill(fork_pid, signal.SIGKILL)
        launcher.communicate()
