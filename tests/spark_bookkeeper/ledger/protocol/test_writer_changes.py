"""The writer's state machine while bookies fail and are replaced."""

from __future__ import annotations

import pytest

from bookie_server.wire.messages import Status
from spark_bookkeeper.ledger.errors import LedgerFencedError, NotEnoughBookiesError
from spark_bookkeeper.ledger.protocol.events import FailPending, Release
from tests.spark_bookkeeper.ledger.protocol.writers import (
    acked,
    answer,
    changes,
    sends,
    store,
    writer,
    writer_of,
)


def test_a_bookie_nobody_can_replace_is_left_out_while_an_ack_quorum_is_left() -> None:
    state = writer_of(b"a")
    store(state, 0, on=(0, 2))
    (change,) = changes(answer(state, 1, 0, Status.UNREACHABLE))
    assert not change.is_needed

    assert state.on_ensemble_changed(change.ensemble, ()) == []

    assert [send.position for send in sends(state.append([b"b"]))] == [0, 2]


def test_beyond_that_the_writer_ends_and_says_which_bookies_failed() -> None:
    state = writer_of(b"a", b"b")
    (change,) = changes(answer(state, 1, 0, Status.UNREACHABLE))
    assert answer(state, 2, 0, Status.READ_ONLY) == []
    (again,) = changes(state.on_ensemble_changed(change.ensemble, ()))
    assert again.is_needed

    effects = state.on_ensemble_changed(again.ensemble, ())

    (failed,) = [effect for effect in effects if isinstance(effect, FailPending)]
    assert isinstance(failed.error, NotEnoughBookiesError)
    assert "b1:UNREACHABLE,b2:READ_ONLY" in str(failed.error)
    assert Release(2) in effects
    assert answer(state, 0, 0, Status.OK) == []
    assert state.last_add_confirmed == -1


@pytest.mark.conformance("W1")
def test_many_adds_failing_on_one_bookie_ask_for_one_change() -> None:
    state = writer(size_bytes_target=1)
    state.append([b"a"])
    state.append([b"b"])
    state.append([b"c"])

    asked = [changes(answer(state, 1, entry, Status.UNREACHABLE)) for entry in range(3)]

    assert [len(each) for each in asked] == [1, 0, 0]


@pytest.mark.conformance("W9")
def test_nothing_is_acknowledged_while_a_change_is_undecided() -> None:
    """W9, I17; Apache #1591: whoever acknowledges before the metadata loses the entry."""
    state = writer_of(b"a")
    answer(state, 2, 0, Status.UNREACHABLE)

    assert acked(answer(state, 0, 0, Status.OK)) == []
    assert acked(answer(state, 1, 0, Status.OK)) == []

    assert acked(state.on_ensemble_changed(("b0", "b1", "b9"), (2,))) == [0]


def test_a_change_begins_behind_the_last_acknowledged_entry() -> None:
    """W3, W4: entry 0 if nothing was acknowledged, else LAC + 1."""
    state = writer_of(b"a")
    (first,) = changes(answer(state, 0, 0, Status.UNREACHABLE))
    assert (first.first_entry, first.failed) == (0, {0: "b0"})
    state.on_ensemble_changed(("b9", "b1", "b2"), (0,))
    store(state, 0, on=(1, 2))

    (second,) = changes(answer(state, 0, 0, Status.UNREACHABLE))

    assert (second.first_entry, second.failed) == (1, {0: "b9"})


@pytest.mark.conformance("ClientResendsPendingAddOp")
def test_replaced_bookies_lose_their_acknowledgements_and_get_the_same_bytes() -> None:
    state = writer(size_bytes_target=1)
    before = {
        (send.position, send.run_first_entry): send.section
        for payload in (b"a", b"b", b"c")
        for send in sends(state.append([payload]))
    }
    for entry in (1, 2):  # stored by AQ, not acknowledged: entry 0 is first
        store(state, entry, on=(0, 1))
    answer(state, 0, 0, Status.OK)
    answer(state, 1, 0, Status.UNREACHABLE)

    effects = state.on_ensemble_changed(("b0", "b9", "b2"), (1,))

    again = sends(effects)
    assert [(send.bookie_id, send.run_first_entry) for send in again] == [
        ("b9", 0),
        ("b9", 1),
        ("b9", 2),
    ]
    assert all(send.section is before[1, send.run_first_entry] for send in again)
    assert acked(effects) == []
    assert acked(answer(state, 1, 1, Status.OK)) == []
    assert acked(answer(state, 1, 0, Status.OK)) == [1]  # entry 2 lost an acknowledgement


