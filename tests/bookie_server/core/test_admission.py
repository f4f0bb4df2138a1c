"""Admission: what a bookie may acknowledge, and when (docs/architecture.md, bookkeeper rules F*)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from bookie_server.core.absence import status_of, status_of_absence
from bookie_server.core.admission import Admission
from bookie_server.core.effects import Compare, Effect, Persist, Remember, Reply
from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.presence import Presence
from bookie_server.core.records import Add, Drop, ExplicitLac, Fence, MasterKey
from bookie_server.wire.digest import Crc32cDigest, DummyDigest
from bookie_server.wire.messages import Section, Status
from bookie_server.wire.record import Run, encode_lac_packet, parse_run
from bookkeeper_metadata.foundation.invariant import InvariantViolation
from bookkeeper_metadata.model import DigestType
from tests.doubles.records import KEY, records

OTHER_KEY = b"o" * 20
PACKET = encode_lac_packet(Crc32cDigest(), 7, 3)


class Durable:
    """Storage as admission sees it; ``apply`` is what the shell does when a group is synced."""

    def __init__(self) -> None:
        self.ledgers: defaultdict[int, LedgerHandleState] = defaultdict(LedgerHandleState)
        self.tombstones: set[int] = set()
        self.stored: defaultdict[int, set[int]] = defaultdict(set)

    def missing(self, run: Run) -> list[Run]:
        return run.without(self.stored[run.ledger_id].__contains__)

    def apply(self, persist: Persist) -> None:
        for record in persist.records:
            match record:
                case Add(run):
                    self.stored[run.ledger_id].update(run.entry_ids)
                case MasterKey(ledger_id, key):
                    self.ledgers[ledger_id].master_key = key
                case Fence(ledger_id) | Drop(ledger_id):
                    self.ledgers[ledger_id].is_fenced = True
                case _:
                    continue


class Scene:
    """One admission over one storage, and what everybody was told, in order."""

    def __init__(self) -> None:
        self.durable = Durable()
        self.admission = Admission(self.durable)
        self.told: list[tuple[str, Status]] = []
        self.persists: list[Persist] = []
        self.compares: list[Compare] = []
        self.remembered: list[Remember] = []

    def run(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(to, status):
                    to(status)
                case Persist():
                    self.persists.append(effect)
                case Compare():
                    self.compares.append(effect)
                case Remember():
                    self.remembered.append(effect)

    def add(self, who: str, first: int, count: int = 1, **how: Any) -> None:
        self.run(self.admission.add(section(first, count, **how), self.teller(who)))

    def fence(self, who: str, key: bytes = KEY) -> None:
        self.run(self.admission.fence(7, key, self.teller(who)))

    def set_lac(self, who: str, packet: bytes = PACKET, key: bytes = KEY) -> None:
        self.run(self.admission.set_explicit_lac(7, key, packet, self.teller(who)))

    def settle(self, who: str) -> None:
        self.run(self.admission.settle(7, self.teller(who)))

    def fail(self) -> None:
        """The oldest persist's group is not written."""
        self.run(self.admission.on_failed(self.persists[0].ticket))

    def sync(self) -> None:
        """The oldest persist's group becomes durable."""
        persist = self.persists.pop(0)
        self.durable.apply(persist)
        self.run([*persist.then, *self.admission.on_durable(persist.ticket)])

    def teller(self, who: str):  # type: ignore[no-untyped-def]
        return lambda status: self.told.append((who, status))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def section(
    first: int,
    count: int = 1,
    *,
    fill: int = 1,
    is_damaged: bool = False,
    key: bytes = KEY,
    is_recovery: bool = False,
) -> Section:
    data = records([bytes([fill]) * 8] * count, first, length_before=first * 8)
    if is_damaged:
        data = data[:-1] + bytes([data[-1] ^ 1])
    return Section(7, key, is_recovery, DigestType.CRC32C, parse_run(data))


@pytest.mark.conformance("BookieSendsAddConfirmedResponse", "S2")
def test_an_add_is_acknowledged_only_when_its_group_is_durable(scene: Scene) -> None:
    scene.add("writer", 0, 3)

    assert scene.told == []
    assert scene.admission.is_pending(7, 2, 5)
    scene.sync()
    assert scene.told == [("writer", Status.OK)]
    assert not scene.admission.is_pending(7, 0, 2)
    assert scene.admission.pending_count == 0


def test_the_first_add_binds_the_master_key_durably(scene: Scene) -> None:
    scene.add("writer", 0)
    scene.add("stranger", 1, key=OTHER_KEY)

    assert scene.persists[0].records[0] == MasterKey(7, KEY)
    assert scene.told == [("stranger", Status.UNAUTHORIZED)]
    scene.sync()
    scene.add("stranger", 1, key=OTHER_KEY)
    scene.add("writer", 1)
    assert scene.told[-1] == ("stranger", Status.UNAUTHORIZED)
    assert not any(isinstance(record, MasterKey) for record in scene.persists[0].records)


