"""Many schedules of the commit world on all processors; the same source runs the same ones."""

from __future__ import annotations

import logging
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.commits.model import run_schedule

REPOSITORY = Path(__file__).resolve().parents[3]
_SOURCES = ("metadata", "spark_bookkeeper/log", "tests/simulation/commits")
_CHUNK = 25
FAILURES_MAX = 5
"""Failing seeds that are reported."""


def seed_base() -> int:
    """Derived from the source tree: a run's first seed."""
    digest = sha256()
    for root in _SOURCES:
        for path in sorted((REPOSITORY / root).rglob("*.py")):
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4]) * 1_000


@dataclass(slots=True)
class Report:
    """What many schedules came to."""

    schedules: int = 0
    events: int = 0
    steps: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    """Schedules that came into each situation."""
    failures: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """(seed, what was violated)."""

    def add(self, other: Report) -> None:
        """Take in another report."""
        self.schedules += other.schedules
        self.events += other.events
        self.steps += other.steps
        self.marks.update(other.marks)
        self.failures = (self.failures + other.failures)[:FAILURES_MAX]


def run_seeds(first: int, count: int) -> Report:
    """Schedules ``first .. first + count - 1``, here and now."""
    logging.disable(logging.CRITICAL)
    report = Report()
    for seed in range(first, first + count):
        outcome = run_schedule(seed)
        report.schedules += 1
        report.events += len(outcome.history.events)
        report.steps += outcome.steps
        report.marks.update(mark for mark, times in outcome.history.marks.items() if times)
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
