"""What a bookie should hold, held against what it lists: by arithmetic, as by looking at each entry."""

from __future__ import annotations

from random import Random

from bookie_server.core.shares import Share, not_held, shares_of
from bookie_server.wire.messages import IdRange, Status
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.model import Fragment, LedgerMetadata


def ranges_of(ids: set[int]) -> list[IdRange]:
    found: list[IdRange] = []
    for each in sorted(ids):
        if found and found[-1].last_entry == each - 1:
            found[-1] = IdRange(found[-1].first_entry, each, Status.OK)
        else:
            found.append(IdRange(each, each, Status.OK))
    return found


def test_lacking_and_not_held_agree_with_a_look_at_each_entry() -> None:
    random = Random(1)
    for _ in range(3_000):
        size = random.randint(1, 6)
        stripe = Stripe(size, random.randint(1, size), random.randrange(size))
        first = random.randrange(20)
        last = first + random.randrange(-1, 25)
        share = Share(Fragment(first, tuple("abcdef"[:size])), last, stripe)
        wanted = [each for each in range(first, last + 1) if stripe.wants(each)]
        assert list(share.entry_ids(0, 1_000)) == wanted
        assert share.is_empty == (not wanted)
        assert share.ends == tuple(dict.fromkeys((*wanted[:1], *wanted[-1:])))
        held = {each for each in range(60) if random.random() < 0.8} | (
            set(wanted) if random.random() < 0.3 else set()
        )
        missing = [each for each in wanted if each not in held]
        assert share.lacks(ranges_of(held)) == bool(missing)
        assert list(not_held(wanted, ranges_of(held), 5)) == missing[:5]
        assert all(share.wants(each) == (each in wanted) for each in range(60))


def test_a_billion_entries_take_no_time() -> None:
    share = Share(Fragment(0, ("a", "b", "c")), 10**9, Stripe(3, 2, 1))
    whole = [IdRange(0, 10**9, Status.OK)]

    assert not share.lacks(whole)
    assert share.lacks([IdRange(0, 10**9 - 1, Status.OK)]) == share.wants(10**9)
    assert share.lacks([IdRange(0, 7, Status.OK), IdRange(12, 10**9, Status.OK)])


def test_the_last_fragment_is_nobodys_share_before_the_ledger_is_closed() -> None:
    metadata = LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=1,
        fragments=(Fragment(0, ("a", "b")), Fragment(5, ("a", "c"))),
    )

    assert [(each.bookie_id, each.last_entry) for each in shares_of(metadata)] == [
        ("a", 4),
        ("b", 4),
    ]
    closed = shares_of(metadata.closed(7, 0))
    assert [(each.bookie_id, each.last_entry) for each in closed[2:]] == [("a", 7), ("c", 7)]
