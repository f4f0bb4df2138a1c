"""Quorum arithmetic against the definition, word for word."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations, product
from random import Random

import pytest

from bookkeeper_metadata.foundation.invariant import InvariantViolation
from spark_bookkeeper.ledger.errors import NotEnoughBookiesError
from spark_bookkeeper.ledger.protocol.placement import choose_ensemble
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig, coverage_threshold

CONFIGS = [
    QuorumConfig(e, w, a) for e in range(1, 6) for w in range(1, e + 1) for a in range(1, w + 1)
]


def covers_by_definition(responders: set[int], cohort: tuple[int, ...], ack_quorum: int) -> bool:
    """The TLA+ wording, verbatim: every ack quorum contains at least one responder."""
    return all(set(quorum) & responders for quorum in combinations(cohort, ack_quorum))


def subsets(size: int) -> list[set[int]]:
    positions = range(size)
    return [set(c) for n in range(size + 1) for c in combinations(positions, n)]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.conformance("W27")
def test_coverage_is_what_the_definition_says(config: QuorumConfig) -> None:
    for responders in subsets(config.ensemble_size):
        by_definition = all(
            covers_by_definition(responders, config.write_set(entry), config.ack_quorum)
            for entry in range(config.ensemble_size)
        )
        assert config.covers(responders) == by_definition


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_entries_can_be_acknowledged_iff_every_write_set_has_an_ack_quorum(
    config: QuorumConfig,
) -> None:
    for usable in subsets(config.ensemble_size):
        by_definition = all(
            len(usable & set(config.write_set(entry))) >= config.ack_quorum
            for entry in range(config.ensemble_size)
        )
        assert config.can_acknowledge(usable) == by_definition


@pytest.mark.parametrize(
    ("write_quorum", "ack_quorum", "threshold"),
    [(3, 2, 2), (2, 2, 1), (3, 3, 1), (2, 1, 2), (3, 1, 3), (5, 3, 3)],
)
def test_the_negative_threshold_is_the_protocol_pages_table(
    write_quorum: int, ack_quorum: int, threshold: int
) -> None:
    assert coverage_threshold(write_quorum, ack_quorum) == threshold


def test_write_sets_go_round_the_ensemble() -> None:
    config = QuorumConfig(5, 3, 2)

    assert [config.write_set(e) for e in (0, 3, 4, 5)] == [
        (0, 1, 2),
        (3, 4, 0),
        (4, 0, 1),
        (0, 1, 2),
    ]


def test_an_impossible_quorum_is_a_defect() -> None:
    with pytest.raises(InvariantViolation):
        coverage_threshold(3, 4)


@pytest.mark.conformance("ClientCreatesLedger")
def test_placement_draws_distinct_bookies_from_the_given_randomness() -> None:
    bookies = [f"b{i}" for i in range(10)]

    first = choose_ensemble(QuorumConfig(4, 3, 2), bookies, Random(1))
    second = choose_ensemble(QuorumConfig(4, 3, 2), set(bookies), Random(1))

    assert first == second
    assert len(set(first.members)) == 4
    assert not first.held


def test_too_few_bookies_name_how_many_and_which() -> None:
    with pytest.raises(NotEnoughBookiesError, match=r"needed=3 available=a,b") as caught:
        choose_ensemble(QuorumConfig(3, 3, 2), ["b", "a"], Random(1))

    assert caught.value.retryable


@pytest.mark.parametrize("writable_min", [0, 2, 9])
def test_dead_bookies_stop_no_new_ledger_whose_entries_can_be_acknowledged(
    writable_min: int,
) -> None:
    """By definition, for every small cluster: how many are writable, how many known but away."""
    for wanted in CONFIGS:
        for writable, away in product(range(7), range(4)):
            here, gone = [f"b{n}" for n in range(writable)], [f"x{n}" for n in range(away)]
            needed = max(wanted.ack_quorum, min(writable_min, wanted.write_quorum))
            is_possible = writable >= wanted.write_quorum or (
                writable >= needed and writable + away >= wanted.write_quorum
            )
            chosen = None
            with suppress(NotEnoughBookiesError):
                chosen = choose_ensemble(
                    wanted, here, Random(1), away=gone, writable_min=writable_min
                )

            assert (chosen is not None) == is_possible
            if chosen is None:
                continue
            members, size = chosen.members, len(chosen.members)
            assert len(set(members)) == size
            assert wanted.write_quorum <= size <= wanted.ensemble_size
            # None is given up that could be had, and none is held while there are enough.
            assert size == wanted.ensemble_size or set(here) <= set(members)
            assert chosen.held == set(members) & set(gone)
            assert not chosen.held or size == wanted.write_quorum
            actual = QuorumConfig(size, wanted.write_quorum, wanted.ack_quorum)
            usable = {at for at, name in enumerate(members) if name in here}
            assert actual.can_acknowledge(usable)
