"""Many seeds on all processors, from a seed base that every change of the source moves on.

The same source runs the same seeds everywhere, so a failure in CI is a failure here; new source
brings new ones, so that over time many more are run than any single run could.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Self, TypeVar

REPOSITORY = Path(__file__).resolve().parents[3]
FAILURES_MAX = 5
"""Failing seeds that are reported."""


@dataclass(frozen=True, slots=True)
class Share:
    """Some of a campaign's seeds: a test of its own, so with a limit of its own."""

    first: int
    """From the campaign's first seed on."""
    count: int

    def __str__(self) -> str:
        return f"{self.first}-{self.first + self.count - 1}"


def shares(count: int, size: int) -> list[Share]:
    """``count`` seeds, ``size`` a share."""
    return [Share(first, min(size, count - first)) for first in range(0, count, size)]


def source_number(folders: Iterable[str]) -> int:
    """32 bits of all Python below ``folders`` of the repository."""
    digest = sha256()
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4])


@dataclass(slots=True)
class Report:
    """What many schedules came to."""

    schedules: int = 0
    events: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    """How often the schedules came into each situation."""
    failures: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """(seed, what was violated)."""

    def add(self, other: Self) -> None:
        """Take in another report."""
        for spec in fields(self):
            total = getattr(self, spec.name) + getattr(other, spec.name)
            setattr(self, spec.name, total)
        del self.failures[FAILURES_MAX:]


R = TypeVar("R", bound=Report)


def run_everywhere(
    report: R, run_seeds: Callable[[int, int], R], first: int, count: int, *, chunk: int
) -> R:
    """Add to ``report`` what ``run_seeds(first, count)`` comes to, ``chunk`` seeds a job."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        jobs = [
            pool.submit(run_seeds, first + start, min(chunk, count - start))
            for start in range(0, count, chunk)
        ]
        for job in jobs:
            report.add(job.result())
    return report


def outputs_of(program: str) -> list[list[str]]:
    """The words a program prints in two processes that hash strings differently."""
    return [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for hash_seed in ("1", "4711")
    ]
