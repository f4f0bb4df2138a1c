"""A mutant that copies product code cannot outlive the code it copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.kit.patching import (
    Mutant,
    Patch,
    SourceChangedError,
    WordsGoneError,
    source_hash,
)
from tests.simulation.mutants import FAMILIES, renew, stale


class Code:
    """Stands for the product."""

    def compute(self, asked: int) -> int:
        """As it was."""
        doubled = asked * 2
        return doubled + 1

    @property
    def value(self) -> int:
        return 1


class Reworded:
    def compute(self, asked: int) -> int:
        """Another docstring."""
        doubled = (
            asked * 2  # and a comment
        )

        return doubled + 1


class Renamed:
    def compute(self, asked: int) -> int:
        twice = asked * 2
        return twice + 1


class Edited:
    def compute(self, asked: int) -> int:
        doubled = asked * 2
        return doubled + 2


def compute(asked: int) -> int:
    if asked:
        doubled = 2 * asked
        return 2 * doubled
    return 0


def copy(self: Code, asked: int) -> int:
    return asked * 2


def test_a_hash_is_of_what_the_code_says() -> None:
    assert source_hash(Code.compute) == source_hash(Reworded.compute)
    assert source_hash(Code.compute) != source_hash(Renamed.compute)
    assert source_hash(Code.compute) != source_hash(Edited.compute)
    assert source_hash(vars(Code)["value"]) != source_hash(Code.compute)


def test_a_copy_of_edited_code_cannot_be_planted() -> None:
    written_against, now = source_hash(Edited.compute), source_hash(Code.compute)
    mutant = Mutant(
        "copy", "", (), lambda patch: patch.method(Code, "compute", copy, source=written_against)
    )

    with (
        pytest.raises(SourceChangedError, match=f"{written_against}.*{now}.*Read the mutant"),
        mutant.planted(),
    ):
        raise AssertionError("it was planted")

    assert Code().compute(1) == 3
    assert [(e.old, e.new) for e in mutant.changed_sources()] == [(written_against, now)]


def test_a_copy_must_say_what_it_copied() -> None:
    with pytest.raises(SourceChangedError, match=f'say source="{source_hash(Code.compute)}"'):
        Patch().method(Code, "compute", copy)


def test_a_copy_of_what_the_code_still_says_is_planted() -> None:
    patch = Patch()

    patch.method(Code, "compute", copy, source=source_hash(Code.compute))

    assert Code().compute(1) == 2
    patch.undo()
    assert Code().compute(1) == 3


def test_what_calls_the_original_changes_with_it_and_needs_no_hash() -> None:
    original = Code.compute
    patch = Patch()

    patch.method(Code, "compute", lambda self, asked: original(self, asked + 1))

    assert Code().compute(1) == 5
    patch.undo()


def test_a_constant_copies_nothing_and_needs_no_hash() -> None:
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


def test_no_mutant_replaces_code_that_was_edited_since() -> None:
    assert [f"{name}: {error}" for name, error in stale()] == []
    assert all(FAMILIES.values())


def test_hashes_are_renewed_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "mutants_of_samples.py"
    path.write_text('patch.method(A, "b", c, source="00000000")\nother = "00000000"\n')

    renew([path], {"00000000": "11111111"})

    assert path.read_text() == 'patch.method(A, "b", c, source="11111111")\nother = "00000000"\n'
