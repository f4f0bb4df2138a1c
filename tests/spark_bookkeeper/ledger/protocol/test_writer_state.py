"""The writer's state machine: order, quorums and the end, and every byte given back once."""

from __future__ import annotations

import pytest

from bookie_server.wire.add_frames import parse_frame
from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.limits import RUN_ENTRIES_MAX
from bookie_server.wire.messages import Status
from bookie_server.wire.record import parse_header, run_verifies, split_records
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.ledger.errors import LedgerFencedError, UnauthorizedError
from spark_bookkeeper.ledger.protocol.events import FailPending, Release
from tests.spark_bookkeeper.ledger.protocol.writers import (
    acked,
    answer,
    sends,
    store,
    writer,
    writer_of,
)


def test_every_bookie_of_the_write_set_gets_the_same_bytes() -> None:
    sections = sends(writer().append([b"a", b"bb"]))

    assert [send.position for send in sections] == [0, 1, 2]
    assert len({id(send.section.data) for send in sections}) == 1
    (section,) = parse_frame(sections[0].section.data)
    assert [payload for _, _, payload in split_records(section.run, 4)] == [b"a", b"bb"]
    assert run_verifies(section.run, Crc32cDigest())


def test_an_entry_is_acknowledged_at_the_ack_quorum_not_before() -> None:
    state = writer_of(b"a")

    assert acked(answer(state, 0, 0, Status.OK)) == []
    assert acked(answer(state, 2, 0, Status.OK)) == [0]
    assert answer(state, 1, 0, Status.OK) == [Release(1)]
    assert state.last_add_confirmed == 0
    assert state.length == 1


def test_duplicate_answers_count_once() -> None:
    state = writer_of(b"a")

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
    state = writer_of(b"a")

    assert state.append([b"b"]) == []
    assert state.append([b"c"]) == []
    answer(state, 0, 0, Status.OK)
    sections = sends(answer(state, 1, 0, Status.OK))

    (section,) = parse_frame(sections[0].section.data)
    assert list(section.run.entry_ids) == [1, 2]
    header = parse_header(section.run.data, section.run.offsets[1])
    assert (header.last_add_confirmed, header.length) == (0, 3)


def test_large_adds_keep_a_few_runs_in_flight_and_no_more() -> None:
    state = writer(size_bytes_target=4, size_bytes_max=100, in_flight_max=3)

    first = [send for _ in range(5) for send in sends(state.append([b"xxxx"]))]

    assert {send.run_first_entry for send in first} == {0, 1, 2}
    answer(state, 0, 0, Status.OK)
    more = sends(answer(state, 1, 0, Status.OK))
    assert {send.run_first_entry for send in more} == {3}


def test_runs_that_cannot_grow_do_not_wait_for_company() -> None:
    state = writer(size_bytes_target=4, size_bytes_max=8, in_flight_max=1, full_in_flight_max=3)
    # At first nobody knows how soon bookies answer.
    assert {send.run_first_entry for send in sends(state.append([b"xxxx"] * 9))} == {0}
    state.note_promptness(True)

    more = sends(answer(state, 0, 0, Status.OK))
    assert {send.run_first_entry for send in more} == {2, 4}
    more = sends(answer(state, 1, 0, Status.OK))
    assert {send.run_first_entry for send in more} == {6}
    answer(state, 0, 2, Status.OK)
    # What is left is no whole run, and two are out: it waits until it is one, to the byte.
    assert sends(answer(state, 1, 2, Status.OK)) == []
    assert {send.run_first_entry for send in sends(state.append([b"xxxx"]))} == {8}


@pytest.mark.parametrize(
    ("waiting", "first_run"), [([b"12", b"34"], 2), ([b"12", b"345"], 1), ([b"12345"], 1)]
)
def test_a_run_has_no_more_bytes_than_the_limit_but_for_one_entry(
    waiting: list[bytes], first_run: int
) -> None:
    state = writer(size_bytes_target=1, size_bytes_max=4, in_flight_max=1)
    effects = state.append(waiting)
    section = sends(effects)[0].section
    assert section.last_entry - section.first_entry + 1 == first_run


def test_runs_of_larger_entries_count_for_several_and_none_is_sent_deep_to_slow_bookies() -> None:
    state = writer(size_bytes_target=4, size_bytes_max=8, in_flight_max=1, full_in_flight_max=4)
    state.note_promptness(True)

    assert {send.run_first_entry for send in sends(state.append([bytes(16)] * 9))} == {0, 1}
    state.note_promptness(False)
    store(state, 0, on=(0, 1))
    assert sends(answer(state, 0, 1, Status.OK)) == []
    assert {send.run_first_entry for send in sends(answer(state, 1, 1, Status.OK))} == {2}


@pytest.mark.parametrize(
    ("status", "error"),
    [(Status.FENCED, LedgerFencedError), (Status.UNAUTHORIZED, UnauthorizedError)],
)
@pytest.mark.conformance("ClientReceivesAddFencedResponse")
def test_a_writer_that_is_refused_never_acknowledges_again(
    status: Status, error: type[BookKeeperError]
) -> None:
    """F1, I20: one such answer ends the writer, whatever the others say later."""
    state = writer_of(b"a")
    answer(state, 0, 0, Status.OK)

    effects = answer(state, 1, 0, status)

    assert isinstance(effects[0], FailPending)
    assert isinstance(effects[0].error, error)
    assert acked(answer(state, 2, 0, Status.OK)) == []
    assert state.last_add_confirmed == -1


def test_a_late_fenced_answer_ends_the_writer_too() -> None:
    state = writer_of(b"a")
    store(state, 0, on=(0, 1))

    answer(state, 2, 0, Status.FENCED)

    assert isinstance(state.error, LedgerFencedError)
    assert state.last_add_confirmed == 0


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


def test_a_run_of_tiny_entries_ends_where_a_bookie_takes_no_more() -> None:
    """Payloads of no bytes fill no run: 300,000 of them made a section larger than any frame, which
    its bookies refused for ever."""
    state = writer()

    effects = state.append([b""] * (RUN_ENTRIES_MAX + 5))

    (section,) = parse_frame(sends(effects)[0].section.data)
    assert (len(section.run), section.defect) == (RUN_ENTRIES_MAX, "")
