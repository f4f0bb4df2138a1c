"""Mutants that are told with the test which must fail when one is planted."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.kit.patching import Mutant, Mutants, Planting


@dataclass(frozen=True, slots=True)
class Directed:
    """A mutant and the test that notices it."""

    mutant: Mutant
    test: str
    """``file::test``."""


class DirectedMutants:
    """A family of them."""

    def __init__(self) -> None:
        self._mutants = Mutants()
        self._tests: dict[str, str] = {}

    def __call__(self, name: str, stands_for: str, file: str, test: str) -> Planting:
        """State a bug and the test that must fail with it; how it is planted comes next."""
        self._tests[name] = f"{file}::{test}"
        return self._mutants.planted(name, stands_for)

    def all(self) -> dict[str, Directed]:
        """By name."""
        return {name: Directed(self._mutants[name], test) for name, test in self._tests.items()}
