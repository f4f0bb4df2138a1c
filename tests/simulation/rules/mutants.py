"""Every mutant, how many schedules it takes to notice it, and by which invariant.

``python -m tests.simulation.rules.mutants`` prints the table, ``--write`` renews docs/mutants.json and
the shrunk schedules from the run. A mutant of one's own is three lines beside the others:

    mutant("name", "the bug it stands for", "I1").edit(
        WriterState._may_acknowledge, {" and not self.is_changing": ""}
    )

What takes more than an edit is a function under ``@mutant(...)`` that is given the patch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulation.kit import kills
from tests.simulation.kit.choices import Record
from tests.simulation.kit.kills import DOCUMENTS, Kill, Table, labels_of
from tests.simulation.kit.patching import Mutant, joined
from tests.simulation.kit.shrink import save_mutant
from tests.simulation.rules import mutants_of_bookies, mutants_of_recovery, mutants_of_writers
from tests.simulation.rules.checks import OUTCOMES, RULES, Check, check_name
from tests.simulation.rules.model import run_schedule
from tests.simulation.world.mutants import hunt_in_world

MUTANTS = joined(
    mutants_of_bookies.MUTANTS, mutants_of_recovery.MUTANTS, mutants_of_writers.MUTANTS
)
SCHEDULES = Path(__file__).resolve().parent / "schedules"
"""One shrunk schedule per mutant: fails with it, and passes without."""
SEEDS_MAX = 30_000
"""Schedules after which a mutant counts as not noticed."""
WORLD_SEEDS_MAX = 300
"""The same for seeds of the whole world, each of which costs as much as 30 schedules."""


def hunt(mutant: Mutant, seeds: Iterable[int]) -> Kill | None:
    """Run schedules with the bug planted until an invariant that is expected to notice does."""
    return kills.hunt(mutant, seeds, partial(_labels_at, OUTCOMES + RULES), mutant.caught_by)


def hunt_by_outcome(mutant: Mutant, seeds: Iterable[int]) -> Kill | None:
    """The same without the rules' help: until something happens that a user would notice."""
    names = tuple(map(check_name, OUTCOMES))
    return kills.hunt(mutant, seeds, partial(_labels_at, OUTCOMES), names)


def _labels_at(checks: tuple[Check, ...], seed: int) -> tuple[str, ...]:
    return labels_of(run_schedule(seed, checks=checks).violations)


def violations_of_record(record: Record) -> Sequence[str]:
    """What the schedule of a record breaks."""
    return run_schedule(0, record=record).violations


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    name: str
    stands_for: str
    where: str
    caught_by: tuple[str, ...]
    kill: Kill | None
    """By any invariant."""
    outcome: Kill | None
    """By one that a user would notice: what the schedules achieve without the rules' help."""
    world: Kill | None
    """In the whole product; not tried where the bug is planted in the model only."""

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Line:
        """From the JSON file."""
        found = {key: Kill.parse(fields[key]) for key in ("kill", "outcome", "world")}
        return cls(**{**fields, **found, "caught_by": tuple(fields["caught_by"])})


def line_of(name: str, seeds_max: int = SEEDS_MAX, *, writes: bool = False) -> Line:
    """Hunt one mutant from seed 0 on, everywhere; ``writes`` keeps the shrunk schedule as a file."""
    logging.disable(logging.CRITICAL)
    mutant = MUTANTS[name]
    kill = hunt(mutant, range(seeds_max))
    outcome = hunt_by_outcome(mutant, range(seeds_max))
    if writes and kill is not None:
        with mutant.planted():
            drawn = run_schedule(kill.seed).record
        save_mutant(SCHEDULES, mutant, drawn, violations_of_record)
    is_in_product = mutant.where != "model"
    world = hunt_in_world(mutant, range(WORLD_SEEDS_MAX)) if is_in_product else None
    return Line(name, mutant.stands_for, mutant.where, mutant.caught_by, kill, outcome, world)


_PREFACE = f"""# Mutants

Known bugs, planted again one by one; a simulation that does not notice them would prove nothing.
Made by `python -m tests.simulation.rules.mutants --write`; `make test` plants each of them again.

*Schedules*: how many of the rules' simulation, from seed 0 on, until an invariant expected to notice
did, and which were violated then. *As a loss*: until a user would have noticed - an entry lost, two
ends of one ledger, something that never ends - without the help of invariants about the inside; `-`:
not within {SEEDS_MAX:,}. *World*: seeds of the simulation of the whole product; `-`: not within
{WORLD_SEEDS_MAX:,}, or the bug is in a flow the world has no place to plant it.

"""


def _row(line: Line) -> Sequence[str]:
    by = " ".join(line.kill.invariants) if line.kill else ""
    count, loss, world = (
        f"{kill.schedules:,}" if kill else "-" for kill in (line.kill, line.outcome, line.world)
    )
    return f"`{line.name}`", line.stands_for, count, by, loss, world


TABLE = Table(
    path=DOCUMENTS / "mutants.json",
    mutants=MUTANTS,
    parse=Line.parse,
    hunt=line_of,
    preface=_PREFACE,
    head=("mutant", "the bug it stands for", "schedules", "noticed by", "as a loss", "world"),
    row=_row,
)

if __name__ == "__main__":
    TABLE.main("tests.simulation.rules.mutants", SEEDS_MAX)
