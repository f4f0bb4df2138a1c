"""Every mutant of the commit protocol, how many schedules it takes to notice it, and by what.

``python -m tests.simulation.commits.mutants`` prints the table, ``--write`` renews the documents and the
shrunk schedules from the run. Which directed schedule notices which mutant is tried out, too: those
that chance does not find have one, and say why chance does not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation.commits import mutants_of_cleaning, mutants_of_commits, mutants_of_upkeep
from tests.simulation.commits.model import run_schedule
from tests.simulation.commits.playing import run_directed
from tests.simulation.commits.registry import DIRECTED
from tests.simulation.kit import kills
from tests.simulation.kit.choices import Record
from tests.simulation.kit.kills import DOCUMENTS, Kill, Table, labels_of
from tests.simulation.kit.patching import Mutant, joined
from tests.simulation.kit.shrink import save_mutant

MUTANTS = joined(mutants_of_cleaning.MUTANTS, mutants_of_commits.MUTANTS, mutants_of_upkeep.MUTANTS)
SCHEDULES = Path(__file__).resolve().parent / "schedules"
"""One shrunk schedule per mutant that no directed one notices: fails with it, passes without."""
SEEDS_MAX = 100
"""Schedules after which a mutant counts as not found by chance."""
SHRINK_RUNS = 300


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

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Line:
        """From the JSON file."""
        lists = {key: tuple(fields[key]) for key in ("caught_by", "directed")}
        return cls(**{**fields, **lists, "kill": Kill.parse(fields["kill"])})


def hunt(mutant: Mutant, seeds: Iterable[int]) -> Kill | None:
    """Run schedules with the bug planted until a promise that is expected to break does."""
    return kills.hunt(
        mutant, seeds, lambda seed: labels_of(run_schedule(seed).violations), mutant.caught_by
    )


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
    mutant = MUTANTS[name]
    kill, directed = hunt(mutant, range(seeds_max)), directed_at(mutant)
    if writes and kill is not None and not directed:
        with mutant.planted():
            drawn = run_schedule(kill.seed).record
        save_mutant(SCHEDULES, mutant, drawn, violations_of_record, SHRINK_RUNS)
    return Line(name, mutant.stands_for, mutant.caught_by, kill, directed)


_PREFACE = f"""# Mutants of the commit protocol

Clauses of the protocol by which Spark's writes become visible, broken one by one. Made by
`python -m tests.simulation.commits.mutants --write`; `make test` breaks each of them again.

*Schedules*: how many of the commit simulation, from seed 0 on, until a promise expected to break did,
and which were broken then; `-`: not within {SEEDS_MAX}. X1-X10 are what a user would notice, R1-R12 clauses
whose breach luck often forgives (`tests/simulation/commits/checkers.py`, `clauses.py`). *Directed schedules* go where
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


def _row(line: Line) -> Sequence[str]:
    count = f"{line.kill.schedules:,}" if line.kill else "-"
    by = " ".join(line.kill.invariants) if line.kill else " ".join(line.caught_by)
    directed = f"`{line.directed[0]}`" if line.directed else "-"
    directed += f" and {len(line.directed) - 1} more" if len(line.directed) > 1 else ""
    return f"`{line.name}`", line.stands_for, count, by, directed


TABLE = Table(
    path=DOCUMENTS / "mutants_of_commits.json",
    mutants=MUTANTS,
    parse=Line.parse,
    hunt=line_of,
    preface=_PREFACE,
    head=("mutant", "the clause it breaks", "schedules", "noticed by", "directed schedule"),
    row=_row,
    epilogue=_EQUIVALENT,
)

if __name__ == "__main__":
    TABLE.main("tests.simulation.commits.mutants", SEEDS_MAX)
