"""Which copies a ledger may lack, from its metadata: members away now, and places held at its creation."""

from __future__ import annotations

from dataclasses import replace

from bookkeeper_metadata.model import Fragment, LedgerMetadata, LedgerState
from spark_bookkeeper.ledger.protocol.replication import (
    HELD_MARK,
    away_members,
    held_members,
    with_held_mark,
)

A, B, C, D = "a:1", "b:1", "c:1", "d:1"
OPEN = LedgerMetadata(
    ensemble_size=3, write_quorum=3, ack_quorum=2, fragments=(Fragment(0, (A, B, C)),)
)


def closed(metadata: LedgerMetadata, last_entry: int) -> LedgerMetadata:
    return replace(metadata, state=LedgerState.CLOSED, last_entry=last_entry)


def away(metadata: LedgerMetadata, *registered: str) -> list[tuple[str, ...]]:
    """Of each fragment."""
    return [away_members(metadata, each, registered) for each in metadata.fragments]


def test_members_that_are_not_registered_are_away() -> None:
    assert away(OPEN, A, B, C, D) == [()]
    assert away(OPEN, D, B) == [(A, C)]


def test_a_fragment_without_entries_misses_none() -> None:
    changed = OPEN.with_ensemble(5, (A, B, D))

    assert away(changed, A, B) == [(C,), (D,)]
    assert away(closed(changed, 4), A, B) == [(C,), ()]
    assert away(closed(OPEN, -1)) == [()]


def test_of_a_striped_ledger_only_members_that_should_hold_an_entry_count() -> None:
    striped = replace(OPEN, write_quorum=1, ack_quorum=1)

    assert away(closed(striped, 0)) == [(A,)]
    assert away(closed(striped, 1)) == [(A, B)]
    assert away(closed(striped, 900)) == [(A, B, C)]
    # Entry 4 is the second member's; the fragment before it had all three.
    assert away(closed(striped.with_ensemble(4, (A, B, D)), 4)) == [(A, B, C), (B,)]


def test_a_held_place_is_told_as_long_as_it_is_its_bookies() -> None:
    marked = replace(OPEN, custom_metadata=with_held_mark({"log": b"orders"}, {C, B}))

    assert marked.custom_metadata == {"log": b"orders", HELD_MARK: b"b:1,c:1"}
    assert held_members(marked) == (B, C)
    assert held_members(marked.with_ensemble(0, (A, B, D))) == (B,)
    assert held_members(marked.with_ensemble(1, (A, B, D))) == (B, C)
    assert held_members(closed(marked, -1)) == ()


def test_without_held_places_nothing_is_marked() -> None:
    assert with_held_mark({"log": b"orders"}, ()) == {"log": b"orders"}
    assert held_members(OPEN) == ()
    # Not ours: a user may name anything so.
    assert held_members(replace(OPEN, custom_metadata={HELD_MARK: b"\xff,x"})) == ()
