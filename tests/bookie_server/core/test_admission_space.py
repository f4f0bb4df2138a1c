"""Admission where there is little room: who is refused, in which mode, and what is said first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.core.admission import Admission
from bookie_server.core.effects import Compare, Effect, Persist, Remember, Reply
from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.space import Mode
from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.messages import Status
from bookie_server.wire.record import encode_lac_packet
from tests.bookie_server.core.test_admission import Durable
from tests.doubles.records import KEY, section

PACKET = encode_lac_packet(Crc32cDigest(), 7, 3)
REFUSED = Status.READ_ONLY


def no_answer(_: Status) -> None:
    raise AssertionError("admission decides, it does not answer")


class Scene:
    def __init__(self, mode: Mode) -> None:
        self.durable = Durable()
        self.admission = Admission(self.durable, lambda: mode)

    def add(self, *, is_recovery: bool = False) -> list[Effect]:
        asked = replace(section([b"x"], 0), is_recovery=is_recovery)
        return self.admission.add(asked, no_answer)

    def fence(self) -> list[Effect]:
        return self.admission.fence(7, KEY, no_answer)

    def set_lac(self) -> list[Effect]:
        return self.admission.set_explicit_lac(7, KEY, PACKET, no_answer)


def is_refused(effects: list[Effect]) -> bool:
    return effects == [Reply(no_answer, REFUSED)]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.conformance("S11")
def test_each_mode_refuses_what_has_no_room_in_it(mode: Mode) -> None:
    refused = {
        "add": is_refused(Scene(mode).add()),
        "lac of an unknown ledger": is_refused(Scene(mode).set_lac()),
        "recovery add": is_refused(Scene(mode).add(is_recovery=True)),
        "fence": is_refused(Scene(mode).fence()),
    }

    assert refused == {
        "add": mode >= Mode.READ_ONLY,
        "lac of an unknown ledger": mode >= Mode.READ_ONLY,
        "recovery add": mode >= Mode.FULL,
        "fence": mode >= Mode.EXHAUSTED,
    }


def test_what_is_refused_leaves_nothing_behind() -> None:
    scene = Scene(Mode.EXHAUSTED)

    scene.add()
    scene.fence()
    scene.set_lac()

    assert scene.admission.pending_count == 0
    assert not scene.admission.is_pending(7, 0, 9)


def test_what_is_stored_already_needs_no_room() -> None:
    """Its writer never had the answer; refused, it would leave a bookie that has the entry."""
    scene = Scene(Mode.EXHAUSTED)
    scene.durable.stored[7].add(0)
    scene.durable.ledgers[7] = LedgerHandleState(master_key=KEY, is_fenced=True)

    assert isinstance(scene.add(is_recovery=True)[0], Compare)
    assert scene.fence() == [Reply(no_answer, Status.OK)]
    assert scene.set_lac() == [Remember(7, PACKET), Reply(no_answer, Status.OK)]


@pytest.mark.parametrize(
    ("handle", "status"),
    [
        (LedgerHandleState(master_key=KEY, is_fenced=True), Status.FENCED),
        (LedgerHandleState(master_key=KEY, is_limbo=True), Status.LIMBO),
        (LedgerHandleState(master_key=b"o" * 20), Status.UNAUTHORIZED),
    ],
)
def test_a_fence_is_told_before_the_lack_of_room(handle: LedgerHandleState, status: Status) -> None:
    """A fenced writer that heard READ_ONLY would go on with other bookies."""
    scene = Scene(Mode.FULL)
    scene.durable.ledgers[7] = handle

    assert scene.add() == [Reply(no_answer, status)]


@pytest.mark.parametrize("mode", Mode)
def test_a_damaged_entry_is_replaced_where_a_recovery_may_add(mode: Mode) -> None:
    run = section([b"x"], 0).run
    compare = Compare(run, 4, no_answer, KEY)

    (effect,) = Scene(mode).admission.replace(compare, [run])

    assert is_refused([effect]) == (mode >= Mode.FULL)


def test_there_is_room_for_it_or_it_is_persisted() -> None:
    (effect,) = Scene(Mode.READ_ONLY).add(is_recovery=True)

    assert isinstance(effect, Persist)