@pytest.mark.conformance("BookieSendsFencingReadLacResponse")
def test_a_fence_binds_the_key_of_a_ledger_never_seen(scene: Scene) -> None:
    scene.fence("recoverer")
    scene.sync()
    scene.fence("stranger", OTHER_KEY)

    assert scene.told == [("recoverer", Status.OK), ("stranger", Status.UNAUTHORIZED)]
    assert scene.durable.ledgers[7].is_fenced


def test_no_add_is_admitted_behind_a_fence_that_is_not_durable_yet(scene: Scene) -> None:
    scene.add("early", 0)
    scene.fence("recoverer")

    scene.add("late", 1)

    assert scene.told == [("late", Status.FENCED)]
    scene.sync()
    scene.sync()
    assert scene.told[1:] == [("early", Status.OK), ("recoverer", Status.OK)]
    scene.add("later", 2)
    assert scene.told[-1] == ("later", Status.FENCED)


def test_a_repeated_fence_waits_for_the_first_ones_record(scene: Scene) -> None:
    scene.fence("first")

    scene.fence("second")

    assert len(scene.persists) == 1
    assert scene.told == []
    scene.sync()
    assert sorted(scene.told) == [("first", Status.OK), ("second", Status.OK)]


def test_a_fence_of_a_fenced_ledger_still_waits_for_adds_admitted_before(scene: Scene) -> None:
    """Recovery write-backs of one recoverer must be visible to the next one's reads."""
    scene.fence("first")
    scene.sync()
    scene.add("write-back", 0, is_recovery=True)

    scene.fence("second")

    assert scene.told == [("first", Status.OK)]
    scene.sync()
    assert ("second", Status.OK) in scene.told


@pytest.mark.conformance("BookieSendsAddFencedResponse")
def test_recovery_adds_pass_the_fence(scene: Scene) -> None:
    scene.fence("recoverer")
    scene.sync()

    scene.add("write-back", 0, is_recovery=True)
    scene.sync()

    assert scene.told[-1] == ("write-back", Status.OK)


def test_a_duplicate_waits_for_the_group_of_the_first(scene: Scene) -> None:
    scene.add("first", 0, 2)

    scene.add("again", 0, 2)

    assert len(scene.persists) == 1
    assert scene.told == []
    scene.sync()
    assert scene.told == [("first", Status.OK)]
    (compare,) = scene.compares
    assert list(compare.run.entry_ids) == [0, 1]


def test_an_overlapping_add_persists_only_what_is_new(scene: Scene) -> None:
    scene.add("first", 0, 3)
    scene.sync()
    scene.add("pending", 3, 1)

    scene.add("overlap", 1, 5)

    added = [r.run for r in scene.persists[-1].records if isinstance(r, Add)]
    assert [entry_id for run in added for entry_id in run.entry_ids] == [4, 5]


def test_another_payload_under_a_pending_id_is_a_conflict(scene: Scene) -> None:
    scene.add("first", 0)

    scene.add("forger", 0, fill=2)

    assert scene.told == [("forger", Status.CONFLICT)]
    assert len(scene.persists) == 1


