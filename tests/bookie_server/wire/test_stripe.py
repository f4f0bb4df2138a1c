"""Stripes: by arithmetic, however wide an ensemble a peer names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookie_server.wire.stripe import Stripe

STRIPES = st.integers(1, 9).flatmap(
    lambda size: st.builds(Stripe, st.just(size), st.integers(1, size), st.integers(0, size - 1))
)


@given(STRIPES, st.integers(0, 40))
def test_rank_and_next_agree_with_what_is_wanted(stripe: Stripe, entry_id: int) -> None:
    wanted = [each for each in range(60) if stripe.wants(each)]

    assert stripe.rank(entry_id) == sum(each <= entry_id for each in wanted)
    assert stripe.next(entry_id) == next(each for each in wanted if each >= entry_id)


def test_a_stripe_of_an_enormous_ensemble_costs_no_more() -> None:
    """One request with this width kept a bookie's event loop busy for an hour."""
    stripe = Stripe(2**32 - 1, 1, 0)

    assert stripe.next(1) == 2**32 - 1
    assert stripe.rank(2**62) == 2**62 // (2**32 - 1) + 1
