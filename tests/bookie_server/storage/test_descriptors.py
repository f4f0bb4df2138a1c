"""A shortage of descriptors is no error of a disk: there is a reserve, and a machine's is waited out."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from bookie_server.storage.disk import descriptors
from bookie_server.storage.disk.descriptors import connection_limit, with_reserve
from bookie_server.storage.disk.real_files import RealFileSystem
from spark_bookkeeper.local.environment import child_environment

SHORT = """
import os, resource, sys, threading
from bookie_server.storage.disk.descriptors import raise_descriptor_limit, with_reserve
from bookie_server.storage.disk.real_files import RealFileSystem

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
soft = raise_descriptor_limit()
taken = []
try:
    while True:
        taken.append(os.open("/", os.O_RDONLY))
except OSError:
    pass
opened = []

def open_some():
    for _ in range(8):
        opened.append(with_reserve(lambda: os.open("/", os.O_RDONLY)))
        RealFileSystem().names("/")

threads = [threading.Thread(target=open_some) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
try:
    os.open("/", os.O_RDONLY)
    taken.append("one too many")
except OSError:
    pass
print(soft, len(opened), "one too many" in taken, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
"""Takes all there is below the soft limit, then opens 48 more from six threads at once."""


def test_storage_opens_files_where_nobody_else_can_and_leaves_the_limit_as_it_was() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("136 48 False 136\n", "")


def test_a_second_thread_does_not_take_the_raised_limit_for_the_one_to_come_back_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [(100, 200)]
    fake = SimpleNamespace(
        RLIMIT_NOFILE=0,
        getrlimit=lambda _: limits[-1],
        setrlimit=lambda _, limit: limits.append(limit),
    )
    monkeypatch.setattr(descriptors, "resource", fake)
    first_is_inside, second_is_inside, first_is_done = (threading.Event() for _ in range(3))

    def opening(inside: Callable[[], object]) -> None:
        tries: list[tuple[int, int]] = []

        def action() -> None:
            tries.append(limits[-1])
            if len(tries) == 1:
                raise OSError(errno.EMFILE, "short")
            inside()

        with_reserve(action)
        assert tries[1] == (200, 200)

    def first() -> None:
        def inside() -> None:
            first_is_inside.set()
            second_is_inside.wait(0.2)  # in vain, if it waits for its turn

        opening(inside)
        first_is_done.set()

    def second() -> None:
        first_is_inside.wait()

        def inside() -> None:
            second_is_inside.set()
            first_is_done.wait()

        opening(inside)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(first), threads.submit(second)]:
            done.result()

    assert limits[-1] == (100, 200)


class Shortage:
    """Fails so often with one error, then succeeds; the clock goes on by a second with each try."""

    def __init__(self, number: int, times: int) -> None:
        self.tries = 0
        self._number = number
        self._times = times

    def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self._times:
            raise OSError(self._number, "short")
        return "opened"


@pytest.fixture
def shortage(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], Shortage]:
    """A shortage by error and length, on a clock that needs no waiting."""

    def make(number: int, times: int) -> Shortage:
        made = Shortage(number, times)
        clock = SimpleNamespace(monotonic=lambda: float(made.tries))
        monkeypatch.setattr(descriptors, "time", clock)
        monkeypatch.setattr(descriptors, "_RETRY_INTERVAL_S", 0)
        return made

    return make


@pytest.mark.parametrize("number", [errno.ENFILE, errno.ENOMEM])
def test_a_shortage_of_the_machine_is_waited_out_but_not_for_ever(
    number: int, shortage: Callable[[int, int], Shortage]
) -> None:
    assert with_reserve(shortage(number, 8)) == "opened"

    endless = shortage(number, 10**6)
    with pytest.raises(OSError, match="short"):
        with_reserve(endless)
    assert 10 < endless.tries < 15


def test_an_error_of_the_disk_is_no_shortage(shortage: Callable[[int, int], Shortage]) -> None:
    failing = shortage(errno.EIO, 1)

    with pytest.raises(OSError, match="short"):
        with_reserve(failing)
    assert failing.tries == 1


@pytest.mark.parametrize(
    ("soft_limit", "connections_max", "expected"),
    [(20_000, 10_000, 10_000), (1_024, 10_000, 912), (60, 10_000, 30), (1, 10_000, 1)],
)
def test_connections_never_meet_the_limit(
    soft_limit: int, connections_max: int, expected: int
) -> None:
    assert connection_limit(soft_limit, connections_max) == expected


def test_a_directory_is_listed_in_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = Shortage(errno.ENFILE, 2)
    monkeypatch.setattr(descriptors, "_RETRY_INTERVAL_S", 0)
    monkeypatch.setattr("os.listdir", lambda _: [listing()])

    assert RealFileSystem().names("/") == ["opened"]