def test_all_acknowledgements_are_taken_back_before_anything_is_acknowledged() -> None:
    """Apache #3005, #3041: the pump inside the un-acknowledge loop lets later entries slip out."""
    state = writer(a=2, size_bytes_target=1)
    for payload in (b"a", b"b"):
        state.append([payload])
    for entry in (0, 1):
        answer(state, 0, entry, Status.OK)
    answer(state, 2, 0, Status.UNREACHABLE)
    for entry in (0, 1):
        answer(state, 1, entry, Status.OK)  # complete, held back by the change
    answer(state, 1, 0, Status.UNREACHABLE)

    # when the bookie that stored both is the one replaced
    effects = state.on_ensemble_changed(("b0", "b8", "b9"), (1, 2))

    assert acked(effects) == []
    assert len(sends(effects)) == 4


def test_two_changes_that_cancel_out_send_everything_again() -> None:
    """Apache #4459: the diff of the two is empty, and the writer hung."""
    state = writer_of(b"a")
    answer(state, 2, 0, Status.UNREACHABLE)
    state.on_ensemble_changed(("b0", "b1", "b9"), (2,))
    answer(state, 2, 0, Status.UNREACHABLE)

    effects = state.on_ensemble_changed(("b0", "b1", "b2"), (2,))

    assert [send.bookie_id for send in sends(effects)] == ["b2"]
    answer(state, 0, 0, Status.OK)
    assert acked(answer(state, 2, 0, Status.OK)) == [0]


def test_late_answers_of_a_replaced_bookie_change_nothing() -> None:
    state = writer_of(b"a")
    answer(state, 2, 0, Status.UNREACHABLE)
    state.on_ensemble_changed(("b0", "b1", "b9"), (2,))
    answer(state, 0, 0, Status.OK)

    for status in (Status.OK, Status.UNREACHABLE, Status.FENCED):
        assert state.on_section_answer(2, 0, 0, status) == []

    assert acked(answer(state, 2, 0, Status.OK)) == [0]


def test_a_failure_during_a_change_begins_another_before_anything_is_acknowledged() -> None:
    """W2."""
    state = writer(4, 4, 2)
    state.append([b"a"])
    store(state, 0, on=(0, 1))
    state.append([b"b"])
    (first,) = changes(answer(state, 2, 1, Status.UNREACHABLE))
    answer(state, 3, 1, Status.UNREACHABLE)
    store(state, 1, on=(0, 1))

    effects = state.on_ensemble_changed(("b0", "b1", "b8", "b3"), (2,))

    (second,) = changes(effects)
    assert (first.first_entry, second.first_entry) == (1, 1)
    assert second.failed == {3: "b3"}
    assert acked(effects) == []
    assert acked(state.on_ensemble_changed(("b0", "b1", "b8", "b9"), (3,))) == [1]


def test_a_partial_replacement_keeps_the_rest_in_mind() -> None:
    """Apache forgets the position it could not replace, and the add hangs."""
    state = writer(3, 3, 1)
    state.append([b"a"])
    answer(state, 1, 0, Status.UNREACHABLE)
    answer(state, 2, 0, Status.UNREACHABLE)
    state.on_ensemble_changed(("b0", "b9", "b2"), (1,))  # asks again, for 2 failed meanwhile

    effects = state.on_ensemble_changed(("b0", "b9", "b2"), ())

    assert state.error is None
    assert state.failed_bookies == {2: "b2"}
    assert changes(effects) == []
    (retried,) = changes(state.retry_change())
    assert retried.failed == {2: "b2"}


