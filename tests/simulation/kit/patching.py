"""How a mutant changes the code under test: one name replaced, everything put back afterwards.

A planted bug is best stated as an edit: which words of a function become which others. The rest is the
product's function as it is today, and where the words are gone, the mutant cannot be planted.

A replacement that calls what it replaces changes with it, too. One that is a copy does not: after an
edit of the product it would go on breaking the code of yesterday, and prove nothing about today's. So
a copy names the hash of the source it was made from, and cannot be planted once that has changed; one
that copies a part and calls the original otherwise may name it, too.
``python -m tests.simulation.mutants --renew`` writes the new hashes, after the mutants were read again.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from types import CodeType, FunctionType
from typing import Literal, Self

Where = Literal["product", "product and model", "model"]
_OURS = ("bookkeeper_metadata", "bookie_server", "spark_bookkeeper", "tests")


class SourceChangedError(AssertionError):
    """What a mutant replaces is no longer what the mutant was written against."""

    def __init__(self, name: str, old: str, new: str) -> None:
        super().__init__(
            f'{name} was edited: a mutant that replaces it says source="{old}", it is "{new}" now. '
            "Read the mutant again; then python -m tests.simulation.mutants --renew"
            if old
            else f'{name} is replaced by a copy of it: say source="{new}"'
        )
        self.old = old
        self.new = new


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


def source_hash(code: object) -> str:
    """Of a function, method or property: what it says, without docstrings, comments and layout."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(_function_of(code))))  # type: ignore[arg-type]
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if ast.get_docstring(node, clean=False) is not None:
                    node.body = node.body[1:]
            case _:
                pass
    return sha256(repr(_shape(tree)).encode()).hexdigest()[:8]


def _shape(value: object) -> object:
    """A syntax tree as plain lists; what is empty is left out, since it depends on the interpreter."""
    if isinstance(value, ast.AST):
        parts = [(name, _shape(part)) for name, part in ast.iter_fields(value)]
        return type(value).__name__, [
            (name, part) for name, part in parts if part not in (None, [])
        ]
    return [_shape(part) for part in value] if isinstance(value, list) else value


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

    changed: list[SourceChangedError] | None = None
    """Where to note that a source changed, instead of raising it."""
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

    def method(self, owner: type, name: str, replacement: object, *, source: str = "") -> None:
        """A method, property or field of a class. The name must exist: mutants must not rot.

        Raises:
            SourceChangedError: ``replacement`` does not call the method, whose hash is not ``source``.
        """
        original = _own(owner, name)
        if not isinstance(replacement, Always):
            self._check(original, replacement, source)
        self._set(owner, name, replacement)

    def constant(self, owner: type, name: str, value: object) -> None:
        """A method that returns ``value`` whatever it is asked: copies nothing, so needs no hash."""
        _own(owner, name)
        self._set(owner, name, lambda *asked, **how: value)

    def function(
        self, original: Callable[..., object], replacement: object, *, source: str = ""
    ) -> None:
        """A function, in every module that imported it.

        Raises:
            SourceChangedError: ``replacement`` does not call it, and its hash is not ``source``.
        """
        self._check(original, replacement, source)
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in _OURS:
                for attribute, value in list(vars(module).items()):
                    if value is original:
                        self._set(module, attribute, replacement)

    def _check(self, original: object, replacement: object, source: str) -> None:
        if not source and _calls(replacement, original):
            return
        found = source_hash(original)
        if found != source:
            name = getattr(_function_of(original), "__qualname__", "")
            error = SourceChangedError(name, source, found)
            if self.changed is None:
                raise error
            self.changed.append(error)

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

    def changed_sources(self) -> list[SourceChangedError]:
        """What it replaces that has been edited since it was written."""
        patch = Patch(changed=[])
        try:
            self.plant(patch)
        finally:
            patch.undo()
        return patch.changed or []


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
