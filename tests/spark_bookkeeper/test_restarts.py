"""Bookies of a local cluster that died are started again, ever more rarely."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.errors import LocalStartError
from spark_bookkeeper.local.restarts import PAUSE_MAX_S, Restarts
from tests.patience import seconds


@dataclass
class Mortal:
    """Dies whenever it is told to."""

    bookie_id: str = "b"
    has_died: bool = False
    exit_code: int = 1
    log_path: Path = Path("missing")
    spawned_at_s: list[float] = field(default_factory=list)
    now_s: float = 1000.0

    def spawn(self) -> None:
        self.has_died = False
        self.spawned_at_s.append(self.now_s)


def run(mortal: Mortal, seconds: int, *, dies_at_once: bool) -> list[float]:
    """How long after the first death it was started, looked at every second."""
    restarts = Restarts(lambda: mortal.now_s)
    begin_s = mortal.now_s
    mortal.has_died = True
    for _ in range(seconds):
        restarts.look([cast(LocalBookie, mortal)])
        mortal.has_died = mortal.has_died or dies_at_once
        mortal.now_s += 1
    return [at_s - begin_s for at_s in mortal.spawned_at_s]


def test_a_bookie_that_died_is_started_once() -> None:
    assert run(Mortal(), 200, dies_at_once=False) == [0]


def test_one_that_dies_again_and_again_is_started_ever_more_rarely() -> None:
    started = run(Mortal(), 400, dies_at_once=True)

    pauses = [after - before for before, after in pairwise(started)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 32]
    assert set(pauses[6:]) == {PAUSE_MAX_S}


def test_one_that_lived_long_is_started_at_once_again() -> None:
    mortal = Mortal()
    restarts = Restarts(lambda: mortal.now_s)
    for _ in range(3):
        mortal.has_died = True
        restarts.look([cast(LocalBookie, mortal)])
        assert not mortal.has_died
        mortal.now_s += PAUSE_MAX_S
        restarts.look([cast(LocalBookie, mortal)])


def test_one_whose_port_another_process_has_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The thread that looks must not end by it."""
    mortal = Mortal(has_died=True)
    restarts, tried = Restarts(lambda: mortal.now_s), threading.Event()

    def spawn() -> None:
        tried.set()
        raise LocalStartError("bookie b", "another process has port 1", "")

    mortal.spawn = spawn  # type: ignore[method-assign]
    restarts.begin(lambda: [cast(LocalBookie, mortal)])
    assert tried.wait(seconds(20))
    restarts.end()

    assert "could not be started again; bookie b did not start: another process has" in caplog.text
