"""Many schedules of the rules, added up: how many, what they came into, what broke."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.kit import campaigns
from tests.simulation.kit.campaigns import run_everywhere, source_number
from tests.simulation.rules.model import run_schedule

_SOURCES = (
    "metadata", "bookie_server", "spark_bookkeeper", "tests/simulation/kit", "tests/simulation/rules",
)  # fmt: skip
_CHUNK = 500


def seed_base() -> int:
    """Derived from the source tree: a run's first seed."""
    return source_number(_SOURCES) * 1_000_000


@dataclass(slots=True)
class Report(campaigns.Report):
    """What many schedules came to."""

    acked: int = 0


def run_seeds(first: int, count: int) -> Report:
    """Schedules ``first .. first + count - 1``, here and now."""
    report = Report()
    for seed in range(first, first + count):
        outcome = run_schedule(seed)
        history = outcome.history
        failures = [(seed, outcome.violations)] if outcome.violations else []
        report.add(Report(1, outcome.events, history.marks, failures, len(history.acked)))
    return report


def run_campaign(first: int, count: int) -> Report:
    """The same on all processors."""
    return run_everywhere(Report(), run_seeds, first, count, chunk=_CHUNK)
