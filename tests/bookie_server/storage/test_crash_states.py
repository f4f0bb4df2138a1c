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

from tests.bookie_server.storage import crash_histories as histories
from tests.simulation.kit.crash_states import CrashStates

STATES_PER_PART = 250
HISTORIES_PER_PART = 60
"""More than enough: a history has some twenty to two hundred states of its own."""
PARTS: dict[Callable[[CrashStates, Random], None], int] = {
    histories.first_start: 2,
    histories.start_again: 8,
    histories.roll: 9,
    histories.lost_journal: 3,
    histories.checkpoint: 12,
    histories.snapshot: 3,
    histories.replay: 8,
    histories.deletion: 8,
    histories.kill: 8,
    histories.cut_twice: 9,
    histories.damage: 6,
    histories.sealed: 3,
    histories.replacing: 4,
}
"""How many tests explore histories of a kind in `make test`; some 20,000 states in all."""
FULL_FACTOR = 5
"""So many times as many in `make full`, of histories that nobody has seen."""


def explore(
    history: Callable[[CrashStates, Random], None], seed: int, states_min: int
) -> CrashStates:
    """Histories of one kind, until they have had so many states."""
    states = CrashStates(Random(seed), draws=12)
    limit = HISTORIES_PER_PART * states_min // STATES_PER_PART
    for number in range(limit):
        history(states, Random(seed + number))
        if len(states) >= states_min:
            sys.stdout.write(f"{history.__name__}: {len(states)} states of {number + 1}\n")
            return states
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
@pytest.mark.conformance("S3", "S7", "S8")
def test_no_crash_loses_denies_or_invents_anything(
    history: Callable[[CrashStates, Random], None], part: int
) -> None:
    explore(history, part * HISTORIES_PER_PART, STATES_PER_PART)


def test_there_are_twenty_thousand_states() -> None:
    """The other part are those of whole starts (test_whole_starts.py)."""
    assert sum(PARTS.values()) * STATES_PER_PART >= 20_000


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("history", PARTS, ids=lambda history: history.__name__)
def test_no_crash_of_many_new_histories_loses_denies_or_invents_anything(
    history: Callable[[CrashStates, Random], None],
) -> None:
    seed = time.time_ns() // 1_000_000 % 10**9

    explore(history, seed, FULL_FACTOR * PARTS[history] * STATES_PER_PART)
