"""Who takes over a share, and when the metadata may not say so any more."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bookie_server.core.shares import Share, shares_of
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Stop
from spark_bookkeeper.replication.rules import choose_target, open_fragment, with_members

OPEN = LedgerMetadata(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    fragments=(Fragment(0, ("a", "b", "c")), Fragment(5, ("a", "b", "d"))),
)
CLOSED = OPEN.in_recovery().closed(9, 100)


def share_of(metadata: LedgerMetadata, first_entry: int, bookie_id: str) -> Share:
    (found,) = [
        each
        for each in shares_of(metadata)
        if (each.fragment.first_entry, each.bookie_id) == (first_entry, bookie_id)
    ]
    return found


@pytest.mark.parametrize("metadata", [OPEN, CLOSED], ids=["open", "closed"])
def test_another_takes_one_place_in_one_fragment(metadata: LedgerMetadata) -> None:
    changed = with_members(metadata, [(share_of(metadata, 0, "b"), "e")])

    assert changed == replace(
        metadata, fragments=(Fragment(0, ("a", "e", "c")), metadata.fragments[1])
    )


def test_the_last_fragment_of_a_closed_ledger_is_like_any_other() -> None:
    changed = with_members(CLOSED, [(share_of(CLOSED, 5, "d"), "c")])

    assert isinstance(changed, LedgerMetadata)
    assert [each.ensemble for each in changed.fragments] == [("a", "b", "c"), ("a", "b", "c")]


@pytest.mark.parametrize(
    ("now", "target", "reason"),
    [
        (
            replace(OPEN, fragments=(Fragment(0, ("a", "f", "c")), OPEN.fragments[1])),
            "e",
            "its place is f's",
        ),
        (
            # It is a member still, but of other entries.
            replace(OPEN, fragments=(Fragment(0, ("b", "f", "c")), OPEN.fragments[1])),
            "e",
            "its place is f's",
        ),
        (OPEN, "c", "c is a member"),
        (
            replace(OPEN, fragments=(OPEN.fragments[0], Fragment(7, ("a", "b", "d")))),
            "e",
            "another end",
        ),
        (replace(OPEN, fragments=OPEN.fragments[:1]), "e", "another end"),
    ],
    ids=["replaced", "moved", "member", "longer", "last"],
)
def test_what_was_copied_for_another_state_is_not_named(
    now: LedgerMetadata, target: str, reason: str
) -> None:
    stopped = with_members(now, [(share_of(OPEN, 0, "b"), target)])

    assert isinstance(stopped, Stop)
    assert reason in str(stopped.reason)


def test_a_fragment_that_is_gone_has_no_place_to_take() -> None:
    now = replace(CLOSED, fragments=(CLOSED.fragments[0], Fragment(6, ("a", "b", "d"))))

    stopped = with_members(now, [(share_of(CLOSED, 5, "d"), "e")])

    assert isinstance(stopped, Stop)
    assert "fragment is gone" in str(stopped.reason)


def test_a_ledger_that_was_closed_elsewhere_meanwhile_is_another() -> None:
    shorter = OPEN.in_recovery().closed(8, 90)

    stopped = with_members(shorter, [(share_of(CLOSED, 5, "d"), "e")])

    assert isinstance(stopped, Stop)


def test_only_the_last_fragment_is_open_and_only_until_the_ledger_is_closed() -> None:
    assert open_fragment(OPEN) == OPEN.fragments[1]
    assert open_fragment(OPEN.in_recovery()) == OPEN.fragments[1]
    assert open_fragment(CLOSED) is None


def test_the_own_bookie_is_taken_first_and_no_member_ever() -> None:
    fragment, random = OPEN.fragments[0], Random(1)

    assert choose_target(fragment, {"e", "f", "a"}, random, own="f") == "f"
    assert choose_target(fragment, {"e", "a", "b"}, random, own="a") == "e"
    assert choose_target(fragment, {"e", "f"}, random, own="f", refused={"f"}) == "e"
    assert choose_target(fragment, {"a", "b", "c"}, random) is None
    taken = {choose_target(fragment, {"e", "f", "g"}, random) for _ in range(50)}
    assert taken == {"e", "f", "g"}, "not all to one"
