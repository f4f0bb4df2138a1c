"""With whom a writer goes on: of each failure others are told once, and with what it says of the bookie."""

from __future__ import annotations

from collections.abc import Collection

from bookie_server.wire.messages import Status
from spark_bookkeeper.ledger.protocol.membership import Membership
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig


def membership(held: Collection[str] = ()) -> Membership:
    return Membership(QuorumConfig(4, 4, 2), ("b0", "b1", "b2", "b3"), held)


def test_a_failure_makes_a_suspect_of_its_bookie_once() -> None:
    """Said again with each change it would keep the bookie in quarantine for good."""
    members = membership()
    members.fail(0, Status.UNREACHABLE)
    members.fail(1, Status.READ_ONLY)
    members.fail(2, Status.LIMBO)

    first, again = members.change(5), members.change(5)

    assert (first.suspects, first.full) == (("b0",), ("b1",))
    assert (again.suspects, again.full) == ((), ())
    assert again.failed == first.failed == {0: "b0", 1: "b1", 2: "b2"}
    assert again.is_needed


def test_a_held_member_has_failed_and_is_no_suspect() -> None:
    """It was known to be away, and may come back at any moment."""
    members = membership(held={"b1"})

    change = members.change(0)

    assert (change.failed, change.suspects, change.full) == ({1: "b1"}, (), ())
    assert members.usable_bookies == ("b0", "b2", "b3")
    assert not change.is_needed
