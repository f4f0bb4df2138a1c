"""Making a failing schedule short: decisions are set to 0, the harmless answer, while it still fails.

What is left is what the failure needs. Kept as a text file, the decisions by label, it is replayed by
a test for ever, also after a new draw somewhere has changed what its seed means; a saved schedule
rots only when the streams it names do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.kit.choices import Record
from tests.simulation.kit.kills import labels_of
from tests.simulation.kit.patching import Mutant

RUNS_MAX = 1_500
"""Schedules tried for one failure."""

Decisions = dict[str, list[int]]
ViolationsOf = Callable[[Record], Sequence[str]]
"""Runs the schedule of a record: what it breaks."""
StillFails = Callable[[Record], bool]


def fails_with(invariants: Collection[str], violations_of: ViolationsOf) -> StillFails:
    """Whether a record breaks one of these invariants (``I1``, ``L3``, ...)."""
    return lambda record: bool(set(labels_of(violations_of(record))) & set(invariants))


def shrink(record: Record, still_fails: StillFails, runs_max: int = RUNS_MAX) -> Decisions:
    """The smallest record found that still fails; ``record`` itself must."""
    best = {label: list(taken) for label, taken in record.items()}
    shrinking = _Shrinking(best, still_fails, runs_max)
    is_progressing = True
    while is_progressing and shrinking.runs_left:
        before = size_of(shrinking.best)
        shrinking.clear_labels()
        for label in list(shrinking.best):
            shrinking.clear(label)
        for label in list(shrinking.best):
            shrinking.lower(label)
        is_progressing = size_of(shrinking.best) < before
    return {label: taken for label, taken in shrinking.best.items() if any(taken)}


def size_of(record: Record) -> tuple[int, int]:
    """Decisions that are not harmless, and how far from harmless they are."""
    taken = [value for values in record.values() for value in values]
    return sum(value > 0 for value in taken), sum(taken)


@dataclass(slots=True)
class _Shrinking:
    best: Decisions
    still_fails: StillFails
    runs_left: int

    def accepts(self, changed: Decisions) -> bool:
        """Whether it still fails with these streams in the place of others: then it is the best."""
        candidate = {**self.best, **changed}
        if not self.runs_left or candidate == self.best:
            return False
        self.runs_left -= 1
        if not self.still_fails(candidate):
            return False
        self.best = candidate
        return True

    def clear_labels(self) -> None:
        """Set whole streams to 0, many at a time, then fewer: most have no part in a failure."""
        width = len(self.best)
        while width > 1:
            labels = list(self.best)
            for start in range(0, len(labels), width):
                cleared = {label: list[int]() for label in labels[start : start + width]}
                if any(self.best[label] for label in cleared):
                    self.accepts(cleared)
            width //= 2

    def clear(self, label: str) -> None:
        """Set stretches of one stream to 0: all of it, halves, quarters, single decisions."""
        length = width = len(self.best[label])
        if self.accepts({label: []}):
            return
        while width >= 1:
            for start in range(0, length, width):
                taken = self.best[label]
                stretch = taken[start : start + width]
                if any(stretch):
                    rest = taken[start + width :]
                    self.accepts({label: [*taken[:start], *[0] * len(stretch), *rest]})
            width //= 2

    def lower(self, label: str) -> None:
        """Make single decisions smaller."""
        for at, value in enumerate(self.best[label]):
            for smaller in (1, value // 16, value // 2, value - 1):
                if 0 < smaller < value:
                    taken = list(self.best[label])
                    taken[at] = smaller
                    if self.accepts({label: taken}):
                        break


def save(path: Path, about: str, record: Record) -> None:
    """Keep a schedule; ``about`` says what it once showed."""
    lines = [f"# {line}" for line in about.splitlines()]
    for label, taken in record.items():
        lines.append(f"{label}: {' '.join(map(str, taken))}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def save_mutant(
    folder: Path,
    mutant: Mutant,
    drawn: Record,
    violations_of: ViolationsOf,
    runs_max: int = RUNS_MAX,
) -> None:
    """Shrink a schedule that notices a mutant, and keep it under the mutant's name."""
    with mutant.planted():
        record = shrink(drawn, fails_with(mutant.caught_by, violations_of), runs_max)
        shown = violations_of(record)[0]
    about = f"mutant {mutant.name}: {mutant.stands_for}\n{shown}"
    save(folder / f"{mutant.name}.txt", about, record)


def explain(
    seed: int,
    drawn: Record,
    violations_of: ViolationsOf,
    *,
    runs_max: int = RUNS_MAX,
    save_to: Path | None = None,
) -> Decisions:
    """Say what a seed breaks and which of its decisions it takes; returns those."""
    violations = violations_of(drawn)
    _say(f"seed {seed}: {'; '.join(violations)}")
    record = shrink(drawn, fails_with(labels_of(violations), violations_of), runs_max)
    _say(f"shrunk from {size_of(drawn)[0]} decisions to {size_of(record)[0]}:")
    for label, taken in record.items():
        _say(f"  {label}: {' '.join(map(str, taken))}")
    if save_to is not None:
        save(save_to, f"once seed {seed}\n{'; '.join(violations_of(record))}", record)
    return record


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def load(path: Path) -> Decisions:
    """The decisions of a schedule that was kept."""
    record: Decisions = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            label, _, taken = line.rpartition(":")
            record[label] = [int(value) for value in taken.split()]
    return record
