"""Many schedules on all processors, from a seed base that every change of the source moves on.

The same source runs the same schedules everywhere, so a failure in CI is a failure here; new source
brings new ones, so that over time many more are run than any single run could.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.rules.model import run_schedule

REPOSITORY = Path(__file__).resolve().parents[3]
_SOURCES = ("metadata", "bookie_server", "spark_bookkeeper", "tests/simulation/rules")
_CHUNK = 500
FAILURES_MAX = 5
"""Failing seeds that are reported."""


def seed_base() -> int:
    """Derived from the source tree: a run's first seed."""
    digest = sha256()
    for root in _SOURCES:
        for path in sorted((REPOSITORY / root).rglob("*.py")):
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4]) * 1_000_000


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
    report = Report()
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        jobs = [
            pool.submit(run_seeds, first + start, min(_CHUNK, count - start))
            for start in range(0, count, _CHUNK)
        ]
        for job in jobs:
            report.add(job.result())
    return report
