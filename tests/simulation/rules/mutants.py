"""Every mutant, how many schedules it takes to notice it, and by which invariant.

``python -m tests.simulation.rules.mutants`` prints the table, ``--write`` renews docs/mutants.json and
the shrunk schedules from the run. A mutant of one's own is three lines beside the others:

    @mutant("name", "the bug it stands for", "I1")
    def _name(patch: Patch) -> None:
        patch.method(WriterState, "_may_acknowledge", lambda self: True)
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bookkeeper_metadata.foundation.invariant import InvariantViolation
from tests.simulation.rules import mutants_of_bookies, mutants_of_recovery, mutants_of_writers
from tests.simulation.rules.checks import OUTCOMES, RULES, Check, check_name
from tests.simulation.rules.model import run_schedule
from tests.simulation.rules.patching import MUTANTS, Mutant
from tests.simulation.rules.shrink import fails_with, save, shrink
from tests.simulation.run import run_seed

_DOCUMENTS = Path(__file__).resolve().parents[3] / "docs"
TABLE = _DOCUMENTS / "mutants.json"
PAGE = _DOCUMENTS / "mutants.md"
"""The same for people."""
SCHEDULES = Path(__file__).resolve().parent / "schedules"
"""One shrunk schedule per mutant: fails with it, and passes without."""
SEEDS_MAX = 30_000
"""Schedules after which a mutant counts as not noticed."""
WORLD_SEEDS_MAX = 300
"""The same for seeds of the whole world, each of which costs as much as 30 schedules."""
_MODULES = (mutants_of_bookies, mutants_of_recovery, mutants_of_writers)
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


def hunt_in_world(mutant: Mutant, seeds: Iterable[int]) -> Kill | None:
    """The same bug in the whole product on virtual time (``python -m tests.simulation``)."""
    with mutant.planted():
        for count, seed in enumerate(seeds, 1):
            try:
                found = run_seed(seed).violations
            except InvariantViolation as error:
                found = [f"p_product_holds: {error}"]
            if found:
                names = dict.fromkeys(
                    re.split(r"[_: ]", violation)[0].upper() for violation in found
                )
                return Kill(count, seed, tuple(names))
    return None


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


def line_of(name: str, seeds_max: int = SEEDS_MAX, *, writes: bool = False) -> Line:
    """Hunt one mutant from seed 0 on, everywhere; ``writes`` keeps the shrunk schedule as a file."""
    logging.disable(logging.CRITICAL)
    mutant = MUTANTS[name]
    kill = hunt(mutant, range(seeds_max))
    outcome = hunt_by_outcome(mutant, range(seeds_max))
    if writes and kill is not None:
        with mutant.planted():
            record = shrink(run_schedule(kill.seed).record, fails_with(mutant.caught_by))
            shown = run_schedule(0, record=record).violations
        about = f"mutant {name}: {mutant.stands_for}\n{shown[0]}"
        save(SCHEDULES / f"{name}.txt", about, record)
    is_in_product = mutant.where != "model"
    world = hunt_in_world(mutant, range(WORLD_SEEDS_MAX)) if is_in_product else None
    return Line(name, mutant.stands_for, mutant.where, mutant.caught_by, kill, outcome, world)


def table(names: Iterable[str], seeds_max: int, *, writes: bool = False) -> list[Line]:
    """All lines, several at a time."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        jobs = [pool.submit(line_of, name, seeds_max, writes=writes) for name in names]
        return [job.result() for job in jobs]


_PREFACE = """# Mutants

Known bugs, planted again one by one; a simulation that does not notice them would prove nothing.
Made by `python -m tests.simulation.rules.mutants --write`; `make test` plants each of them again.

*Schedules*: how many of the rules' simulation, from seed 0 on, until an invariant expected to notice
did, and which were violated then. *As a loss*: until a user would have noticed - an entry lost, two
ends of one ledger, something that never ends - without the help of invariants about the inside; `-`:
not within {seeds:,}. *World*: seeds of the simulation of the whole product; `-`: not within
{world:,}, or the bug is in a flow the world has no place to plant it.

"""


def page(lines: Iterable[Line]) -> str:
    """The first part of docs/mutants.md."""
    return _PREFACE.format(seeds=SEEDS_MAX, world=WORLD_SEEDS_MAX) + markdown(lines)


def part_of(text: str, part: str) -> str:
    """The part of a document that has the same title as ``part``; empty if there is none."""
    title = part.partition("\n")[0]
    start = f"\n{text}".find(f"\n{title}\n")
    end = text.find("\n# ", start)
    return "" if start < 0 else text[start:] if end < 0 else text[start : end + 1]


def renew(path: Path, part: str) -> None:
    """Put ``part`` in the place of the one of its title, or behind the others."""
    text = path.read_text(encoding="utf-8")
    old = part_of(text, part)
    path.write_text(text.replace(old, part) if old else text + part, encoding="utf-8")


def parse_table(text: str) -> list[Line]:
    """The lines docs/mutants.json was written from."""
    return [_line(fields) for fields in json.loads(text)]


def _line(fields: dict[str, Any]) -> Line:
    kills = {
        key: kill and Kill(kill["schedules"], kill["seed"], tuple(kill["invariants"]))
        for key, kill in fields.items()
        if key in ("kill", "outcome", "world")
    }
    return Line(**{**fields, **kills, "caught_by": tuple(fields["caught_by"])})


def markdown(lines: Iterable[Line]) -> str:
    """The table."""
    rows = [
        "| mutant | the bug it stands for | schedules | noticed by | as a loss | world |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        by = " ".join(line.kill.invariants) if line.kill else ""
        seen = (
            f"{kill.schedules:,}" if kill else "-" for kill in (line.kill, line.outcome, line.world)
        )
        count, loss, world = seen
        rows.append(f"| `{line.name}` | {line.stands_for} | {count} | {by} | {loss} | {world} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Print the table; with ``--write`` renew the one that is checked in."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.rules.mutants")
    parser.add_argument("names", nargs="*", help="all when none is given")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines = table(arguments.names or sorted(MUTANTS), arguments.seeds, writes=arguments.write)
    sys.stdout.write(markdown(lines))
    if arguments.write:
        TABLE.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
        renew(PAGE, page(lines))


if __name__ == "__main__":
    main()
