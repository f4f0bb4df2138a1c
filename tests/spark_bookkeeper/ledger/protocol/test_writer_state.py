"""The writer's state machine: order, quorums, failures, and every byte given back once."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_server.wire.codec import parse_frame
from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.messages import Status
from bookie_server.wire.record import parse_header, run_verifies, split_records
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from spark_bookkeeper.ledger.errors import (
    LedgerFencedError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from spark_bookkeeper.ledger.protocol.events import (
    Acknowledge,
    ChangeEnsemble,
    Effect,
    FailPending,
    Release,
    SendSection,
)
from spark_bookkeeper.ledger.protocol.runs import RunLimits
from spark_bookkeeper.ledger.protocol.writer_state import WriterState


def writer(e: int = 3, w: int = 3, a: int = 2, **limits: int) -> WriterState:
    metadata = LedgerMetadata(
        ensemble_size=e,
        write_quorum=w,
        ack_quorum=a,
        fragments=(Fragment(0, tuple(f"b{i}" for i in range(e))),),
    )
    return WriterState(7, metadata, Crc32cDigest(), b"k" * 20, RunLimits(**limits))


def sends(effects: list[Effect]) -> list[SendSection]:
    return [effect for effect in effects if isinstance(effect, SendSection)]


def answer(state: WriterState, position: int, first_entry: int, status: Status) -> list[Effect]:
    """What the bookie that stands there now answers."""
    number = state._ensemble_number
    return state.on_section_answer(position, number, first_entry, status)


def changes(effects: list[Effect]) -> list[ChangeEnsemble]:
    return [effect for effect in effects if isinstance(effect, ChangeEnsemble)]


def acked(effects: list[Effect]) -> list[int]:
    return [effect.last_entry for effect in effects if isinstance(effect, Acknowledge)]


def test_every_bookie_of_the_write_set_gets_the_same_bytes() -> None:
    sections = sends(writer().append([b"a", b"bb"]))

    assert [send.position for send in sections] == [0, 1, 2]
    assert len({id(send.section.data) for send in sections}) == 1
    (section,) = parse_frame(sections[0].section.data)
    assert [payload for _, _, payload in split_records(section.run, 4)] == [b"a", b"bb"]
    assert run_verifies(section.run, Crc32cDigest())


def test_an_entry_is_acknowledged_at_the_ack_quorum_not_before() -> None:
    state = writer()
    state.append([b"a"])

    assert acked(answer(state, 0, 0, Status.OK)) == []
    assert acked(answer(state, 2, 0, Status.OK)) == [0]
    assert answer(state, 1, 0, Status.OK) == [Release(1)]
    assert state.last_add_confirmed == 0
    assert state.length == 1


def test_duplicate_answers_count_once() -> None:
    state = writer()
    state.append([b"a"])

    answer(state, 0, 0, Status.OK)

    assert answer(state, 0, 0, Status.OK) == []
    assert state.last_add_confirmed == -1


@pytest.mark.conformance("ClientReceivesAddConfirmedResponse")
def test_runs_are_acknowledged_in_entry_order_whatever_order_answers_come_in() -> None:
    state = writer(size_bytes_target=1)
    state.append([b"a"])
    state.append([b"b"])

    for position in range(3):
        assert acked(answer(state, position, 1, Status.OK)) == []
    answer(state, 0, 0, Status.OK)

    assert acked(answer(state, 1, 0, Status.OK)) == [1]


@pytest.mark.conformance("ClientSendsAddEntryRequests")
def test_adds_wait_for_company_while_a_run_is_out_and_carry_the_lac_of_their_cut() -> None:
    state = writer()
    state.append([b"a"])

    assert state.append([b"b"]) == []
    assert state.append([b"c"]) == []
    answer(state, 0, 0, Status.OK)
    sections = sends(answer(state, 1, 0, Status.OK))

    (section,) = parse_frame(sections[0].section.data)
    assert list(section.run.entry_ids) == [1, 2]
    header = parse_header(section.run.data, section.run.offsets[1])
    assert (header.last_add_confirmed, header.length) == (0, 3)


def test_large_adds_keep_a_few_runs_in_flight_and_no_more() -> None:
    state = writer(size_bytes_target=4, size_bytes_max=4, runs_in_flight_max=3)

    first = sends(state.append([b"xxxx"] * 5))

    assert {send.run_first_entry for send in first} == {0, 1, 2}
    answer(state, 0, 0, Status.OK)
    more = sends(answer(state, 1, 0, Status.OK))
    assert {send.run_first_entry for send in more} == {3}


def test_a_bookie_nobody_can_replace_is_left_out_while_an_ack_quorum_is_left() -> None:
    state = writer()
    state.append([b"a"])
    answer(state, 0, 0, Status.OK)
    answer(state, 2, 0, Status.OK)
    (change,) = changes(answer(state, 1, 0, Status.UNREACHABLE))
    assert not change.is_needed

    assert state.on_ensemble_changed(change.ensemble, ()) == []

    assert [send.position for send in sends(state.append([b"b"]))] == [0, 2]


def test_beyond_that_the_writer_ends_and_says_which_bookies_failed() -> None:
    state = writer()
    state.append([b"a", b"b"])
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
    """W1."""
    state = writer(size_bytes_target=1)
    state.append([b"a"])
    state.append([b"b"])
    state.append([b"c"])

    asked = [changes(answer(state, 1, entry, Status.UNREACHABLE)) for entry in range(3)]

    assert [len(each) for each in asked] == [1, 0, 0]


@pytest.mark.conformance("W9")
def test_nothing_is_acknowledged_while_a_change_is_undecided() -> None:
    """W9, I17; Apache #1591: whoever acknowledges before the metadata loses the entry."""
    state = writer()
    state.append([b"a"])
    answer(state, 2, 0, Status.UNREACHABLE)

    assert acked(answer(state, 0, 0, Status.OK)) == []
    assert acked(answer(state, 1, 0, Status.OK)) == []

    assert acked(state.on_ensemble_changed(("b0", "b1", "b9"), (2,))) == [0]