@pytest.mark.parametrize("order", [range(300), range(300, 0, -1)], ids=["ascending", "descending"])
def test_an_add_is_compared_only_with_what_may_hold_its_ids(
    scene: Scene, order: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four thousand sections of one ledger in a frame took 22 s: each looked through all the others."""
    between = Mock(side_effect=Run.between)
    monkeypatch.setattr(Run, "between", lambda run, first, last: between(run, first, last))
    for entry_id in order:
        scene.add("writer", entry_id)
    assert between.call_count == 0

    scene.add("again", order[7])
    assert between.call_count == 1
    while scene.persists:
        scene.sync()

    assert scene.told == [("writer", Status.OK)] * len(order)
    assert scene.admission.pending_count == 0
    assert len(scene.compares) == 1


def test_a_damaged_record_is_refused_before_it_is_stored(scene: Scene) -> None:
    scene.add("writer", 0, is_damaged=True)

    assert scene.told == [("writer", Status.BAD_REQUEST)]
    assert scene.persists == []


@pytest.mark.parametrize("lac", [3, 9, -2])
def test_an_impossible_lac_is_refused(scene: Scene, lac: int) -> None:
    """A re-replication packages entries anew, with a LAC it has read: that may be above them."""
    run = parse_run(records([b"x"], 3, lac=lac))

    for who, is_recovery in ("writer", False), ("replicator", True):
        claim = Section(7, KEY, is_recovery, DigestType.CRC32C, run)
        scene.run(scene.admission.add(claim, scene.teller(who)))
    while scene.persists:
        scene.sync()

    accepted = Status.OK if lac > 0 else Status.BAD_REQUEST
    assert scene.told == [("writer", Status.BAD_REQUEST), ("replicator", accepted)]


def test_a_fenced_ledger_in_limbo_says_that_it_is_fenced(scene: Scene) -> None:
    """Told LIMBO, its writer would lose a bookie only and go on elsewhere."""
    scene.durable.ledgers[7].is_limbo = True
    scene.add("writer", 0)
    scene.fence("recovery")
    scene.add("writer", 1)
    scene.sync()
    scene.add("writer", 2)
    told = [status for who, status in scene.told if who == "writer"]
    assert told == [Status.LIMBO, Status.FENCED, Status.FENCED]


def test_a_failed_group_tells_nobody_ok(scene: Scene) -> None:
    scene.add("first", 0)
    scene.add("again", 0)

    scene.fail()

    assert scene.told == [("again", Status.UNKNOWN)]
    assert not scene.admission.is_pending(7, 0, 0)


@pytest.mark.conformance("F10")
def test_a_fence_that_was_not_stored_is_not_answered(scene: Scene) -> None:
    """What waited for it, a recovery's read or LAC read, must not go on to say what is there."""
    scene.fence("recoverer")
    scene.fence("another")

    scene.fail()

    assert {status for _, status in scene.told} <= {Status.UNKNOWN}
    assert scene.durable.ledgers == {}


@pytest.mark.conformance("F2")
def test_a_deleted_ledger_is_not_created_again_by_a_late_add(scene: Scene) -> None:
    """Apache #4462: the write of a deleted ledger was acknowledged and lost."""
    scene.durable.tombstones.add(7)

    scene.add("late", 0)
    scene.add("late recovery", 0, is_recovery=True)
    scene.fence("fence")

    assert {status for _, status in scene.told} == {Status.DELETED}
    assert scene.persists == []


def test_an_explicit_lac_waits_for_no_sync_also_when_fenced(scene: Scene) -> None:
    scene.fence("recoverer")
    scene.sync()

    scene.set_lac("writer")
    scene.set_lac("other", key=OTHER_KEY)

    assert scene.remembered == [Remember(7, PACKET)]
    assert scene.told[1:] == [("writer", Status.OK), ("other", Status.UNAUTHORIZED)]
    assert scene.persists == []


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(PACKET[:-1] + b"\0", id="damaged"),
        pytest.param(encode_lac_packet(Crc32cDigest(), 8, 3), id="another ledger's"),
        pytest.param(encode_lac_packet(DummyDigest(), 8, 3), id="another ledger's, unsigned"),
        pytest.param(encode_lac_packet(Crc32cDigest(), 7, -2), id="impossible"),
    ],
)
def test_an_explicit_lac_that_proves_nothing_is_refused(scene: Scene, packet: bytes) -> None:
    scene.add("writer", 0)
    scene.sync()

    scene.set_lac("stranger", packet)

    assert scene.told[1:] == [("stranger", Status.BAD_REQUEST)]
    assert scene.remembered == []


def test_an_explicit_lac_that_comes_first_binds_the_key_durably(scene: Scene) -> None:
    scene.set_lac("writer")

    assert scene.persists[0].records == (MasterKey(7, KEY), ExplicitLac(7, PACKET))
    assert scene.told == []


def test_settle_waits_for_everything_admitted(scene: Scene) -> None:
    scene.settle("nobody pending")
    scene.add("writer", 0)
    scene.settle("reader")

    assert scene.told == [("nobody pending", Status.OK)]
    scene.sync()
    assert scene.told[-1] == ("reader", Status.OK)


@pytest.mark.parametrize(
    ("facts", "damaged", "expected"),
    [
        (None, False, Status.NO_LEDGER),
        (LedgerHandleState(), False, Status.NO_ENTRY),
        (LedgerHandleState(is_limbo=True), False, Status.UNKNOWN),
        (None, True, Status.UNKNOWN),
        (LedgerHandleState(), True, Status.UNKNOWN),
    ],
)
@pytest.mark.conformance("BookieSendsReadResponse")
def test_absence_is_claimed_only_where_it_is_known(
    facts: LedgerHandleState | None, damaged: bool, expected: Status
) -> None:
    assert status_of_absence(facts, is_storage_damaged=damaged) is expected


@pytest.mark.conformance("S12")
def test_unreadable_is_unknown_and_cut_off_is_no_absence() -> None:
    assert status_of(Presence.DAMAGED, Status.NO_ENTRY) is Status.UNKNOWN
    assert status_of(Presence.NOT_REACHED, Status.NO_ENTRY) is Status.NOT_REACHED
    assert status_of(Presence.ABSENT, Status.NO_ENTRY) is Status.NO_ENTRY
    with pytest.raises(InvariantViolation):
        status_of(Presence.FOUND, Status.NO_ENTRY)
