"""Making a failing schedule short: decisions are set to 0, the harmless answer, while it still fails.

What is left is what the failure needs. Kept as a text file, the decisions by label, it is replayed by
a test for ever, also after a new draw somewhere has changed what its seed means; a saved schedule
rots only when the streams it names do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
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
    runs = 0

    def accepts(candidate: Decisions) -> bool:
        nonlocal best, runs
        if runs >= runs_max or candidate == best:
            return False
        runs += 1
        if not still_fails(candidate):
            return False
        best = candidate
        return True

    is_progressing = True
    while is_progressing and runs < runs_max:
        before = size_of(best)
        _clear_labels(lambda: best, accepts)
        for label in list(best):
            _clear(label, lambda: best, accepts)
        for label in list(best):
            _lower(label, lambda: best, accepts)
        is_progressing = size_of(best) < before
    return {label: taken for label, taken in best.items() if any(taken)}


def size_of(record: Record) -> tuple[int, int]:
    """Decisions that are not harmless, and how far from harmless they are."""
    taken = [value for values in record.values() for value in values]
    return sum(value > 0 for value in taken), sum(taken)


def _clear_labels(best: Callable[[], Decisions], accepts: Callable[[Decisions], bool]) -> None:
    """Set whole streams to 0, many at a time, then fewer: most subjects have no part in a failure."""
    width = len(best())
    while width > 1:
        labels = list(best())
        for start in range(0, len(labels), width):
            cleared = {label: list[int]() for label in labels[start : start + width]}
            if any(best()[label] for label in cleared):
                accepts({**best(), **cleared})
        width //= 2


def _clear(label: str, best: Callable[[], Decisions], accepts: Callable[[Decisions], bool]) -> None:
    """Set stretches of one stream to 0: all of it, halves, quarters, single decisions."""
    length = len(best()[label])
    if accepts({**best(), label: []}):
        return
    width = length
    while width >= 1:
        for start in range(0, length, width):
            taken = best()[label]
            stretch = taken[start : start + width]
            if any(stretch):
                cleared = [*taken[:start], *[0] * len(stretch), *taken[start + width :]]
                accepts({**best(), label: cleared})
        width //= 2


def _lower(label: str, best: Callable[[], Decisions], accepts: Callable[[Decisions], bool]) -> None:
    """Make single decisions smaller."""
    for at in range(len(best()[label])):
        value = best()[label][at]
        for smaller in (1, value // 16, value // 2, value - 1):
            if 0 < smaller < value:
                taken = list(best()[label])
                taken[at] = smaller
                if accepts({**best(), label: taken}):
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
    save(
        folder / f"{mutant.name}.txt", f"mutant {mutant.name}: {mutant.stands_for}\n{shown}", record
    )


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
