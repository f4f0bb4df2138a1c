"""The commit protocol keeps every promise, seed for seed (``python -m tests.simulation.commits``).

``make test`` runs seeds that follow from the source, so that each change of the code tries others;
directed schedules take it where chance seldom does.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.simulation.commits.campaign import Report, run_campaign, seed_base
from tests.simulation.commits.model import run_schedule
from tests.simulation.commits.playing import run_directed
from tests.simulation.commits.registry import DIRECTED
from tests.simulation.kit.campaigns import Share, outputs_of, shares

SCHEDULES = 500
"""In ``make test``: about 15 s on two cores."""
SHARES = shares(SCHEDULES, 125)
SCHEDULES_FULL = 6_000
REACHED_AT_LEAST = 5
MARKS = (
    "request lost",
    "applied, reply lost",
    "given up, applied later",
    "stale read",
    "driver killed",
    "commit killed",
    "abort killed",
    "task killed",
    "gc killed",
    "truncate killed",
    "writer killed",
    "task run twice at once",
    "stage run again",
    "two drivers",
    "checkpoint rolled back",
    "clock leapt",
    "aborted",
    "commit called without a message",
    "task found its transaction stored",
    "predecessors not fenced",
    "plan met a writer",
    "commit ended COMMITTED",
    "commit ended REPLAYED",
    "commit ended by CommitRefusedError",
    "commit ended by LogConflictError",
    "commit ended by LogHasWriterError",
    "commit ended by TxnAppReusedError",
    "commit ended by TxnRegressedError",
    "rows read",
    "read refused",
    "groups exchanged",
    "groups given up",
    "optimize killed",
    "rewrite killed",
    "retain killed",
    "consumer was told",
)
"""Situations the schedules must come to before their silence means anything."""


@cache
def run_share(share: Share) -> Report:
    """Some of the schedules of this source tree."""
    return run_campaign(seed_base() + share.first, share.count)


@pytest.fixture(scope="module")
def campaign() -> Report:
    """All of them: the shares that were run before are not run again."""
    whole = Report()
    for share in SHARES:
        whole.add(run_share(share))
    return whole


@pytest.mark.slow
@pytest.mark.parametrize("share", SHARES, ids=str)
def test_no_schedule_breaks_a_promise(share: Share) -> None:
    report = run_share(share)

    assert report.schedules == share.count
    assert report.failures == []


@pytest.mark.slow
def test_the_shares_are_the_schedules(campaign: Report) -> None:
    assert campaign.schedules == SCHEDULES


@pytest.mark.slow
@pytest.mark.parametrize("mark", MARKS)
def test_the_schedules_were_in_every_interesting_situation(campaign: Report, mark: str) -> None:
    assert campaign.marks[mark] >= REACHED_AT_LEAST


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_no_fresh_schedule_breaks_a_promise() -> None:
    report = run_campaign(seed_base() + SCHEDULES, SCHEDULES_FULL)

    assert report.failures == []


@pytest.mark.parametrize("name", DIRECTED)
def test_the_clause_of_a_directed_schedule_holds(name: str) -> None:
    played = run_directed(name, is_traced=True)

    assert played.violations == ()
    # Otherwise the schedule is not played as it was written, and checks nothing.
    assert not any("nobody came" in line for line in played.history.trace)


def test_the_record_of_a_schedule_replays_it() -> None:
    for seed in range(3):
        drawn = run_schedule(seed)

        replayed = run_schedule(0, record=drawn.record)

        assert replayed.history.hash() == drawn.history.hash()


def test_a_record_that_says_nothing_is_a_run_without_faults() -> None:
    outcome = run_schedule(0, record={})

    assert outcome.violations == ()
    assert set(outcome.history.marks) <= {"commit ended COMMITTED", "rows read"}


@pytest.mark.slow
def test_a_seed_means_the_same_in_every_process() -> None:
    """Hash randomization differs, the histories do not."""
    program = (
        "import logging; logging.disable(logging.CRITICAL)\n"
        "from tests.simulation.commits.model import run_schedule\n"
        "for seed in range(20): print(run_schedule(seed).history.hash())\n"
    )

    first, second = outputs_of(program)

    assert first == second
    assert len(set(first)) == 20
