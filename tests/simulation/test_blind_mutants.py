"""Five bugs planted by somebody who had not seen the checkers: the whole world notices four.

The fifth, ``outage_means_nobody_replaced``, takes a metadata outage that begins with a lost reply to an
ensemble change, and the right two bookies gone after it; a thousand seeds pass it by. Only
``test_metadata_that_stays_away_ends_the_writer`` notices it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.simulation.blind_mutants import BLIND, outage_means_nobody_replaced
from tests.simulation.run import run_seed

SEEDS_MAX = 1_000
NOTICED = [mutant for mutant in BLIND if mutant is not outage_means_nobody_replaced]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of injected faults are not worth a warning each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("planted", NOTICED, ids=lambda mutant: mutant.__name__)
def test_a_bug_planted_blindly_is_noticed(
    planted: Callable[[], AbstractContextManager[None]],
) -> None:
    with planted():
        noticed = next((seed for seed in range(SEEDS_MAX) if run_seed(seed).violations), None)

    assert noticed is not None
