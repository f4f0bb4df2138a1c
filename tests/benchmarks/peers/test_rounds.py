"""Ratios are of one round, the worst is the one that flatters least, and both sides begin equally often."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.peers.rounds import (
    OURS,
    PEER,
    Measure,
    Round,
    compare,
    costs,
    figures_of_turn,
    order,
)

RATE = Measure("per_s", "", "/s", is_rate=True)
TIME = Measure("p99_ms", "p99", "ms")
LUMPY = Measure("written_per_byte", "wrote", "B/B", is_lumpy=True)


def rounds_of(key: str, *pairs: tuple[float, float]) -> list[Round]:
    return [Round(OURS, 1.0, {OURS: {key: ours}, PEER: {key: peer}}) for ours, peer in pairs]


def test_a_ratio_is_of_one_round_and_not_of_two_medians() -> None:
    """The machine was twice as fast in the second round, for both: that changes no ratio."""
    rounds = rounds_of("per_s", (100, 50), (200, 100), (300, 200))

    compared = compare(RATE, rounds)

    assert compared is not None
    assert compared.ratio == 2.0
    assert (compared.ours.middle, compared.ours.low, compared.ours.high) == (200, 100, 300)
    assert (compared.peer.middle, compared.peer.low, compared.peer.high) == (100, 50, 200)


@pytest.mark.parametrize(("measure", "worst"), [(RATE, 0.5), (TIME, 3.0)])
def test_the_worst_ratio_is_the_lowest_rate_and_the_longest_time(
    measure: Measure, worst: float
) -> None:
    rounds = rounds_of(measure.key, (5, 10), (10, 10), (30, 10))

    compared = compare(measure, rounds)

    assert compared is not None
    assert compared.ratio_worst == worst
    assert compared.ratio == 1.0


def test_a_round_without_a_figure_of_both_sides_is_left_out() -> None:
    rounds = [*rounds_of("p99_ms", (0, 10), (20, 10)), Round(PEER, 0.0, {OURS: {}, PEER: {}})]

    compared = compare(TIME, rounds)

    assert compared is not None
    assert compared.ours.middle == 20
    assert compare(TIME, rounds[:1]) is None


def test_what_comes_in_lumps_is_a_mean_by_bytes() -> None:
    """A cache that was filled in the first round is written in the third: no round is typical."""
    rounds = [
        Round(
            OURS,
            1.0,
            {
                OURS: {"written_per_byte": ours, "bytes": 100},
                PEER: {"written_per_byte": peer, "bytes": bytes_},
            },
        )
        for ours, peer, bytes_ in ((3, 3, 100), (3, 3, 100), (12, 15, 200))
    ]

    compared = compare(LUMPY, rounds)

    assert compared is not None
    assert compared.ours.middle == 6
    assert compared.peer.middle == 9
    assert compared.ratio == pytest.approx(2 / 3)
    assert compared.ratio_worst == 1


def test_both_sides_begin_equally_often() -> None:
    begun = Counter(order(index)[0] for index in range(10))

    assert begun == {OURS: 5, PEER: 5}
    assert all(set(order(index)) == {OURS, PEER} for index in range(10))


def test_rates_follow_from_what_a_client_answered() -> None:
    figures = figures_of_turn({"count": 300, "bytes": 6e6, "seconds": 2.0, "p50_ms": 1.5})

    assert figures["per_s"] == 150
    assert figures["mb_per_s"] == 3
    assert figures["p50_ms"] == 1.5


def test_costs_are_by_user_data() -> None:
    found = costs(4 * 2**20, client_s=0.02, bookies_s=0.04, written_bytes=3 * 4 * 2**20)

    assert found == {
        "client_ms_per_mib": pytest.approx(5),
        "bookies_ms_per_mib": pytest.approx(10),
        "written_per_byte": 3,
    }
    assert costs(0, 1.0, 1.0, 1.0) == {}