def test_a_change_begins_behind_the_last_acknowledged_entry() -> None:
    """W3, W4: entry 0 if nothing was acknowledged, else LAC + 1."""
    state = writer()
    state.append([b"a"])
    (first,) = changes(answer(state, 0, 0, Status.UNREACHABLE))
    assert (first.first_entry, first.failed) == (0, {0: "b0"})
    state.on_ensemble_changed(("b9", "b1", "b2"), (0,))
    answer(state, 1, 0, Status.OK)
    answer(state, 2, 0, Status.OK)

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
        answer(state, 0, entry, Status.OK)
        answer(state, 1, entry, Status.OK)
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
    state = writer()
    state.append([b"a"])
    answer(state, 2, 0, Status.UNREACHABLE)
    state.on_ensemble_changed(("b0", "b1", "b9"), (2,))
    answer(state, 2, 0, Status.UNREACHABLE)

    effects = state.on_ensemble_changed(("b0", "b1", "b2"), (2,))

    assert [send.bookie_id for send in sends(effects)] == ["b2"]
    answer(state, 0, 0, Status.OK)
    assert acked(answer(state, 2, 0, Status.OK)) == [0]


def test_late_answers_of_a_replaced_bookie_change_nothing() -> None:
    state = writer()
    state.append([b"a"])
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
    answer(state, 0, 0, Status.OK)
    answer(state, 1, 0, Status.OK)
    state.append([b"b"])
    (first,) = changes(answer(state, 2, 1, Status.UNREACHABLE))
    answer(state, 3, 1, Status.UNREACHABLE)
    answer(state, 0, 1, Status.OK)
    answer(state, 1, 1, Status.OK)

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
    """W10."""
    state = writer(3, 2, 2)
    state.append([b"a"])  # on 0 and 1
    answer(state, 0, 0, Status.OK)
    answer(state, 1, 0, Status.OK)
    state.append([b"b"])  # on 1 and 2
    answer(state, 2, 1, Status.UNREACHABLE)
    answer(state, 1, 1, Status.OK)

    effects = state.on_ensemble_changed(("b0", "b1", "b9"), (2,))

    assert [send.run_first_entry for send in sends(effects)] == [1]
    assert acked(answer(state, 2, 1, Status.OK)) == [1]


