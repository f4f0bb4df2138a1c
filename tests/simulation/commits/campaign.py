"""Many schedules of the commit world, added up: how many, what they came into, what broke."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

from tests.simulation.commits.model import run_schedule
from tests.simulation.kit import campaigns
from tests.simulation.kit.campaigns import run_everywhere, source_number

_SOURCES = ("metadata", "spark_bookkeeper/log", "tests/simulation/kit", "tests/simulation/commits")
_CHUNK = 25


def seed_base() -> int:
    """Derived from the source tree: a run's first seed."""
    return source_number(_SOURCES) * 1_000


@dataclass(slots=True)
class Report(campaigns.Report):
    """What many schedules came to; a situation counts once a schedule."""

    steps: int = 0


def run_seeds(first: int, count: int) -> Report:
    """Schedules ``first .. first + count - 1``, here and now."""
    logging.disable(logging.CRITICAL)
    report = Report()
    for seed in range(first, first + count):
        outcome = run_schedule(seed)
        history = outcome.history
        marks = Counter(mark for mark, times in history.marks.items() if times)
        failures = [(seed, outcome.violations)] if outcome.violations else []
        report.add(Report(1, len(history.events), marks, failures, outcome.steps))
    return report


def run_campaign(first: int, count: int) -> Report:
    """The same on all processors."""
    return run_everywhere(Report(), run_seeds, first, count, chunk=_CHUNK)
