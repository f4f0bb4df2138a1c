"""How a mutant changes the code under test: one name replaced, everything put back afterwards.

A planted bug is best stated as an edit: which words of a function become which others. The rest is the
product's function as it is today, and where the words are gone, the mutant cannot be planted.

What takes more is a replacement that calls what it replaces, and so changes with it. A copy would go on
breaking the code of yesterday after an edit of the product, and prove nothing about today's: it cannot
be planted.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Literal, Self

Where = Literal["product", "product and model", "model"]
_OURS = ("bookkeeper_metadata", "bookie_server", "spark_bookkeeper", "tests")


class CopyError(AssertionError):
    """A mutant replaces code by other code that does not call it."""

    def __init__(self, original: object) -> None:
        name = getattr(_function_of(original), "__qualname__", original)
        super().__init__(f"{name} is replaced by a copy of it: say what becomes what, with edit()")


class WordsGoneError(AssertionError):
    """A function does not say (once) what a mutant edits in it."""

    def __init__(self, name: str, words: str, times: int) -> None:
        super().__init__(
            f"{name} says {words!r} {times} times: read the mutant that edits it again"
        )


class Always:
    """Stands for a field of a dataclass: whatever is written to it, it reads as ``value``."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __get__(self, instance: object, owner: type) -> object:
        return self._value

    def __set__(self, instance: object, value: object) -> None:
        return


def _function_of(code: object) -> object:
    return code.fget if isinstance(code, property) else getattr(code, "__func__", code)


def _calls(replacement: object, original: object) -> bool:
    """Whether a replacement keeps what it replaces in its closure."""
    cells = getattr(_function_of(replacement), "__closure__", None) or ()
    return any(_function_of(cell.cell_contents) is _function_of(original) for cell in cells)


def _own(owner: type, name: str) -> object:
    if name not in owner.__dict__:
        raise AttributeError(f"{owner.__qualname__} has no {name} of its own")
    return owner.__dict__[name]


@dataclass(slots=True)
class Patch:
    """Replaces attributes, and remembers what they were."""

    _replaced: list[tuple[object, str, object]] = field(default_factory=list)

    def edit(self, code: object, changes: Mapping[str, str]) -> None:
        """Other words in the place of some, in a function, method or property: whoever holds it calls
        the edited one. One change is made after the other.

        Lines are written as if they began at the margin: the first line's indentation is put before
        those that follow it.

        Raises:
            WordsGoneError: words that shall be changed are not there, or more than once.
        """
        function = _function_of(code)
        assert isinstance(function, FunctionType)
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in changes.items():
            found = list(re.finditer(r"\n *".join(map(re.escape, old.split("\n"))), source))
            if len(found) != 1:
                raise WordsGoneError(function.__qualname__, old, len(found))
            before, after = source[: found[0].start()], source[found[0].end() :]
            line = before.rpartition("\n")[2]
            indent = " " * (len(line) - len(line.lstrip()))
            source = before + new.replace("\n", f"\n{indent}") + after
        module = compile(source, f"<mutant of {function.__qualname__}>", "exec")
        codes = [part for part in module.co_consts if isinstance(part, CodeType)]
        self._replaced.append((function, "__code__", function.__code__))
        (function.__code__,) = (code for code in codes if code.co_name == function.__name__)

    def method(self, owner: type, name: str, replacement: object) -> None:
        """A method, property or field of a class. The name must exist: mutants must not rot.

        Raises:
            CopyError: ``replacement`` does not call the method.
        """
        original = _own(owner, name)
        if not isinstance(replacement, Always) and not _calls(replacement, original):
            raise CopyError(original)
        self._set(owner, name, replacement)

    def constant(self, owner: type, name: str, value: object) -> None:
        """A method that returns ``value`` whatever it is asked: copies nothing, so needs no call."""
        _own(owner, name)
        self._set(owner, name, lambda *asked, **how: value)

    def function(self, original: Callable[..., object], replacement: object) -> None:
        """A function, in every module that imported it.

        Raises:
            CopyError: ``replacement`` does not call it.
        """
        if not _calls(replacement, original):
            raise CopyError(original)
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


@dataclass(frozen=True, slots=True)
class Planting:
    """A bug whose mutant is made by what follows: a function that plants it, or edits."""

    mutants: Mutants
    name: str
    stands_for: str
    caught_by: tuple[str, ...]
    where: Where
    edits: list[tuple[object, Mapping[str, str]]] = field(default_factory=list)

    def __call__(self, plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        """Register a function that plants it."""
        self.mutants.add(Mutant(self.name, self.stands_for, self.caught_by, plant, self.where))
        return plant

    def edit(self, code: object, changes: Mapping[str, str]) -> Self:
        """It is planted by :meth:`Patch.edit`, after the edits before this one."""
        if not self.edits:
            self(self._edit)
        self.edits.append((code, changes))
        return self

    def _edit(self, patch: Patch) -> None:
        for code, changes in self.edits:
            patch.edit(code, changes)


class Mutants(dict[str, Mutant]):
    """Mutants by name."""

    def planted(
        self, name: str, stands_for: str, *caught_by: str, where: Where = "product"
    ) -> Planting:
        """Say which bug a mutant stands for; how it is planted comes next."""
        return Planting(self, name, stands_for, caught_by, where)

    def add(self, mutant: Mutant) -> None:
        """Names are given once."""
        if mutant.name in self:
            raise ValueError(f"there is a mutant {mutant.name} already")
        self[mutant.name] = mutant


def joined(*families: Mutants) -> Mutants:
    """All of them together."""
    found = Mutants()
    for family in families:
        for mutant in family.values():
            found.add(mutant)
    return found
