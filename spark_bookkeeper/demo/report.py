"""What the demonstration found: steps with their speed, comparisons with their outcome.

The report collects and formats; progress goes to standard error, results to standard output, and
with ``--json`` the one document is all that standard output gets.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
from rich.console import Console


@dataclass
class Step:
    """One step and how long it took; ``rows`` and ``size_bytes`` are 0 where there are none."""

    name: str
    seconds: float = 0.0
    rows: int = 0
    size_bytes: int = 0
    note: str = ""

    def as_document(self) -> dict[str, Any]:
        """Stable keys for machines; rates are ``None`` where nothing was counted."""
        return {
            "step": self.name,
            "seconds": round(self.seconds, 3),
            "rows": self.rows or None,
            "rows_per_second": round(self.rows / self.seconds) if self.rows else None,
            "mb_per_second": (
                round(self.size_bytes / 1e6 / self.seconds, 1) if self.size_bytes else None
            ),
            "note": self.note or None,
        }

    def as_line(self) -> str:
        """One line for people."""
        line = f"{self.name:<48} {self.seconds:7.2f} s"
        if self.rows:
            line += f"  {self.rows / self.seconds:>11,.0f} rows/s"
        if self.size_bytes:
            line += f"  {self.size_bytes / 1e6 / self.seconds:>7,.1f} MB/s"
        return f"{line}  {self.note}" if self.note else line


@dataclass(frozen=True)
class Comparison:
    """Two values that must be equal."""

    name: str
    expected: Any
    actual: Any

    @property
    def is_equal(self) -> bool:
        return bool(self.expected == self.actual)

    def as_document(self) -> dict[str, Any]:
        """The values themselves only where they differ."""
        document = {"comparison": self.name, "equal": self.is_equal}
        if not self.is_equal:
            document |= {"expected": str(self.expected), "actual": str(self.actual)}
        return document


@dataclass
class Report:
    """Collects steps and comparisons, printing each as it happens."""

    is_quiet: bool = False
    """Nothing but progress is printed: the caller prints the document."""
    steps: list[Step] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)

    @contextmanager
    def step(self, name: str, *, rows: int = 0, size_bytes: int = 0) -> Iterator[Step]:
        """Time a block and print its line; what fails is not a step."""
        step = Step(name, rows=rows, size_bytes=size_bytes)
        begun = time.perf_counter()
        with _progress(name):
            yield step
        step.seconds = max(time.perf_counter() - begun, 1e-6)
        self.steps.append(step)
        self.say(step.as_line())

    def compare(self, name: str, expected: Any, actual: Any) -> None:
        """Record a comparison; a difference fails the run but does not end it."""
        comparison = Comparison(name, expected, actual)
        self.comparisons.append(comparison)
        if comparison.is_equal:
            self.say(f"  equal: {name}")
        else:
            self.say(f"  DIFFERENT: {name}\n    expected {expected}\n    actual   {actual}")

    def say(self, text: str) -> None:
        """A line of the report."""
        if not self.is_quiet:
            click.echo(text)

    @property
    def has_passed(self) -> bool:
        """Something was compared and all of it was equal."""
        return bool(self.comparisons) and all(each.is_equal for each in self.comparisons)

    def as_document(self) -> dict[str, Any]:
        """The whole report with stable keys."""
        return {
            "passed": self.has_passed,
            "steps": [step.as_document() for step in self.steps],
            "comparisons": [each.as_document() for each in self.comparisons],
        }


@contextmanager
def _progress(name: str) -> Iterator[None]:
    """Show a spinner with the time elapsed while the block runs, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(name, total=None)
        yield
