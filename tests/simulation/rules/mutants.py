"""Every mutant, how many schedules it takes to notice it, and by which invariant.

``python -m tests.simulation.rules.mutants`` prints the table, ``--write`` renews docs/mutants.json
from a run. A mutant of one's own is three lines beside the others:

    @mutant("name", "the bug it stands for", "I1")
    def _name(patch: Patch) -> None:
        patch.method(WriterState, "_may_acknowledge", lambda self: True)
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.rules import mutants_of_bookies, mutants_of_clients
from tests.simulation.rules.checks import OUTCOMES, RULES, Check, check_name
from tests.simulation.rules.model import run_schedule
from tests.simulation.rules.patching import MUTANTS, Mutant
from tests.simulation.rules.shrink import fails_with, save, shrink

TABLE = Path(__file__).resolve().parents[3] / "docs" / "mutants.json"
SCHEDULES = Path(__file__).resolve().parent / "schedules"
"""One shrunk schedule per mutant: fails with it, and passes without."""
SEEDS_MAX = 60_000
"""Schedules after which a mutant counts as not noticed."""
_MODULES = (mutants_of_bookies, mutants_of_clients)
"""Imported for what they register."""


@dataclass(frozen=True, slots=True)
class Kill:
    """How a mutant was noticed."""

    schedules: int
    """Run until then."""
    seed: int
    invariants: tuple[str, ...]


def hunt(mutant: Mutant, seeds: Iterable[int]) -> Kill | None:
    """Run schedules with the bug planted until an invariant that is expected to notice does."""
    return _hunt(mutant, seeds, OUTCOMES + RULES, mutant.caught_by)


def hunt_by_outcome(mutant: Mutant, seeds: Iterable[int]) -> Kill | None:
    """The same without the rules' help: until something happens that a user would notice."""
    return _hunt(mutant, seeds, OUTCOMES, tuple(map(check_name, OUTCOMES)))


def _hunt(
    mutant: Mutant, seeds: Iterable[int], checks: tuple[Check, ...], expected: tuple[str, ...]
) -> Kill | None:
    with mutant.planted():
        for count, seed in enumerate(seeds, 1):
            found = run_schedule(seed, checks=checks).violations
            names = dict.fromkeys(violation.split(":", 1)[0] for violation in found)
            if any(name in expected for name in names):
                return Kill(count, seed, tuple(names))
    return None


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    name: str
    stands_for: str
    caught_by: tuple[str, ...]
    kill: Kill | None
    """By any invariant."""
    outcome: Kill | None
    """By one that a user would notice: what the schedules achieve without the rules' help."""


def line_of(name: str, seeds_max: int = SEEDS_MAX, *, writes: bool = False) -> Line:
    """Hunt one mutant from seed 0 on; ``writes`` keeps the shrunk schedule as a file."""
    mutant = MUTANTS[name]
    kill = hunt(mutant, range(seeds_max))
    outcome = hunt_by_outcome(mutant, range(seeds_max))
    if writes and kill is not None:
        with mutant.planted():
            record = shrink(run_schedule(kill.seed).record, fails_with(mutant.caught_by))
            shown = run_schedule(0, record=record).violations
        about = f"mutant {name}: {mutant.stands_for}\n{shown[0]}"
        save(SCHEDULES / f"{name}.txt", about, record)
    return Line(name, mutant.stands_for, mutant.caught_by, kill, outcome)


def table(names: Iterable[str], seeds_max: int, *, writes: bool = False) -> list[Line]:
    """All lines, several at a time."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        jobs = [pool.submit(line_of, name, seeds_max, writes=writes) for name in names]
        return [job.result() for job in jobs]


def main() -> None:
    """Print the table; with ``--write`` renew the one that is checked in."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.rules.mutants")
    parser.add_argument("names", nargs="*", help="all when none is given")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines = table(arguments.names or sorted(MUTANTS), arguments.seeds, writes=arguments.write)
    for line in lines:
        seen = (
            f"{line.kill.schedules:>6} {','.join(line.kill.invariants):<16}"
            if line.kill
            else "ALIVE"
        )
        out = f"{line.outcome.schedules:>6} {line.outcome.invariants[0]}" if line.outcome else "-"
        sys.stdout.write(f"{line.name:<30} {seen:<26} {out:<12} {line.stands_for}\n")
    if arguments.write:
        TABLE.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")


if __name__ == "__main__":
    main()
