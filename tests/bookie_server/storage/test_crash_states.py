"""Every crash of histories of every kind, drawn at random: nothing acknowledged by then is lost or denied.

Each state is a disk that no other moment left behind, and is judged by starts (``crash_judge``). They are
counted, kind by kind, so that a kind which finds nothing new any more is noticed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from random import Random

import pytest

from tests.bookie_server.storage import (
    burial_histories,
    compaction_histories,
    dropping_histories,
)
from tests.bookie_server.storage import crash_histories as histories
from tests.simulation.kit.crash_states import CrashStates

STATES_PER_PART = 500
HISTORIES_PER_PART = 120
"""More than enough: a history has twenty states of its own or more."""
PARTS: dict[Callable[[CrashStates, Random], None], int] = {
    histories.first_start: 1,
    histories.start_again: 3,
    histories.roll: 4,
    histories.lost_journal: 2,
    histories.checkpoint: 6,
    histories.laps: 4,
    histories.snapshot: 1,
    histories.replay: 4,
    histories.deletion: 4,
    histories.kill: 4,
    histories.kept: 2,
    histories.cut_twice: 4,
    histories.damage: 4,
    histories.sealed: 1,
    histories.replacing: 2,
    dropping_histories.dropping: 3,
    burial_histories.burial: 3,
    burial_histories.burial_without_room: 2,
    compaction_histories.compaction: 4,
    compaction_histories.compaction_overtaken: 3,
    compaction_histories.compaction_without_room: 1,
}
"""How many tests explore histories of a kind in `make test`."""
STATES_PER_HISTORY = 60
"""About so many of a long history's states are judged, at random: many histories find more than many
states of one."""
FULL_FACTOR = 4
"""So many times as many in `make full`, of histories that nobody has seen."""


def explore(
    history: Callable[[CrashStates, Random], None], seed: int, states_min: int
) -> CrashStates:
    """Histories of one kind, until so many of their states were judged."""
    states = CrashStates(Random(seed), draws=12, share=STATES_PER_HISTORY / 240)
    limit = HISTORIES_PER_PART * states_min // STATES_PER_PART
    for number in range(limit):
        history(states, Random(seed + number))
        if len(states) >= states_min:
            sys.stdout.write(f"{history.__name__}: {len(states)} states of {number + 1}\n")
            return states
        # A short history may meet none.
        states.share = min(1, STATES_PER_HISTORY * (number + 1) / max(states.met, 1))
    raise AssertionError(f"{history.__name__}: {limit} histories had {len(states)} states only")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "part"),
    [
        pytest.param(history, part, id=f"{history.__name__}-{part}")
        for history, parts in PARTS.items()
        for part in range(parts)
    ],
)
@pytest.mark.conformance("S3", "S6", "S7", "S8")
def test_no_crash_loses_denies_or_invents_anything(
    history: Callable[[CrashStates, Random], None], part: int
) -> None:
    explore(history, part * HISTORIES_PER_PART, STATES_PER_PART)


def test_the_states_are_as_many_as_the_documents_say() -> None:
    """Beside those of whole starts (test_whole_starts.py)."""
    states = sum(PARTS.values()) * STATES_PER_PART
    assert states >= 20_000
    assert states * FULL_FACTOR >= 100_000


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("history", PARTS, ids=lambda history: history.__name__)
def test_no_crash_of_many_new_histories_loses_denies_or_invents_anything(
    history: Callable[[CrashStates, Random], None],
) -> None:
    seed = time.time_ns() // 1_000_000 % 10**9

    explore(history, seed, FULL_FACTOR * PARTS[history] * STATES_PER_PART)
