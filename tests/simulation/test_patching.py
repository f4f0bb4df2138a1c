"""A mutant edits the code of today, or wraps it: a copy of yesterday's cannot be planted."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.mutants.directed import DIRECTED
from tests.simulation.commits.mutants import MUTANTS as COMMITS
from tests.simulation.kit.patching import CopyError, Mutant, Patch, WordsGoneError
from tests.simulation.rules.mutants import MUTANTS as RULES
from tests.simulation.world.blind_mutants import BLIND
from tests.simulation.world.mutants import MUTANTS as WORLD


class Code:
    """Stands for the product."""

    def compute(self, asked: int) -> int:
        """As it was."""
        doubled = asked * 2
        return doubled + 1

    @property
    def value(self) -> int:
        return 1


def compute(asked: int) -> int:
    if asked:
        doubled = 2 * asked
        return 2 * doubled
    return 0


def copy(self: Code, asked: int) -> int:
    return asked * 2


def test_a_copy_cannot_be_planted() -> None:
    patch = Patch()

    with pytest.raises(CopyError, match="compute is replaced by a copy"):
        patch.method(Code, "compute", copy)
    with pytest.raises(CopyError, match="compute is replaced by a copy"):
        patch.function(compute, copy)

    assert Code().compute(1) == 3


def test_what_calls_the_original_changes_with_it() -> None:
    original = Code.compute
    patch = Patch()

    patch.method(Code, "compute", lambda self, asked: original(self, asked + 1))

    assert Code().compute(1) == 5
    patch.undo()


def test_a_constant_copies_nothing() -> None:
    patch = Patch()

    patch.constant(Code, "compute", 7)

    assert Code().compute(1) == 7
    patch.undo()
    with pytest.raises(AttributeError):
        patch.constant(Code, "renamed_since", 7)


def test_an_edit_leaves_the_rest_as_it_is() -> None:
    patch = Patch()

    patch.edit(
        Code.compute, {"asked * 2": "asked * 3", "return": "if asked > 1:\n    return 0\nreturn"}
    )
    patch.edit(Code.value, {"return 1": "return 2"})

    assert [Code().compute(asked) for asked in (1, 2)] == [4, 0]
    assert Code().value == 2
    patch.undo()
    assert (Code().compute(2), Code().value) == (5, 1)


def test_an_edited_function_is_edited_wherever_it_was_imported() -> None:
    patch = Patch()

    patch.edit(compute, {"asked\nreturn 2 * doubled": "asked\nreturn 0"})

    assert compute(1) == 0
    patch.undo()
    assert compute(1) == 4


@pytest.mark.parametrize("words", ["tripled", "doubled"])
def test_what_is_edited_must_be_there_once(words: str) -> None:
    with pytest.raises(WordsGoneError, match=f"compute says '{words}' [02] times"):
        Patch().edit(Code.compute, {words: ""})


@pytest.mark.parametrize(
    "mutants",
    [
        COMMITS,
        RULES,
        WORLD,
        BLIND,
        {name: each.mutant for name, each in DIRECTED.items()},
    ],
    ids=["commits", "rules", "world", "blind", "directed"],
)
def test_every_mutant_fits_the_code_of_today(mutants: Mapping[str, Mutant]) -> None:
    for mutant in mutants.values():
        with mutant.planted():
            pass

    assert mutants
