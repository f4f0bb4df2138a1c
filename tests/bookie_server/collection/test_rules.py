"""What is gone is what is held and not listed; a stretch of ids is covered only where all of it is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_server.collection.rules import (
    Comparison,
    Gone,
    ListingOutOfOrderError,
    confirmed,
    still_gone,
    tombstones,
)

IDS = st.sets(st.integers(0, 30))


def compare(held: set[int], listed: set[int]) -> list[Gone]:
    comparison = Comparison(sorted(held))
    for ledger_id in sorted(listed):
        comparison.see(ledger_id)
    return comparison.finish()


def covered(ranges: list[tuple[int, int]]) -> set[int]:
    return {ledger_id for first, last in ranges for ledger_id in range(first, last + 1)}


@given(IDS, IDS)
def test_gone_is_what_is_held_and_not_listed(held: set[int], listed: set[int]) -> None:
    gone = compare(held, listed)
    assert [each.ledger_id for each in gone] == sorted(held - listed)
    for before, each in pairwise(gone):
        between = set(range(before.ledger_id + 1, each.ledger_id))
        assert each.is_next == (not between & (held | listed))


@given(IDS, IDS, IDS, IDS, st.integers(0, 31))
def test_no_tombstone_covers_what_is_known_or_lies_beyond(
    held: set[int], listed: set[int], before: set[int], unsure: set[int], bound: int
) -> None:
    """Whatever the two collections found, whatever came in between, and whoever answered late."""
    gone = still_gone(compare(held, listed), compare(before, listed), bound)
    doomed = confirmed(gone, [each.ledger_id not in unsure for each in gone])
    arrived = unsure - held
    others = sorted((held | arrived) - {each.ledger_id for each in doomed})
    deleted = covered(tombstones(doomed, others))

    wanted = {each for each in (held & before) - listed - unsure if each < bound}
    assert deleted >= wanted
    assert not deleted & (listed | arrived | (held - wanted))
    assert all(each < bound for each in deleted)


def test_one_tombstone_covers_a_stretch_in_which_nothing_is_known() -> None:
    gone = compare({5, 100, 10**9, 10**9 + 5}, {10**9 + 2})
    doomed = still_gone(gone, gone, 10**10)
    assert tombstones(doomed, []) == [(5, 10**9), (10**9 + 5, 10**9 + 5)]


@given(IDS, IDS, st.tuples(st.integers(0, 30), st.integers(0, 30)), IDS)
def test_what_is_hidden_may_be_listed_and_no_tombstone_covers_it(
    held: set[int], listed: set[int], bounds: tuple[int, int], pending: set[int]
) -> None:
    first, last = sorted(bounds)
    hidden = set(range(first, last + 1))
    comparison = Comparison(sorted(held), sorted(pending))
    for ledger_id in sorted((listed - hidden) | {first}):
        if ledger_id == first:
            comparison.see_hidden(first, last)
        else:
            comparison.see(ledger_id)
    gone = comparison.finish()
    known = listed | hidden | pending
    assert [each.ledger_id for each in gone] == sorted(held - known)
    for before, each in pairwise(gone):
        between = set(range(before.ledger_id + 1, each.ledger_id))
        assert each.is_next == (not between & (held | known))
    assert not covered(tombstones(gone, [])) & known


def test_a_listing_that_does_not_ascend_is_no_listing() -> None:
    comparison = Comparison([4])
    comparison.see(5)
    for listed in (5, 4):
        with pytest.raises(ListingOutOfOrderError):
            comparison.see(listed)
