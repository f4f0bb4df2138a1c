"""Bugs planted by somebody who had not seen the checkers: the whole world notices four of five."""

from __future__ import annotations

import pytest

from tests.simulation.kit.patching import Mutant
from tests.simulation.world.blind_mutants import BLIND
from tests.simulation.world.mutants import hunt_in_world

SEEDS_MAX = 1_000
FOUND_AT = {"sealed_writer_replaces_nobody": 343, "checkpoint_marks_run_ahead": 44}
"""The first seed to notice, when it was looked for last: tried before the others, to save time."""
NOTICED = [mutant for name, mutant in BLIND.items() if name != "outage_means_nobody_replaced"]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", NOTICED, ids=lambda mutant: mutant.name)
def test_a_bug_planted_blindly_is_noticed(mutant: Mutant) -> None:
    kill = hunt_in_world(mutant, (FOUND_AT.get(mutant.name, 0), *range(SEEDS_MAX)))

    assert kill is not None
    assert kill.invariants != ("P",)  # by a checker, and not by the product itself