@pytest.mark.conformance("W15")
def test_a_failure_after_the_last_acknowledgement_changes_the_ensemble_for_what_follows() -> None:
    """W15: nothing is resent, for acknowledged entries stay in the fragment they are in."""
    state = writer()
    state.append([b"a"])
    answer(state, 0, 0, Status.OK)
    answer(state, 1, 0, Status.OK)

    (change,) = changes(answer(state, 2, 0, Status.UNREACHABLE))
    assert change.first_entry == 1
    assert state.on_ensemble_changed(("b0", "b1", "b9"), (2,)) == []

    assert [send.bookie_id for send in sends(state.append([b"b"]))] == ["b0", "b1", "b9"]


def test_a_sealed_and_settled_writer_changes_nothing_any_more() -> None:
    """W6: the close decides, and nobody is waiting for an entry."""
    state = writer()
    state.append([b"a"])
    answer(state, 0, 0, Status.OK)
    answer(state, 1, 0, Status.OK)
    state.seal()

    assert changes(answer(state, 2, 0, Status.UNREACHABLE)) == []


def test_an_end_during_a_change_is_final() -> None:
    """W7."""
    state = writer()
    state.append([b"a"])
    answer(state, 2, 0, Status.UNREACHABLE)
    answer(state, 0, 0, Status.OK)
    answer(state, 1, 0, Status.FENCED)

    assert state.on_ensemble_changed(("b0", "b1", "b9"), (2,)) == []
    assert isinstance(state.error, LedgerFencedError)
    assert state.last_add_confirmed == -1


@pytest.mark.conformance("ClientReceivesAddFencedResponse")
def test_a_fenced_writer_never_acknowledges_again() -> None:
    """F1, I20: one FENCED answer ends the writer, whatever the others say later."""
    state = writer()
    state.append([b"a"])
    answer(state, 0, 0, Status.OK)

    effects = answer(state, 1, 0, Status.FENCED)

    assert isinstance(effects[0], FailPending)
    assert isinstance(effects[0].error, LedgerFencedError)
    assert acked(answer(state, 2, 0, Status.OK)) == []
    assert state.last_add_confirmed == -1


def test_a_late_fenced_answer_ends_the_writer_too() -> None:
    state = writer()
    state.append([b"a"])
    answer(state, 0, 0, Status.OK)
    answer(state, 1, 0, Status.OK)

    answer(state, 2, 0, Status.FENCED)

    assert isinstance(state.error, LedgerFencedError)
    assert state.last_add_confirmed == 0


def test_a_wrong_key_ends_the_writer() -> None:
    state = writer()
    state.append([b"a"])

    answer(state, 0, 0, Status.UNAUTHORIZED)

    assert isinstance(state.error, UnauthorizedError)


def test_a_striped_ledger_gives_each_bookie_its_stripe() -> None:
    state = writer(5, 3, 2)
    payloads = [bytes([i]) for i in range(7)]

    by_position = {send.position: send for send in sends(state.append(payloads))}

    for position, send in by_position.items():
        (section,) = parse_frame(send.section.data)
        expected = [e for e in range(7) if position in state.quorum.write_set(e)]
        assert list(section.run.entry_ids) == expected
        ends = section.run.first_entry, section.run.last_entry
        assert (send.section.first_entry, send.section.last_entry) == ends
        assert send.run_first_entry == 0


def test_a_striped_run_waits_until_each_of_its_entries_has_a_quorum() -> None:
    state = writer(3, 2, 2)
    state.append([b"a", b"b"])  # entry 0 on 0,1; entry 1 on 1,2

    assert acked(answer(state, 0, 0, Status.OK)) == []
    assert acked(answer(state, 1, 0, Status.OK)) == []
    assert acked(answer(state, 2, 0, Status.OK)) == [1]


