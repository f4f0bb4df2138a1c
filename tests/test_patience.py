"""Limits grow with what makes a machine slow, and never shrink."""

from __future__ import annotations

import pytest

from tests.patience import FACTOR_MAX, REFERENCE_S, Deadline, factor


@pytest.mark.parametrize(
    ("count_took_s", "load", "cores_of_machine", "cores_of_ours", "expected"),
    [
        pytest.param(REFERENCE_S, 0.0, 2, 2, 1, id="two quiet cores"),
        pytest.param(REFERENCE_S / 10, 0.0, 64, 64, 1, id="fast, with many cores"),
        pytest.param(3 * REFERENCE_S, 0.0, 2, 2, 3, id="slow"),
        pytest.param(REFERENCE_S, 14.0, 2, 2, 7, id="seven-fold load"),
        pytest.param(REFERENCE_S, 0.0, 2, 1, 2, id="one core"),
        pytest.param(REFERENCE_S, 14.0, 2, 1, 14, id="one core of a loaded machine"),
        pytest.param(7 * REFERENCE_S, 14.0, 2, 2, 7, id="load is not counted twice"),
        pytest.param(1e6, 1e6, 2, 1, FACTOR_MAX, id="bounded"),
    ],
)
def test_a_limit_fits_the_machine(
    count_took_s: float, load: float, cores_of_machine: int, cores_of_ours: int, expected: float
) -> None:
    assert factor(count_took_s, load, cores_of_machine, cores_of_ours) == pytest.approx(expected)


def test_a_deadline_moves_on_while_there_is_load() -> None:
    now_s, load = iter([100.0, 109.0, 111.0, 131.0, 111.0]), iter([3.0, 3.0, 1.0])
    deadline = Deadline(10, lambda: next(now_s), lambda quiet_s: quiet_s * next(load))

    assert [deadline.has_passed for _ in range(4)] == [False, False, True, True]
