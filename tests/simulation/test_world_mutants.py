"""Known bugs planted in the code that only whole clusters run, and bugs planted blindly.

A mutant counts as noticed when an invariant that is expected to does in any of the first seeds; the
seeds are fixed, so is the result. Of those planted by somebody who had not seen the checkers the whole
world notices four of five.
"""

from __future__ import annotations

import pytest

from tests.simulation.kit.patching import Mutant
from tests.simulation.world.blind_mutants import BLIND
from tests.simulation.world.mutants import MUTANTS, hunt_in_world

FOUND_AT = {
    "acknowledged_before_metadata": 9,
    "add_after_fence": 32,
    "change_overrides_recovery": 0,
    "limbo_denies": 13,
    "negative_before_durable_fence": 1,
    "damage_is_absence": 34,
    "sealed_writer_replaces_nobody": 74,
    "close_trims_a_fragment_of_one_entry": 19,
    "checkpoint_marks_run_ahead": 62,
    "write_back_in_place": 9,
    "add_on_the_recovery_reserve": 18,
    "by_hand_not_heard": 18,
    "fence_refused_when_full": 16,
    "no_hysteresis": 155,
    "no_room_for_good": 17,
    "read_only_ends_the_writer": 18,
    "read_only_for_good": 10,
    "read_only_is_stored": 18,
    "read_only_registered_writable": 6,
    "readonly_counts_as_writable": 17,
    "recovery_add_on_the_fences_reserve": 58,
    "sealed_for_good": 1,
    "sealed_start_writes": 1,
    "sealed_without_replay": 17,
    "without_room_counts_as_written": 17,
    "fence_forgotten_in_replay": 1,
    "copies_are_a_writers": 1,
    "damage_is_forgotten": 29,
    "damage_is_listed": 29,
    "last_window_left_out": 36,
    "limbo_ends_unread": 50,
    "limbo_for_good": 30,
    "limbo_of_open_ends": 286,
    "limbo_passed_over": 33,
    "lost_alone_is_not_lost": 703,
    "named_before_copied": 41,
    "nobody_asks": 36,
    "open_fragment_is_complete": 61,
    "stripe_of_the_neighbour": 29,
}
"""The first seed to notice, when it was looked for last: tried before the others, to save time."""
NOTICED = [mutant for name, mutant in BLIND.items() if name != "outage_means_nobody_replaced"]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_the_mutant_is_noticed(mutant: Mutant) -> None:
    seeds = (FOUND_AT.get(mutant.name, 0), *range(3_000))

    assert hunt_in_world(mutant, seeds, mutant.caught_by) is not None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", NOTICED, ids=lambda mutant: mutant.name)
def test_a_bug_planted_blindly_is_noticed(mutant: Mutant) -> None:
    kill = hunt_in_world(mutant, (FOUND_AT.get(mutant.name, 0), *range(1_000)))

    assert kill is not None
    assert kill.invariants != ("P",)  # by a checker, and not by the product itself
