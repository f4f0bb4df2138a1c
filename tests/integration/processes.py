"""Looking at real processes from outside, with deadlines instead of hope."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bookkeeper_metadata.endpoints import GRPC
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.connect import connect
from bookkeeper_metadata.store.operations import NoNodeError
from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.ports import LOOPBACK, free_port
from spark_bookkeeper.local.readiness import run_in_thread
from tests.patience import Deadline

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
"""A command that ends when it is made to."""
GONE_WITHIN_S = 5.0
"""After whoever started it was killed, no process of a local cluster may live longer."""


_PORTS: set[int] = set()


def new_bookie_id() -> str:
    """Address and port of a bookie to start; each once, for a cluster remembers the disks of every bookie."""
    return f"{LOOPBACK}:{free_port(_PORTS)}"


def eventually(condition: Callable[[], bool], timeout_s: float = GONE_WITHIN_S) -> bool:
    """Whether ``condition`` became true in time, which a slow machine gets more of."""
    deadline = Deadline(timeout_s)
    while not condition():
        if deadline.has_passed:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def paused(bookies: Sequence[LocalBookie]) -> Iterator[None]:
    """These bookies answer nothing for the block."""
    for bookie in bookies:
        bookie.pause()
    try:
        yield
    finally:
        for bookie in bookies:
            bookie.resume()


def port_of(bookie: LocalBookie, carrier: str) -> int:
    """Where the bookie is reached over this carrier, as endpoints name it."""
    return bookie.port if carrier == GRPC else bookie.socket_port


def end_session(uri: str, bookie_id: str) -> None:
    """Take a killed bookie's registration away, as ZooKeeper does ten seconds later by itself.

    For tests that are about what comes then. The wait itself is for real where a test says so
    (``test_a_killed_bookie_comes_back_as_itself_with_its_data``).
    """

    async def delete() -> None:
        store, root = await connect(uri)
        async with store:
            for is_readonly in (False, True):
                with suppress(NoNodeError):
                    await store.delete(Paths(root).bookie(bookie_id, readonly=is_readonly))

    run_in_thread(delete())


def start_again(bookie: LocalBookie, *, replace_lost_directories: bool = False) -> None:
    """Start a killed bookie whose session has ended, and wait until it serves."""
    end_session(bookie.metadata_service_uri, bookie.bookie_id)
    bookie.start(replace_lost_directories=replace_lost_directories)


def command(uri: str, *arguments: object) -> Any:
    """What a ``bookkeeper`` command prints; in a process of its own, for gRPC has trouble with two event loops in one."""
    program = [sys.executable, "-m", "spark_bookkeeper.cli", *map(str, arguments)]
    ended = subprocess.run(
        [*program, "--metadata-service-uri", uri, "--json"],
        env=child_environment(),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr or ended.stdout
    return json.loads(ended.stdout)


def python(script: str, *arguments: object, stdin: int | None = None) -> subprocess.Popen[str]:
    """Run a script in a process of its own, whose output is read; it imports what we do."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        env=child_environment(),
        text=True,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    """What it prints once it is ready."""
    assert process.stdout is not None
    return process.stdout.readline()


def is_alive(pid: int) -> bool:
    """The process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def processes_of(directory: Path) -> list[int]:
    """Every live process that names ``directory`` in its command line, this one excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if os.fsencode(directory) in command and is_alive(int(entry.name)):
            found.append(int(entry.name))
    return found
