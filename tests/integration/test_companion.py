"""The process beside a bookie: when it begins, that it comes again, and that it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spark_bookkeeper.cli.processes import companion
from spark_bookkeeper.cli.processes.companion import Companion
from tests.integration.processes import eventually

pytestmark = pytest.mark.integration

OF_LIFE = "import os, pathlib, sys; pathlib.Path(str(os.getpid())).touch(); sys.stdin.read()"
OF_DEATH = "import os, pathlib, sys; pathlib.Path(str(os.getpid())).touch(); sys.exit(3)"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where each process leaves a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(companion, "_PAUSE_S_MIN", 0.01)
    return tmp_path


def lives(place: Path) -> list[str]:
    return os.listdir(place)


def test_nothing_runs_before_it_is_told_to_begin(place: Path) -> None:
    """It would take its own bookie, which is not registered yet, for lost."""
    with Companion([sys.executable, "-c", OF_LIFE]) as beside:
        threads_before = beside._thread
        nothing = lives(place)
        beside.begin()
        beside.begin()
        assert eventually(lambda: lives(place) != [], 20)

    assert (threads_before, nothing) == (None, [])
    assert len(lives(place)) == 1


def test_one_that_is_closed_begins_no_more(place: Path) -> None:
    beside = Companion([sys.executable, "-c", OF_LIFE])
    beside.close()
    beside.close()

    beside.begin()

    assert beside._thread is None
    assert lives(place) == []


def test_one_that_ends_is_started_again_with_its_exit_code_said(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Companion([sys.executable, "-c", OF_DEATH]) as beside:
        beside.begin()
        assert eventually(lambda: len(lives(place)) > 1, 20)

    assert "auto-recovery ended, starting it again. exit_code=3" in caplog.text


def test_one_that_cannot_be_started_is_tried_again(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the bookie is out of descriptors: it serves on."""
    with Companion([str(place / "missing")]) as beside:
        beside.begin()
        assert eventually(lambda: caplog.text.count("cannot be started yet. detail=") > 1, 20)
