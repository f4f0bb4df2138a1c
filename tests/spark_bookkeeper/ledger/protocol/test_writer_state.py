"""The writer's state machine: order, quorums, failures, and every byte given back once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookie_server.wire.codec import parse_frame
from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.messages import Status
from bookie_server.wire.record import parse_header, run_verifies, split_records
from metadata.errors import LedgerFencedError, NotEnoughBookiesError, UnauthorizedError
from metadata.model import Fragment, LedgerMetadata
from spark_bookkeeper.ledger.protocol.events import (
    Acknowledge,
    Effect,
    FailPending,
    Release,
    SendSection,
)
from spark_bookkeeper.ledger.protocol.writer_state import RunLimits, WriterState


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

    assert acked(state.section_answered(0, 0, Status.OK)) == []
    assert acked(state.section_answered(2, 0, Status.OK)) == [0]
    assert state.section_answered(1, 0, Status.OK) == [Release(1)]
    assert state.last_add_confirmed == 0
    assert state.length == 1


def test_duplicate_answers_count_once() -> None:
    state = writer()
    state.append([b"a"])

    state.section_answered(0, 0, Status.OK)

    assert state.section_answered(0, 0, Status.OK) == []
    assert state.last_add_confirmed == -1


def test_runs_are_acknowledged_in_entry_order_whatever_order_answers_come_in() -> None:
    state = writer(size_bytes_target=1)
    state.append([b"a"])
    state.append([b"b"])

    for position in range(3):
        assert acked(state.section_answered(position, 1, Status.OK)) == []
    state.section_answered(0, 0, Status.OK)

    assert acked(state.section_answered(1, 0, Status.OK)) == [1]


def test_adds_wait_for_company_while_a_run_is_out_and_carry_the_lac_of_their_cut() -> None:
    state = writer()
    state.append([b"a"])

    assert state.append([b"b"]) == []
    assert state.append([b"c"]) == []
    state.section_answered(0, 0, Status.OK)
    sections = sends(state.section_answered(1, 0, Status.OK))

    (section,) = parse_frame(sections[0].section.data)
    assert list(section.run.entry_ids) == [1, 2]
    header = parse_header(section.run.data, section.run.offsets[1])
    assert (header.last_add_confirmed, header.length) == (0, 3)


def test_large_adds_keep_a_few_runs_in_flight_and_no_more() -> None:
    state = writer(size_bytes_target=4, size_bytes_max=4, runs_in_flight_max=3)

    first = sends(state.append([b"xxxx"] * 5))

    assert {send.run_first_entry for send in first} == {0, 1, 2}
    state.section_answered(0, 0, Status.OK)
    more = sends(state.section_answered(1, 0, Status.OK))
    assert {send.run_first_entry for send in more} == {3}


def test_a_dead_bookie_is_tolerated_while_an_ack_quorum_is_left() -> None:
    state = writer()
    state.append([b"a"])
    state.section_answered(1, 0, Status.UNREACHABLE)

    state.section_answered(0, 0, Status.OK)
    assert acked(state.section_answered(2, 0, Status.OK)) == [0]

    assert [send.position for send in sends(state.append([b"b"]))] == [0, 2]


def test_beyond_that_the_writer_ends_and_says_which_bookies_failed() -> None:
    state = writer()
    state.append([b"a", b"b"])
    state.section_answered(1, 0, Status.UNREACHABLE)

    effects = state.section_answered(2, 0, Status.READ_ONLY)

    (failed,) = [effect for effect in effects if isinstance(effect, FailPending)]
    assert isinstance(failed.error, NotEnoughBookiesError)
    assert "b1:UNREACHABLE,b2:READ_ONLY" in str(failed.error)
    assert Release(2) in effects
    assert state.section_answered(0, 0, Status.OK) == []
    assert state.last_add_confirmed == -1


def test_a_fenced_writer_never_acknowledges_again() -> None:
    """F1, I20: one FENCED answer ends the writer, whatever the others say later."""
    state = writer()
    state.append([b"a"])
    state.section_answered(0, 0, Status.OK)

    effects = state.section_answered(1, 0, Status.FENCED)

    assert isinstance(effects[0], FailPending)
    assert isinstance(effects[0].error, LedgerFencedError)
    assert acked(state.section_answered(2, 0, Status.OK)) == []
    assert state.last_add_confirmed == -1


def test_a_late_fenced_answer_ends_the_writer_too() -> None:
    state = writer()
    state.append([b"a"])
    state.section_answered(0, 0, Status.OK)
    state.section_answered(1, 0, Status.OK)

    state.section_answered(2, 0, Status.FENCED)

    assert isinstance(state.error, LedgerFencedError)
    assert state.last_add_confirmed == 0


def test_a_wrong_key_ends_the_writer() -> None:
    state = writer()
    state.append([b"a"])

    state.section_answered(0, 0, Status.UNAUTHORIZED)

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

    assert acked(state.section_answered(0, 0, Status.OK)) == []
    assert acked(state.section_answered(1, 0, Status.OK)) == []
    assert acked(state.section_answered(2, 0, Status.OK)) == [1]


ANSWERS = [Status.OK] * 12 + [Status.UNREACHABLE, Status.UNKNOWN, Status.FENCED]


@given(
    st.sampled_from([(1, 1, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2), (4, 2, 1)]),
    st.lists(st.binary(min_size=0, max_size=6), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_whatever_happens_order_quorum_and_accounting_hold(quorum, payloads, random) -> None:  # type: ignore[no-untyped-def]
    """I6 and I3, and every byte is released exactly once."""
    state = writer(*quorum, size_bytes_target=3, size_bytes_max=8)
    todo = list(payloads)
    out: list[SendSection] = []
    stored: dict[int, set[int]] = {}
    released = 0
    appended = 0
    confirmed = -1
    while todo or out:
        if todo and (not out or random.random() < 0.5) and state.error is None:
            count = random.randint(1, 3)
            batch, todo = todo[:count], todo[count:]
            appended += sum(map(len, batch))
            effects = state.append(batch)
        elif out:
            send = out.pop(random.randrange(len(out)))
            status = random.choice(ANSWERS)
            (section,) = parse_frame(send.section.data)
            if status is Status.OK:
                for entry_id in section.run.entry_ids:
                    stored.setdefault(entry_id, set()).add(send.position)
            effects = state.section_answered(send.position, send.run_first_entry, status)
        else:
            break
        for effect in effects:
            match effect:
                case SendSection():
                    out.append(effect)
                case Acknowledge(last_entry):
                    assert last_entry > confirmed
                    for entry_id in range(confirmed + 1, last_entry + 1):
                        held = stored.get(entry_id, set())
                        assert len(held & set(state.quorum.write_set(entry_id))) >= quorum[2]
                    confirmed = last_entry
                case Release(size_bytes):
                    released += size_bytes
                case FailPending():
                    assert state.error is effect.error
    assert confirmed == state.last_add_confirmed
    assert released == appended
    if state.error is None:
        assert confirmed == len(payloads) - 1
