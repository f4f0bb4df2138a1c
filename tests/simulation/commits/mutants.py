"""Every mutant of the commit protocol, how many schedules it takes to notice it, and by what.

``python -m tests.simulation.commits.mutants`` prints the table, ``--write`` renews the documents and the
shrunk schedules from the run. Which directed schedule notices which mutant is tried out, too: those
that chance does not find have one, and say why chance does not.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.simulation.commits import (
    mutants_of_claims,
    mutants_of_cleaning,
    mutants_of_commits,
    mutants_of_garbage,
)
from tests.simulation.commits.directed import DIRECTED, run_directed
from tests.simulation.commits.model import run_schedule
from tests.simulation.commits.mutants_of_commits import COMMIT_MUTANTS
from tests.simulation.rules.choices import Record
from tests.simulation.rules.mutants import PAGE, Kill, renew
from tests.simulation.rules.patching import Mutant
from tests.simulation.rules.shrink import fails_with, save, shrink

_DOCUMENTS = Path(__file__).resolve().parents[3] / "docs"
TABLE = _DOCUMENTS / "mutants_of_commits.json"
SCHEDULES = Path(__file__).resolve().parent / "schedules"
"""One shrunk schedule per mutant that no directed one notices: fails with it, passes without."""
SEEDS_MAX = 100
"""Schedules after which a mutant counts as not found by chance."""
SHRINK_RUNS = 300
_MODULES = (mutants_of_claims, mutants_of_cleaning, mutants_of_commits, mutants_of_garbage)
"""Imported for what they register."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    name: str
    stands_for: str
    caught_by: tuple[str, ...]
    kill: Kill | None
    """By chance."""
    directed: tuple[str, ...]
    """Directed schedules that notice it."""


def labels_of(violations: Sequence[str]) -> tuple[str, ...]:
    """The promises that were broken, once each."""
    return tuple(dict.fromkeys(violation.partition(":")[0] for violation in violations))


def hunt(mutant: Mutant, seeds: Iterable[int]) -> Kill | None:
    """Run schedules with the bug planted until a promise that is expected to break does."""
    with mutant.planted():
        for count, seed in enumerate(seeds, 1):
            found = labels_of(run_schedule(seed).violations)
            if any(label in mutant.caught_by for label in found):
                return Kill(count, seed, found)
    return None


def violations_of_record(record: Record) -> Sequence[str]:
    """What the schedule of a record breaks."""
    return run_schedule(0, record=record).violations


def directed_at(mutant: Mutant, names: Iterable[str] | None = None) -> tuple[str, ...]:
    """Those of the directed schedules (``names``: of these) that notice the mutant."""
    with mutant.planted():
        return tuple(
            name
            for name in (DIRECTED if names is None else names)
            if set(labels_of(run_directed(name).violations)) & set(mutant.caught_by)
        )


def line_of(name: str, seeds_max: int = SEEDS_MAX, *, writes: bool = False) -> Line:
    """Hunt one mutant from seed 0 on; ``writes`` keeps the shrunk schedule as a file."""
    logging.disable(logging.CRITICAL)
    mutant = COMMIT_MUTANTS[name]
    kill, directed = hunt(mutant, range(seeds_max)), directed_at(mutant)
    if writes and kill is not None and not directed:
        with mutant.planted():
            fails = fails_with(mutant.caught_by, violations_of_record)
            record = shrink(run_schedule(kill.seed).record, fails, SHRINK_RUNS)
            shown = violations_of_record(record)
        save(SCHEDULES / f"{name}.txt", f"mutant {name}: {mutant.stands_for}\n{shown[0]}", record)
    return Line(name, mutant.stands_for, mutant.caught_by, kill, directed)


def table(names: Iterable[str], seeds_max: int, *, writes: bool = False) -> list[Line]:
    """All lines, several at a time."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        jobs = [pool.submit(line_of, name, seeds_max, writes=writes) for name in names]
        return [job.result() for job in jobs]


def parse_table(text: str) -> list[Line]:
    """The lines the documents were written from."""
    return [_line(fields) for fields in json.loads(text)]


def _line(fields: dict[str, Any]) -> Line:
    kill = fields["kill"]
    return Line(
        fields["name"],
        fields["stands_for"],
        tuple(fields["caught_by"]),
        kill and Kill(kill["schedules"], kill["seed"], tuple(kill["invariants"])),
        tuple(fields["directed"]),
    )


_PREFACE = """# Mutants of the commit protocol

Clauses of the protocol by which Spark's writes become visible, broken one by one. Made by
`python -m tests.simulation.commits.mutants --write`; `make test` breaks each of them again.

*Schedules*: how many of the commit simulation, from seed 0 on, until a promise expected to break did,
and which were broken then; `-`: not within {seeds}. X1-X9 are what a user would notice, R1-R11 clauses
whose breach luck often forgives (`tests/simulation/commits/checkers.py`). *Directed schedules* go where
chance seldom does (`tests/simulation/commits/directed.py`); each also stands for its clause as a test.

"""

_EQUIVALENT = """
Changed in these ways the protocol keeps every promise, so no mutant is made of them:

* *A sweep under COMMITTED without `sync()`.* It reads on in the session that saw COMMITTED, and a
  session never sees an older tree than it saw before; only a reader of another session would need it.
* *A refused kill that counts as done.* Whoever sweeps reads the token again and finds what it became;
  a *lost* one that counts is another matter (`kill_believed_done`).
* *A claim that does not `sync()` before it misses its token.* It has just created its index node, and
  an answered mutation shows a session everything before it.
"""


def page(lines: Iterable[Line]) -> str:
    """The part of docs/mutants.md about commits."""
    return _PREFACE.format(seeds=SEEDS_MAX) + markdown(lines) + _EQUIVALENT


def markdown(lines: Iterable[Line]) -> str:
    """The table."""
    rows = [
        "| mutant | the clause it breaks | schedules | noticed by | directed schedule |",
        "|---|---|---|---|---|",
    ]
    for line in lines:
        count = f"{line.kill.schedules:,}" if line.kill else "-"
        by = " ".join(line.kill.invariants) if line.kill else " ".join(line.caught_by)
        directed = f"`{line.directed[0]}`" if line.directed else "-"
        directed += f" and {len(line.directed) - 1} more" if len(line.directed) > 1 else ""
        rows.append(f"| `{line.name}` | {line.stands_for} | {count} | {by} | {directed} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Print the table; with ``--write`` renew the one that is checked in."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.commits.mutants")
    parser.add_argument("names", nargs="*", help="all when none is given; other lines stay")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    names = arguments.names or sorted(COMMIT_MUTANTS)
    lines = table(names, arguments.seeds, writes=arguments.write)
    sys.stdout.write(markdown(lines))
    if arguments.write:
        known = parse_table(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else []
        kept = [line for line in known if line.name in COMMIT_MUTANTS and line.name not in names]
        lines = sorted([*kept, *lines], key=lambda line: line.name)
        TABLE.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
        renew(PAGE, page(lines))


if __name__ == "__main__":
    main()