@pytest.mark.conformance("W10")
def test_a_failure_outside_the_write_set_still_releases_what_is_complete() -> None:
    state = writer(3, 2, 2)
    state.append([b"a"])  # on 0 and 1
    store(state, 0, on=(0, 1))
    state.append([b"b"])  # on 1 and 2
    answer(state, 2, 1, Status.UNREACHABLE)
    answer(state, 1, 1, Status.OK)

    effects = state.on_ensemble_changed(("b0", "b1", "b9"), (2,))

    assert [send.run_first_entry for send in sends(effects)] == [1]
    assert acked(answer(state, 2, 1, Status.OK)) == [1]


@pytest.mark.conformance("W15")
def test_a_failure_after_the_last_acknowledgement_changes_the_ensemble_for_what_follows() -> None:
    """W15: nothing is resent, for acknowledged entries stay in the fragment they are in."""
    state = writer_of(b"a")
    store(state, 0, on=(0, 1))

    (change,) = changes(answer(state, 2, 0, Status.UNREACHABLE))
    assert change.first_entry == 1
    assert state.on_ensemble_changed(("b0", "b1", "b9"), (2,)) == []

    assert [send.bookie_id for send in sends(state.append([b"b"]))] == ["b0", "b1", "b9"]


def test_a_sealed_and_settled_writer_changes_nothing_any_more() -> None:
    """W6: the close decides, and nobody is waiting for an entry."""
    state = writer_of(b"a")
    store(state, 0, on=(0, 1))
    state.seal()

    assert changes(answer(state, 2, 0, Status.UNREACHABLE)) == []


def test_a_bookie_in_limbo_is_lost_to_this_ledger_and_no_suspect_to_others() -> None:
    """Told FENCED, the writer would end although nobody has fenced it."""
    state = writer_of(b"a")
    answer(state, 0, 0, Status.OK)
    (change,) = changes(answer(state, 2, 0, Status.LIMBO))

    effects = state.on_ensemble_changed(("b0", "b1", "b2"), ())

    assert change.failed == {2: "b2"}
    assert (change.excluded, change.suspects) == (frozenset({"b2"}), ())
    assert effects == []
    assert acked(answer(state, 1, 0, Status.OK)) == [0]
    (retried,) = changes(state.retry_change())
    assert retried.excluded == {"b2"}


def test_a_bookie_that_is_full_is_replaced_at_once_and_no_suspect_to_others() -> None:
    state = writer_of(b"a")
    answer(state, 0, 0, Status.OK)

    (change,) = changes(answer(state, 2, 0, Status.READ_ONLY))

    assert change.failed == {2: "b2"}
    assert (change.suspects, change.full, change.excluded) == ((), ("b2",), frozenset())


def test_what_a_bookie_stored_before_it_lost_its_records_counts_no_more() -> None:
    """Acknowledged with it, an entry would be with one bookie where its quorum is two."""
    state = writer(size_bytes_target=1)
    state.append([b"a"])
    state.append([b"b"])
    answer(state, 0, 0, Status.OK)
    (change,) = changes(answer(state, 0, 1, Status.LIMBO))
    state.on_ensemble_changed(change.ensemble, ())

    assert acked(answer(state, 1, 0, Status.OK)) == []
    assert acked(answer(state, 2, 0, Status.OK)) == [0]


def test_a_bookie_that_failed_and_then_is_in_limbo_is_no_candidate_either() -> None:
    state = writer(size_bytes_target=1)
    state.append([b"a"])
    state.append([b"b"])
    (change,) = changes(answer(state, 0, 0, Status.UNREACHABLE))
    answer(state, 0, 1, Status.LIMBO)
    state.on_ensemble_changed(change.ensemble, ())

    (retried,) = changes(state.retry_change())
    assert retried.excluded == {"b0"}


def test_an_end_during_a_change_is_final() -> None:
    """W7."""
    state = writer_of(b"a")
    answer(state, 2, 0, Status.UNREACHABLE)
    answer(state, 0, 0, Status.OK)
    answer(state, 1, 0, Status.FENCED)

    assert state.on_ensemble_changed(("b0", "b1", "b9"), (2,)) == []
    assert isinstance(state.error, LedgerFencedError)
    assert state.last_add_confirmed == -1
