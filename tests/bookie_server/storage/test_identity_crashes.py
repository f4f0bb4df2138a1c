"""A start that a crash cuts short, anywhere, is finished by the next one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from tests.bookie_server.storage.claims import (
    ALL,
    NEW,
    claim,
    empty,
    known,
    number_of,
    own_ids,
    put_back,
    started,
)
from tests.simulation.kit.crash_states import CrashStates
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash


def first(files: SimFileSystem) -> None:
    claim(files, NEW)


def again(files: SimFileSystem) -> None:
    claim(files, known(3))


def moving(files: SimFileSystem) -> None:
    claim(files, known(3), replace(ALL, ledger_directories=("/l0", "/elsewhere")))


def adding(files: SimFileSystem) -> None:
    larger = replace(ALL, ledger_directories=("/l0", "/l1", "/l2"))
    claim(files, known(3, may_expand=True), larger)


def replacing(files: SimFileSystem) -> None:
    claim(files, known(3, may_replace=True))


def keeping(files: SimFileSystem) -> None:
    claim(files, known(3, may_replace=True))


def disks_before(start: Callable[[SimFileSystem], None]) -> SimFileSystem:
    """All of it durable."""
    files = SimFileSystem() if start is first else started(3)
    if start is moving:
        put_back(files, files, "/l1", "/elsewhere")
    if start is replacing:
        empty(files, "/l1")
        empty(files, "/j0")
    if start is keeping:
        put_back(files, started(2), "/l1", "/l1")
        files.delete("/l1/cookie")
    return files.copy()


@pytest.mark.parametrize("start", [first, again, moving, adding, replacing, keeping])
@pytest.mark.conformance("S5")
def test_a_start_that_a_crash_cut_short_is_finished_by_the_next(
    start: Callable[[SimFileSystem], None],
) -> None:
    """The metadata has not heard of it: it is told last."""
    states = CrashStates(Random(7), draws=60)
    whole = disks_before(start)
    start(whole)
    untouched = [path for path in ("/l0", "/j1") if start is not first]
    for crash_at in range(whole.steps):
        files = disks_before(start)
        before = own_ids(files, untouched)
        files.crash_at = crash_at
        with suppress(SimulatedCrash):
            start(files)

        for image in states.of(files):
            start(image)

            assert own_ids(image, untouched) == before, f"crash_at={crash_at}"
            used = [each for each in whole.names_now if each.endswith("/starts")]
            counts = {number_of(image, each.removesuffix("/starts")) for each in used}
            assert counts - {3} == {1 if start is first else 4}, f"crash_at={crash_at}"
    assert len(states) > 80