class World:
    """Bookies that store or fail, metadata that replaces them, and what must hold throughout."""

    def __init__(self, state: WriterState, random: Random) -> None:
        self.state = state
        self.random = random
        self.out: list[SendSection] = []
        self.change: ChangeEnsemble | None = None
        self.stored: dict[str, set[int]] = {}
        self.fragments = [(0, state.ensemble)]
        self.spares = [f"s{i}" for i in range(6)]
        self.on_released = 0
        self.confirmed = -1

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendSection():
                    self.out.append(effect)
                case ChangeEnsemble():
                    assert self.change is None
                    assert effect.first_entry == self.confirmed + 1
                    self.change = effect
                case Acknowledge(last_entry):
                    assert self.change is None, "I17"
                    assert last_entry > self.confirmed
                    for entry_id in range(self.confirmed + 1, last_entry + 1):
                        self.check_quorum(entry_id)
                    self.confirmed = last_entry
                case Release(size_bytes):
                    self.on_released += size_bytes
                case FailPending():
                    assert self.state.error is effect.error

    def check_quorum(self, entry_id: int) -> None:
        """I3 over the fragments as committed."""
        ensemble = next(e for first, e in reversed(self.fragments) if first <= entry_id)
        quorum = self.state.quorum
        holders = [p for p in quorum.write_set(entry_id) if entry_id in self.held(ensemble[p])]
        assert len(holders) >= quorum.ack_quorum

    def held(self, bookie_id: str) -> set[int]:
        return self.stored.setdefault(bookie_id, set())

    def answer(self) -> None:
        send = self.out.pop(self.random.randrange(len(self.out)))
        status = self.random.choice(ANSWERS)
        (section,) = parse_frame(send.section.data)
        if status is Status.OK:
            self.held(send.bookie_id).update(section.run.entry_ids)
        self.run(
            self.state.on_section_answer(
                send.position, send.ensemble_number, send.run_first_entry, status
            )
        )

    def decide(self) -> None:
        change, self.change = self.change, None
        assert change is not None
        members, replaced = list(change.ensemble), []
        for position in change.failed:
            if self.spares:
                # A bookie that failed elsewhere may come back: its late answers must not count.
                self.spares.append(members[position])
                members[position] = self.spares.pop(0)
                replaced.append(position)
        if replaced:
            if self.fragments[-1][0] == change.first_entry:
                self.fragments.pop()
            self.fragments.append((change.first_entry, tuple(members)))
        self.run(self.state.on_ensemble_changed(tuple(members), replaced))


ANSWERS = [Status.OK] * 24 + [Status.UNREACHABLE, Status.UNKNOWN] * 3 + [Status.FENCED]


@given(
    st.sampled_from([(1, 1, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2), (4, 2, 1)]),
    st.lists(st.binary(min_size=0, max_size=6), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_whatever_happens_order_quorum_and_accounting_hold(quorum, payloads, random) -> None:  # type: ignore[no-untyped-def]
    """I6, I3 and I17, and every byte is released exactly once."""
    state = writer(*quorum, size_bytes_target=3, size_bytes_max=8)
    world = World(state, random)
    todo = list(payloads)
    appended = 0
    while state.error is None and (todo or world.out or world.change):
        options = ["append"] * bool(todo) + ["answer"] * bool(world.out)
        choice = random.choice(options + ["decide"] * bool(world.change))
        if choice == "append":
            count = random.randint(1, 3)
            batch, todo = todo[:count], todo[count:]
            appended += sum(map(len, batch))
            world.run(state.append(batch))
        elif choice == "answer":
            world.answer()
        else:
            world.decide()
    assert world.confirmed == state.last_add_confirmed
    assert world.on_released == appended
    if state.error is None:
        assert world.confirmed == len(payloads) - 1
