"""How long it takes to notice a mutant, and the tables of it: a JSON file for tests, a page for people."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tests.simulation.kit.campaigns import REPOSITORY
from tests.simulation.kit.patching import Mutant

DOCUMENTS = REPOSITORY / "docs"
PAGE = DOCUMENTS / "mutants.md"
"""The tables of all tiers, a part each."""


@dataclass(frozen=True, slots=True)
class Kill:
    """How a mutant was noticed."""

    schedules: int
    """Run until then."""
    seed: int
    invariants: tuple[str, ...]

    @classmethod
    def parse(cls, fields: Mapping[str, Any] | None) -> Kill | None:
        """From the JSON file."""
        if fields is None:
            return None
        return cls(fields["schedules"], fields["seed"], tuple(fields["invariants"]))


def labels_of(violations: Iterable[str]) -> tuple[str, ...]:
    """The invariants of findings like ``I1: what``, once each."""
    return tuple(dict.fromkeys(violation.partition(":")[0] for violation in violations))


def hunt(
    mutant: Mutant,
    seeds: Iterable[int],
    labels_at: Callable[[int], Collection[str]],
    expected: Collection[str] | None,
) -> Kill | None:
    """Run seeds with the bug planted until an expected invariant notices (``None``: any at all)."""
    with mutant.planted():
        for count, seed in enumerate(seeds, 1):
            found = tuple(labels_at(seed))
            if found and (expected is None or set(found) & set(expected)):
                return Kill(count, seed, found)
    return None


class Line(Protocol):
    """A row of a table."""

    @property
    def name(self) -> str:
        """The mutant's."""


L = TypeVar("L", bound=Line)


@dataclass(frozen=True, slots=True)
class Table(Generic[L]):
    """One tier's mutants and what became of them."""

    path: Path
    """The JSON file."""
    mutants: Mapping[str, Mutant]
    parse: Callable[[dict[str, Any]], L]
    hunt: Callable[..., L]
    """``hunt(name, seeds_max, writes=bool)``: a function that other processes can import."""
    preface: str
    head: tuple[str, ...]
    row: Callable[[L], Sequence[str]]
    epilogue: str = ""

    def read(self) -> list[L]:
        """The lines the documents were written from."""
        if not self.path.exists():
            return []
        return [self.parse(fields) for fields in json.loads(self.path.read_text(encoding="utf-8"))]

    def page(self, lines: Iterable[L]) -> str:
        """The tier's part of docs/mutants.md."""
        return self.preface + self.markdown(lines) + self.epilogue

    def markdown(self, lines: Iterable[L]) -> str:
        """The table."""
        head, *rows = (f"| {' | '.join(row)} |\n" for row in (self.head, *map(self.row, lines)))
        return "".join([head, "|" + "---|" * len(self.head) + "\n", *rows])

    def main(self, program: str, seeds_max: int) -> None:
        """The command: print the table; ``--write`` renews the documents."""
        parser = argparse.ArgumentParser(prog=f"python -m {program}")
        parser.add_argument("names", nargs="*", help="all when none is given; other lines stay")
        parser.add_argument("--seeds", type=int, default=seeds_max)
        parser.add_argument("--write", action="store_true")
        arguments = parser.parse_args()
        names = arguments.names or sorted(self.mutants)
        hunt_one = partial(self.hunt, seeds_max=arguments.seeds, writes=arguments.write)
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
            lines = list(pool.map(hunt_one, names))
        sys.stdout.write(self.markdown(lines))
        if arguments.write:
            kept = [line for line in self.read() if line.name in self.mutants.keys() - set(names)]
            lines = sorted([*kept, *lines], key=lambda line: line.name)
            # Lines are dataclasses, which a Protocol cannot say.
            fields = [asdict(line) for line in lines]  # type: ignore[call-overload]
            self.path.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
            renew(PAGE, self.page(lines))


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
