"""How a mutant changes the code under test: one name replaced, everything put back afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

Where = Literal["product", "product and model", "model"]
_OURS = ("bookkeeper_metadata", "bookie_server", "spark_bookkeeper", "tests")


class Always:
    """Stands for a field of a dataclass: whatever is written to it, it reads as ``value``."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __get__(self, instance: object, owner: type) -> object:
        return self._value

    def __set__(self, instance: object, value: object) -> None:
        return


@dataclass(slots=True)
class Patch:
    """Replaces attributes, and remembers what they were."""

    _replaced: list[tuple[object, str, object]] = field(default_factory=list)

    def method(self, owner: type, name: str, replacement: object) -> None:
        """A method, property or field of a class. The name must exist: mutants must not rot."""
        if name not in owner.__dict__:
            raise AttributeError(f"{owner.__qualname__} has no {name} of its own")
        self._set(owner, name, replacement)

    def function(self, original: Callable[..., object], replacement: object) -> None:
        """A function, in every module that imported it."""
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in _OURS:
                for attribute, value in list(vars(module).items()):
                    if value is original:
                        self._set(module, attribute, replacement)

    def _set(self, owner: object, name: str, replacement: object) -> None:
        self._replaced.append((owner, name, vars(owner)[name]))
        setattr(owner, name, replacement)

    def undo(self) -> None:
        """Put back what was replaced."""
        while self._replaced:
            owner, name, original = self._replaced.pop()
            setattr(owner, name, original)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A known bug, planted again."""

    name: str
    stands_for: str
    """The bug, in the words of whoever found it."""
    caught_by: tuple[str, ...]
    """Invariants of which at least one must notice it."""
    plant: Callable[[Patch], None]
    where: Where = "product"
    """A pure rule is patched in the product. What is decided in the middle of a coroutine is planted
    in the model's twin of it, and in the product where that has a method to patch."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The code is wrong inside, and right again afterwards."""
        patch = Patch()
        try:
            self.plant(patch)
            yield
        finally:
            patch.undo()


MUTANTS: dict[str, Mutant] = {}
"""By name."""


def mutant(
    name: str,
    stands_for: str,
    *caught_by: str,
    where: Where = "product",
    among: dict[str, Mutant] = MUTANTS,
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Register a function that plants a bug, by default one of the ledger protocol."""

    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        if name in among:
            raise ValueError(f"there is a mutant {name} already")
        among[name] = Mutant(name, stands_for, caught_by, plant, where)
        return plant

    return register
