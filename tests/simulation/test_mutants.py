"""Bugs of the past, planted again: each must be noticed, or a green run would mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.kit.kills import PAGE, part_of, renew
from tests.simulation.kit.patching import Always, Mutant, Patch
from tests.simulation.kit.shrink import fails_with, load, save, shrink, size_of
from tests.simulation.rules.campaign import seed_base
from tests.simulation.rules.model import run_schedule
from tests.simulation.rules.mutants import (
    MUTANTS,
    SCHEDULES,
    SEEDS_MAX,
    TABLE,
    WORLD_SEEDS_MAX,
    hunt,
    hunt_by_outcome,
    violations_of_record,
)
from tests.simulation.world.mutants import hunt_in_world

SEEDS_PINNED = 4_000
"""Schedules from seed 0 on after which a mutant must be noticed even if its saved schedule rotted."""
SEEN_BY_LUCK = frozenset({"limbo_says_fenced"})
"""Noticed by an early world of the table, and then by one in some 2,700: the table says more than is true."""


def everyone() -> list[Mutant]:
    return [MUTANTS[name] for name in sorted(MUTANTS)]


def name_of(mutant: Mutant) -> str:
    return mutant.name


@pytest.mark.parametrize("mutant", everyone(), ids=name_of)
def test_the_mutant_is_noticed(mutant: Mutant) -> None:
    """By its shrunk schedule; where a change has made that stale, by the first seeds."""
    record = load(SCHEDULES / f"{mutant.name}.txt")

    with mutant.planted():
        is_noticed = fails_with(mutant.caught_by, violations_of_record)(record)

    assert is_noticed or hunt(mutant, range(SEEDS_PINNED)) is not None


@pytest.mark.parametrize("path", sorted(SCHEDULES.glob("*.txt")), ids=lambda path: path.stem)
def test_the_product_passes_what_once_failed(path: Path) -> None:
    outcome = run_schedule(0, record=load(path))

    assert outcome.violations == ()


def in_the_table(within: int) -> list[Mutant]:
    """Those the whole world noticed within so many seeds when the table was made."""
    seen = {line.name: line.world.schedules for line in TABLE.read() if line.world}
    return [
        mutant
        for mutant in everyone()
        if mutant.name not in SEEN_BY_LUCK and seen.get(mutant.name, within + 1) <= within
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", in_the_table(within=3), ids=name_of)
def test_the_whole_world_notices_the_mutant(mutant: Mutant) -> None:
    """The same bug, planted in the same place, under the real client, bookies and storage."""
    # A lucky first find may stand for one world in ninety: chance must not decide this test either.
    assert hunt_in_world(mutant, range(600)) is not None


@pytest.mark.full
@pytest.mark.parametrize("mutant", in_the_table(within=WORLD_SEEDS_MAX), ids=name_of)
def test_fresh_worlds_notice_the_mutant(mutant: Mutant) -> None:
    first = seed_base()

    assert hunt_in_world(mutant, range(first, first + 10 * WORLD_SEEDS_MAX)) is not None


@pytest.mark.full
@pytest.mark.parametrize("mutant", everyone(), ids=name_of)
def test_the_mutant_is_noticed_by_fresh_seeds(mutant: Mutant) -> None:
    first = seed_base()

    # Several times what the rarest needs on average: chance must not decide this test.
    assert hunt(mutant, range(first, first + 5 * SEEDS_MAX)) is not None


def test_the_table_in_the_documents_is_of_these_mutants() -> None:
    lines = TABLE.read()

    assert [line.name for line in lines] == sorted(MUTANTS)
    for line in lines:
        mutant = MUTANTS[line.name]
        assert line.kill is not None
        assert (line.stands_for, line.where) == (mutant.stands_for, mutant.where)
        assert set(line.kill.invariants) & set(mutant.caught_by)
    assert part_of(PAGE.read_text(encoding="utf-8"), TABLE.page(lines)) == TABLE.page(lines)


def test_a_part_of_a_document_is_renewed_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# One\n\na\n\n# Two\n\nb\n")

    renew(path, "# One\n\nc\n\n")
    renew(path, "# Three\n\nd\n")

    assert path.read_text() == "# One\n\nc\n\n# Two\n\nb\n# Three\n\nd\n"
    assert part_of(path.read_text(), "# Two\n") == "# Two\n\nb\n"


def test_a_planted_mutant_is_gone_afterwards() -> None:
    before = run_schedule(3, is_traced=True).trace

    for mutant in everyone():
        with mutant.planted():
            pass

    assert run_schedule(3, is_traced=True).trace == before


def test_a_mutant_of_a_name_that_is_gone_is_an_error() -> None:
    with pytest.raises(AttributeError):
        Patch().method(Mutant, "renamed_since", None)


def test_a_field_can_be_made_to_lie() -> None:
    class Holder:
        flag = Always(False)

    holder = Holder()
    holder.flag = True

    assert holder.flag is False


@pytest.mark.slow
def test_shrinking_leaves_what_the_failure_needs(tmp_path: Path) -> None:
    mutant = MUTANTS["acks_out_of_order"]
    kill = hunt_by_outcome(mutant, range(SEEDS_PINNED))
    assert kill is not None
    with mutant.planted():
        drawn = run_schedule(kill.seed).record

        fails = fails_with(kill.invariants, violations_of_record)
        record = shrink(drawn, fails, runs_max=300)

        assert size_of(record) < size_of(drawn)
        assert size_of(record)[0] < 25
        assert fails(record)
    save(tmp_path / "short.txt", "what it showed", record)
    assert load(tmp_path / "short.txt") == record
