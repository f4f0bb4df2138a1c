"""Known bugs planted in the code that only whole clusters run: each must be noticed.

A mutant counts as noticed when an invariant that is expected to does in any of the first seeds; the
seeds are fixed, so is the result.
"""

from __future__ import annotations

import pytest

from tests.simulation.kit.patching import Mutant
from tests.simulation.world.mutants import MUTANTS, hunt_in_world

SEEDS_MAX = 600
FOUND_AT = {
    "acknowledged_before_metadata": 28,
    "add_after_fence": 23,
    "change_overrides_recovery": 18,
    "damage_is_absence": 143,
}
"""The first seed to notice, when it was looked for last: tried before the others, to save time."""
RARE = ("limbo_denies",)
"""Hundreds of seeds pass before these are noticed: for the long suite."""


PLANTED = [
    pytest.param(mutant, marks=[pytest.mark.full] if name in RARE else [], id=name)
    for name, mutant in MUTANTS.items()
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", PLANTED)
def test_the_mutant_is_noticed(mutant: Mutant) -> None:
    seeds = (FOUND_AT.get(mutant.name, 0), *range(SEEDS_MAX))

    assert hunt_in_world(mutant, seeds, mutant.caught_by) is not None
