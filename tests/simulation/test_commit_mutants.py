"""Clauses of the commit protocol, broken again: each must be noticed, or silence would mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.commits.campaign import seed_base
from tests.simulation.commits.model import run_schedule
from tests.simulation.commits.mutants import (
    MUTANTS,
    SCHEDULES,
    SEEDS_MAX,
    TABLE,
    Line,
    directed_at,
    hunt,
    violations_of_record,
)
from tests.simulation.kit.kills import PAGE, part_of
from tests.simulation.kit.shrink import fails_with, load

SEEDS_PINNED = 400
"""Schedules from seed 0 on within which a mutant must be noticed if its saved schedule rotted."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_the_mutant_is_noticed(name: str) -> None:
    """By a directed schedule, by its shrunk one, or, where that is stale, by the first seeds."""
    mutant, path = MUTANTS[name], SCHEDULES / f"{name}.txt"
    directed = [line.directed[:1] for line in TABLE.read() if line.name == name]

    is_noticed = any(directed_at(mutant, names) for names in directed)
    if not is_noticed and path.exists():
        with mutant.planted():
            is_noticed = fails_with(mutant.caught_by, violations_of_record)(load(path))

    assert is_noticed or hunt(mutant, range(SEEDS_PINNED)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(SCHEDULES.glob("*.txt")), ids=lambda path: str(path.stem))
def test_the_product_passes_what_once_failed(path: Path) -> None:
    assert violations_of_record(load(path)) == ()


@pytest.mark.full
@pytest.mark.parametrize("line", TABLE.read(), ids=lambda line: str(line.name))
def test_fresh_seeds_notice_what_chance_noticed(line: Line) -> None:
    if line.kill is None:
        assert line.directed
        return
    first = seed_base()

    assert hunt(MUTANTS[line.name], range(first, first + 20 * SEEDS_MAX)) is not None


def test_the_table_in_the_documents_is_of_these_mutants() -> None:
    lines = TABLE.read()

    assert [line.name for line in lines] == sorted(MUTANTS)
    for line in lines:
        mutant = MUTANTS[line.name]
        assert (line.stands_for, line.caught_by) == (mutant.stands_for, mutant.caught_by)
        assert line.kill is not None or line.directed
        assert line.kill is None or set(line.kill.invariants) & set(mutant.caught_by)
    assert part_of(PAGE.read_text(encoding="utf-8"), TABLE.page(lines)) == TABLE.page(lines)


def test_a_planted_mutant_is_gone_afterwards() -> None:
    before = run_schedule(3).history.hash()

    for mutant in MUTANTS.values():
        with mutant.planted():
            pass

    assert run_schedule(3).history.hash() == before
