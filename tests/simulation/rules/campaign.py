"""Many schedules of the rules, added up: how many, what they came into, what broke."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.campaigns import run_everywhere, source_number
from tests.simulation.rules.model import run_schedule

_SOURCES = ("metadata", "bookie_server", "spark_bookkeeper", "tests/simulation/rules")
_CHUNK = 500
FAILURES_MAX = 5
"""Failing seeds that are reported."""


def seed_base() -> int:
    """Derived from the source tree: a run's first seed."""
    return source_number(_SOURCES) * 1_000_000


@dataclass(slots=True)
class Report:
    """What many schedules came to."""

    schedules: int = 0
    events: int = 0
    acked: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """(seed, what was violated)."""

    def add(self, other: Report) -> None:
        """Take in another report."""
        self.schedules += other.schedules
        self.events += other.events
        self.acked += other.acked
        self.marks.update(other.marks)
        self.failures = (self.failures + other.failures)[:FAILURES_MAX]


def run_seeds(first: int, count: int) -> Report:
    """Schedules ``first .. first + count - 1``, here and now."""
    report = Report()
    for seed in range(first, first + count):
        outcome = run_schedule(seed)
        report.schedules += 1
        report.events += outcome.events
        report.acked += len(outcome.history.acked)
        report.marks.update(outcome.history.marks)
        if outcome.violations:
            report.failures.append((seed, outcome.violations))
    return report


def run_campaign(first: int, count: int) -> Report:
    """The same on all processors."""
    return run_everywhere(Report(), run_seeds, first, count, chunk=_CHUNK)
