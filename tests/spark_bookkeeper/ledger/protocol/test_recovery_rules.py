"""Recovery's rules: generous to presence, strict to absence, silent on the rest."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import pytest

from bookie_server.wire.messages import IdRange, Status
from bookkeeper_metadata.foundation.invariant import InvariantViolation
from spark_bookkeeper.ledger.errors import DigestMismatchError, EntryUnreadableError
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.read_rules import (
    DIGEST_MISMATCH,
    Answer,
    plan_attempt,
    split_by_write_set,
    unreadable,
)
from spark_bookkeeper.ledger.protocol.recovery_rules import (
    EntryReadResult,
    FenceProgress,
    ReadResult,
    first_entry_to_recover,
)

QUORUM = QuorumConfig(3, 3, 2)


@pytest.mark.parametrize("status", [Status.OK, Status.NO_ENTRY, Status.NO_LEDGER])
@pytest.mark.conformance("ClientReceivesFencingReadLacResponse")
def test_proof_counts_towards_coverage(status: Status) -> None:
    progress = FenceProgress(QUORUM)
    progress.on_answer(0, status, 4)
    before = progress.is_covered

    progress.on_answer(2, status, 9)

    assert (before, progress.is_covered) == (False, True)
    assert progress.last_add_confirmed == (9 if status is Status.OK else -1)


@pytest.mark.parametrize(
    "status", [Status.UNKNOWN, Status.UNREACHABLE, Status.BUSY, Status.READ_ONLY]
)
def test_silence_never_counts_towards_coverage(status: Status) -> None:
    progress = FenceProgress(QUORUM)

    for position in range(3):
        progress.on_answer(position, status, 99)

    assert not progress.is_covered
    assert progress.last_add_confirmed == -1


def test_a_striped_ensemble_must_be_covered_in_every_write_set() -> None:
    progress = FenceProgress(QuorumConfig(5, 2, 2))  # one answer per neighbouring pair

    for position in (0, 2):
        progress.on_answer(position, Status.OK, 0)
    assert not progress.is_covered
    progress.on_answer(4, Status.OK, 0)

    assert progress.is_covered


@pytest.mark.conformance("R17")
def test_recovery_never_starts_below_the_last_fragment() -> None:
    """Apache #2615: bookies of a fresh fragment answer -1."""
    assert first_entry_to_recover(-1, 10) == 10
    assert first_entry_to_recover(14, 10) == 15
    assert first_entry_to_recover(-1, 0) == 0


@pytest.mark.parametrize(
    ("answers", "result"),
    [
        ({0: Status.NO_ENTRY, 2: Status.NO_ENTRY, 1: Status.OK}, ReadResult.EXISTS),
        ({0: Status.NO_ENTRY}, ReadResult.OPEN),
        ({0: Status.NO_ENTRY, 1: Status.NO_LEDGER}, ReadResult.NEVER_EXISTED),
        ({0: Status.UNKNOWN, 1: Status.UNKNOWN, 2: Status.NO_ENTRY}, ReadResult.OPEN),
        ({0: Status.UNREACHABLE, 1: Status.UNREACHABLE, 2: Status.NO_ENTRY}, ReadResult.OPEN),
        ({0: Status.NOT_REACHED, 1: Status.NOT_REACHED, 2: Status.NO_ENTRY}, ReadResult.OPEN),
    ],
)
@pytest.mark.conformance("ClientReceivesRecoveryReadResponse")
def test_one_copy_is_enough_absence_needs_a_coverage_and_dont_know_is_never_no(
    answers: dict[int, Status], result: ReadResult
) -> None:
    entry = EntryReadResult(QUORUM, 4)
    for position, status in answers.items():
        if status is Status.OK:
            entry.copy(position)
        else:
            entry.no_copy(position, status)

    assert entry.result is result


def test_only_the_write_set_may_testify() -> None:
    entry = EntryReadResult(QuorumConfig(5, 3, 2), 0)

    with pytest.raises(InvariantViolation):
        entry.no_copy(4, Status.NO_ENTRY)


@pytest.mark.parametrize("config", [QuorumConfig(3, 3, 2), QuorumConfig(5, 3, 2)], ids=str)
def test_wq_rounds_ask_every_replica_of_every_entry_once(config: QuorumConfig) -> None:
    ids = [3, 4, 5, 9]
    asked = defaultdict[int, list[int]](list)

    for group, attempt in product(split_by_write_set(config, ids), range(config.write_quorum)):
        request = plan_attempt(config, group, attempt)
        for entry_id in range(request.first_entry, request.last_entry + 1):
            if request.stripe is None or request.stripe.wants(entry_id):
                asked[entry_id].append(request.position)

    for entry_id in ids:
        assert sorted(asked[entry_id]) == sorted(config.write_set(entry_id))


def test_damage_outweighs_silence_in_the_error() -> None:
    answers = [Answer("a", 0, 9, "UNREACHABLE"), Answer("b", 4, 4, DIGEST_MISMATCH)]

    assert isinstance(unreadable(7, 4, answers), DigestMismatchError)
    error = unreadable(7, 5, answers)
    assert isinstance(error, EntryUnreadableError)
    assert "a:UNREACHABLE" in str(error)


ANSWERS = (Status.OK, Status.NO_ENTRY, Status.UNKNOWN, Status.UNREACHABLE, Status.NOT_REACHED)


# -- bookies in limbo that an operator has given up ------------------------------------------------------


def test_a_bookie_given_up_is_shut_out_by_its_limbo_but_not_by_its_silence() -> None:
    progress = FenceProgress(QUORUM, given_up={0: (), 1: ()})
    progress.on_answer(0, Status.UNKNOWN, -1)
    progress.on_answer(1, Status.UNREACHABLE, -1)
    assert not progress.is_covered

    progress.on_answer(2, Status.UNKNOWN, -1)
    assert not progress.is_covered, "the third one is not given up"
    progress.on_answer(2, Status.OK, 4)

    assert progress.is_covered


@pytest.mark.parametrize("answers", [*product(ANSWERS, repeat=3)])
@pytest.mark.parametrize("given_up", [set(), {0}, {0, 1}, {0, 1, 2}], ids=str)
@pytest.mark.parametrize(
    "listed",
    [(), (IdRange(0, 6, Status.OK), IdRange(8, 9, Status.OK)), (IdRange(3, 7, Status.OK),)],
    ids=["nothing", "others", "it"],
)
def test_what_is_given_up_ends_a_ledger_only_if_every_bookie_has_said_that_it_has_nothing(
    answers: tuple[Status, ...], given_up: set[int], listed: tuple[IdRange, ...]
) -> None:
    entry = EntryReadResult(QUORUM, 7, dict.fromkeys(given_up, listed))
    for position, status in enumerate(answers):
        if status is Status.OK:
            entry.copy(position)
        else:
            entry.no_copy(position, status)

    denials = answers.count(Status.NO_ENTRY)
    has_nothing = [
        status is Status.NO_ENTRY
        or (status is Status.UNKNOWN and position in given_up and (not listed or len(listed) == 2))
        for position, status in enumerate(answers)
    ]
    if Status.OK in answers:
        expected = ReadResult.EXISTS
    elif denials >= 2 or all(has_nothing):
        expected = ReadResult.NEVER_EXISTED
    else:
        expected = ReadResult.OPEN
    assert entry.result is expected
