"""Who may close a ledger where, and what a writer learns that finds it closed: every case there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookkeeper_metadata.errors import MetadataConflictError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Stop
from spark_bookkeeper.ledger.errors import (
    LedgerFencedError,
    NotEnoughBookiesError,
)
from spark_bookkeeper.ledger.protocol.transitions import (
    closed_by_recovery,
    closed_by_writer,
    marked_in_recovery,
    put_in_force,
)

FIRST, SECOND, THIRD = ("b0", "b1", "b2"), ("b0", "b1", "b3"), ("b0", "b4", "b3")
OPEN = LedgerMetadata(
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    fragments=(Fragment(0, FIRST), Fragment(4, SECOND)),
)
UNCHANGED = replace(OPEN, fragments=OPEN.fragments[:1])
ENDS = range(-1, 8)
"""Last entries others may have closed the ledger at."""
OWN = 5
WHY_IT_ENDED = [None, LedgerFencedError(7), NotEnoughBookiesError(3, ())]


def reason_of(outcome: LedgerMetadata | Stop[BookKeeperError]) -> BookKeeperError:
    assert isinstance(outcome, Stop)
    return outcome.reason


@pytest.mark.conformance("W19")
@pytest.mark.parametrize("ended", WHY_IT_ENDED, ids=repr)
def test_a_writer_closes_what_is_open_and_leaves_a_recovery_alone(
    ended: BookKeeperError | None,
) -> None:
    closed = closed_by_writer(7, OPEN, OWN, 60, ended)
    assert closed == OPEN.closed(OWN, 60)

    in_recovery = closed_by_writer(7, OPEN.in_recovery(), OWN, 60, ended)
    assert isinstance(reason_of(in_recovery), LedgerFencedError)


@pytest.mark.parametrize("ended", WHY_IT_ENDED, ids=repr)
@pytest.mark.parametrize("end", ENDS)
def test_a_writer_takes_no_other_end_for_its_own(end: int, ended: BookKeeperError | None) -> None:
    """A longer one neither: a recovery keeps entries that no append was told of."""
    found = UNCHANGED.closed(end, 10 * (end + 1))

    outcome = closed_by_writer(7, found, OWN, 60, ended)

    if end == OWN:
        assert outcome is found
    elif isinstance(ended, LedgerFencedError):
        assert reason_of(outcome) is ended
    else:
        assert isinstance(reason_of(outcome), MetadataConflictError)


@pytest.mark.parametrize("end", ENDS)
def test_a_ledger_that_is_closed_stays_as_it_is(end: int) -> None:
    closed = UNCHANGED.closed(end, 10 * (end + 1))

    assert marked_in_recovery(closed) is closed
    assert closed_by_recovery(closed, OPEN.last_fragment, (Fragment(4, THIRD),), OWN, 60) is closed
    assert isinstance(reason_of(put_in_force(7, closed, 6, THIRD)), LedgerFencedError)


def test_a_recovery_is_joined_and_stops_every_change_of_the_writers() -> None:
    in_recovery = marked_in_recovery(OPEN)

    assert in_recovery == OPEN.in_recovery()
    assert marked_in_recovery(in_recovery) == in_recovery
    assert isinstance(reason_of(put_in_force(7, in_recovery, 6, THIRD)), LedgerFencedError)
    assert put_in_force(7, OPEN, 6, THIRD) == OPEN.with_ensemble(6, THIRD)


def test_a_recovery_closes_only_what_it_has_read() -> None:
    """Fragments before the last are taken as they are now: re-replication may have moved them."""
    read_from, written_to = OPEN.last_fragment, (Fragment(4, THIRD),)
    in_recovery = OPEN.in_recovery()
    moved = replace(in_recovery, fragments=(Fragment(0, THIRD), read_from))
    changed = replace(in_recovery, fragments=(*in_recovery.fragments, Fragment(6, THIRD)))

    closed = closed_by_recovery(moved, read_from, written_to, OWN, 60)
    stopped = closed_by_recovery(changed, read_from, written_to, OWN, 60)

    assert isinstance(closed, LedgerMetadata)
    assert closed.fragments == (Fragment(0, THIRD), Fragment(4, THIRD))
    assert (closed.last_entry, closed.length, closed.is_closed) == (OWN, 60, True)
    assert stopped == Stop(Fragment(6, THIRD))
