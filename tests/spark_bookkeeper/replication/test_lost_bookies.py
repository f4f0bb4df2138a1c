"""When the ledgers of lost bookies are marked: at once, or after a delay that a restart fits into."""

from __future__ import annotations

import pytest

from spark_bookkeeper.replication.lost_bookies import LostBookies

ALL = frozenset({"b0", "b1", "b2", "b3"})
NONE = frozenset[str]()


def following(delay_s: float = 60) -> LostBookies:
    bookies = LostBookies(delay_s)
    bookies.on_known(ALL)
    bookies.on_registered(ALL, 0)
    assert bookies.due(1e9) == NONE
    return bookies


@pytest.mark.conformance("A1")
def test_without_a_delay_a_lost_bookie_is_due_at_once_and_once() -> None:
    bookies = following(0)

    bookies.on_registered(ALL - {"b1"}, 5)
    assert bookies.due(5) == {"b1"}
    bookies.on_audited({"b1"})
    bookies.on_registered(ALL - {"b1"}, 6)

    assert bookies.due(1e9) == NONE
    bookies.forget_audits()
    bookies.on_registered(ALL - {"b1"}, 7)
    assert bookies.due(7) == {"b1"}


@pytest.mark.conformance("A3")
def test_a_single_one_is_waited_for_and_forgiven() -> None:
    bookies = following()
    bookies.on_registered(ALL - {"b1"}, 5)

    assert bookies.due(64.9) == NONE
    assert bookies.left_s(5, 1e9) == 60
    bookies.on_registered(ALL - {"b1"}, 50)
    assert bookies.due(65) == {"b1"}, "looking again does not begin the delay anew"
    bookies.on_registered(ALL, 64)
    assert bookies.due(1e9) == NONE


@pytest.mark.conformance("A3")
def test_a_rolling_restart_marks_nothing() -> None:
    bookies = following()
    for at, bookie_id in enumerate(sorted(ALL)):
        bookies.on_registered(ALL - {bookie_id}, 100 * at)
        assert bookies.due(100 * at + 59) == NONE
        bookies.on_registered(ALL, 100 * at + 59)
    assert bookies.due(1e9) == NONE


@pytest.mark.conformance("A3")
def test_two_at_once_are_not_waited_for() -> None:
    bookies = following()
    bookies.on_registered(ALL - {"b1"}, 5)
    bookies.on_registered(ALL - {"b1", "b2"}, 6)

    assert bookies.due(6) == {"b1", "b2"}


@pytest.mark.conformance("A3")
@pytest.mark.parametrize(
    ("written", "due_s"), [([0], 10), ([60], 10), ([30], 40), ([30, 30], 10)], ids=str
)
def test_a_delay_that_is_written_counts_and_the_same_one_triggers(
    written: list[float], due_s: float
) -> None:
    bookies = following()
    bookies.on_registered(ALL - {"b1"}, 5)

    for delay_s in written:
        bookies.on_delay(delay_s, 10)

    assert bookies.due(due_s - 0.1) == NONE
    assert bookies.due(due_s) == {"b1"}


def test_who_comes_back_and_is_lost_again_is_audited_again() -> None:
    bookies = following(0)
    bookies.on_registered(ALL - {"b1"}, 5)
    bookies.on_audited({"b1"})
    bookies.on_registered(ALL, 6)

    bookies.on_registered(ALL - {"b1"}, 7)

    assert bookies.due(7) == {"b1"}


def test_one_that_nobody_knows_any_more_is_not_lost() -> None:
    """Its cookie was deleted: it is decommissioned."""
    bookies = LostBookies()
    bookies.on_known(ALL)
    bookies.on_registered(ALL - {"b1"}, 1)
    assert bookies.lost == {"b1"}

    bookies.on_known(ALL - {"b1"})
    bookies.on_registered(ALL - {"b1"}, 2)

    assert bookies.lost == NONE
    assert bookies.due(1e9) == NONE


def test_before_the_registrations_are_known_nobody_is_lost() -> None:
    bookies = LostBookies()
    bookies.on_known(ALL)

    assert bookies.lost == NONE


def test_an_audit_that_did_not_get_through_is_made_again_and_no_sooner_whoever_comes_and_goes() -> (
    None
):
    """Each change of the registrations had all ledgers walked through once more."""
    bookies = following(0)
    bookies.on_registered(ALL - {"b1", "b2"}, 5)
    assert bookies.due(5) == {"b1", "b2"}

    bookies.on_passed_over({"b1", "b2"}, 60, 5)
    for now_s, there in enumerate((ALL - {"b1", "b2"}, ALL - {"b1"}, ALL - {"b1", "b2"}), 6):
        bookies.on_registered(there, now_s)
        assert bookies.due(now_s) == NONE
    assert bookies.left_s(9, 100) == 56
    assert bookies.due(65) == {"b1", "b2"}
    bookies.on_registered(ALL - {"b1", "b2"}, 65)
    assert bookies.due(65) == {"b1", "b2"}


def test_who_is_lost_besides_is_not_waited_for_and_an_operator_is_not_either() -> None:
    bookies = following(0)
    bookies.on_registered(ALL - {"b1"}, 5)
    bookies.on_passed_over({"b1"}, 60, 5)
    bookies.on_registered(ALL - {"b1", "b2"}, 6)
    assert bookies.due(6) == {"b1", "b2"}

    bookies.on_passed_over({"b1", "b2"}, 60, 6)
    bookies.on_delay(0, 7)
    bookies.on_registered(ALL - {"b1", "b2"}, 7)
    assert bookies.due(7) == {"b1", "b2"}
