"""Whole simulated clusters keep every promise, seed for seed; and the simulation reaches what it must.

``make test`` runs a few seeds that follow from the source itself, so that each change of the code
tries others; the long suite runs thousands of new ones. A seed that fails prints how to replay it.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

import pytest

from tests.simulation.kit.campaigns import Share, outputs_of, shares, source_number
from tests.simulation.world.marks import REACHABLE
from tests.simulation.world.run import Outcome, run_seed

SEEDS = 800
SEEDS_FULL = 3_000
SEEDS_PER_JOB = 40
REACHED_AT_LEAST = 20
PINNED = (6, 183, 292, 543, 661, 704, 1128, 5001896, 5003551, 10000217, 10000759, 10002550)
"""Seeds that once found something, in the product or in the simulation."""


@cache
def first_seed() -> int:
    """Follows from the code under test and the simulation: stable, and other after a change."""
    return source_number(
        ("metadata", "bookie_server", "spark_bookkeeper/ledger", "tests/simulation")
    )


def verdict(outcome: Outcome) -> str:
    """What to read when a seed fails; empty for a sound one."""
    if not outcome.violations:
        return ""
    return "\n".join(
        [
            *outcome.violations,
            f"swarm: {outcome.swarm}",
            "last events:",
            *outcome.history.trace()[-20:],
            f"replay: {outcome.replay}",
        ]
    )


def run_batch(first: int, count: int) -> tuple[str, Counter[str]]:
    """The verdicts on ``count`` seeds, and what they reached."""
    logging.disable(logging.CRITICAL)
    reached: Counter[str] = Counter()
    verdicts = ""
    for seed in range(first, first + count):
        outcome = run_seed(seed)
        reached.update(outcome.marks)
        verdicts += verdict(outcome)
    return verdicts, reached


def run_on_all_cores(first: int, count: int) -> tuple[str, Counter[str]]:
    """The same, several batches at a time."""
    firsts = range(first, first + count, SEEDS_PER_JOB)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        batches = list(pool.map(run_batch, firsts, [SEEDS_PER_JOB] * len(firsts)))
    return "".join(verdicts for verdicts, _ in batches), sum((r for _, r in batches), Counter())


@pytest.mark.slow
@pytest.mark.parametrize("share", shares(SEEDS, 160), ids=str)
def test_every_promise_holds(share: Share) -> None:
    verdicts, reached = run_on_all_cores(first_seed() + share.first, share.count)

    assert verdicts == ""
    assert sum(reached.values()) > share.count


@pytest.mark.slow
@pytest.mark.parametrize("seed", PINNED)
def test_a_seed_that_once_failed_passes(seed: int) -> None:
    assert verdict(run_seed(seed)) == ""


@pytest.mark.slow
def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Neither the hash seed of strings nor addresses nor the clock leak into a run."""
    program = (
        "import logging; logging.disable(logging.CRITICAL)\n"
        "from tests.simulation.world.run import run_seed\n"
        "for seed in range(500, 520): print(run_seed(seed).history.hash())\n"
    )

    first, second = outputs_of(program)

    assert first == second
    assert len(first) == 20


@pytest.mark.slow
def test_different_seeds_are_different_runs() -> None:
    hashes = {run_seed(seed).history.hash() for seed in range(10)}

    assert len(hashes) == 10


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_promise_holds_for_thousands_of_new_seeds() -> None:
    verdicts, reached = run_on_all_cores(time.time_ns() // 1_000_000 % 10**9, SEEDS_FULL)

    assert verdicts == ""
    assert {mark: reached[mark] for mark in REACHABLE if reached[mark] < REACHED_AT_LEAST} == {}
