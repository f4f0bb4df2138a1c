"""Many seeds on all processors, from a seed base that every change of the source moves on.

The same source runs the same seeds everywhere, so a failure in CI is a failure here; new source
brings new ones, so that over time many more are run than any single run could.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol, Self, TypeVar

REPOSITORY = Path(__file__).resolve().parents[2]


class Summable(Protocol):
    """What some seeds came to, to be added up."""

    def add(self, other: Self) -> None:
        """Take in another report."""


R = TypeVar("R", bound=Summable)


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
