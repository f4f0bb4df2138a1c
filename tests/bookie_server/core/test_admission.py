"""Admission: what a bookie may acknowledge, and when (docs/architecture.md, bookkeeper rules F*)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bookie_server.core.absence import status_of, status_of_absence
from bookie_server.core.admission import Admission
from bookie_server.core.effects import Compare, Effect, Persist, Remember, Reply
from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.presence import Presence
from bookie_server.core.records import Add, ExplicitLac, Fence, MasterKey
from bookie_server.wire.digest import Crc32cDigest, DummyDigest
from bookie_server.wire.messages import Section, Status
from bookie_server.wire.record import Run, encode_lac_packet, parse_run
from bookkeeper_metadata.foundation.invariant import InvariantViolation
from bookkeeper_metadata.model import DigestType
from tests.doubles.records import records

KEY = b"k" * 20
OTHER_KEY = b"o" * 20
PACKET = encode_lac_packet(Crc32cDigest(), 7, 3)


@dataclass
class Durable:
    """Storage as admission sees it; ``apply`` is what the shell does when a group is synced."""

    ledgers: dict[int, LedgerHandleState] = field(default_factory=dict)
    tombstones: set[int] = field(default_factory=set)
    stored: dict[int, set[int]] = field(default_factory=dict)

    def missing(self, run: Run) -> list[Run]:
        held = self.stored.get(run.ledger_id, set())
        return (
            [run.slice(i, i + 1) for i, e in enumerate(run.entry_ids) if e not in held]
            if (held & set(run.entry_ids))
            else [run]
        )

    def apply(self, persist: Persist) -> None:
        for record in persist.records:
            match record:
                case Add(run):
                    self.ledgers.setdefault(run.ledger_id, LedgerHandleState())
                    self.stored.setdefault(run.ledger_id, set()).update(run.entry_ids)
                case MasterKey(ledger_id, key):
                    self.ledgers.setdefault(ledger_id, LedgerHandleState()).master_key = key
                case Fence(ledger_id):
                    self.ledgers.setdefault(ledger_id, LedgerHandleState()).is_fenced = True
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

    def run(self, effects: list[Effect]) -> None:
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

    def add(self, who: str, first: int, count: int = 1, **how: object) -> None:
        self.run(self.admission.add(section(first, count, **how), self.teller(who)))

    def fence(self, who: str, key: bytes = KEY) -> None:
        self.run(self.admission.fence(7, key, self.teller(who)))

    def sync(self) -> None:
        """The oldest persist's group becomes durable."""
        persist = self.persists.pop(0)
        self.durable.apply(persist)
        released = self.admission.on_durable(persist.ticket)
        self.run(list(persist.then))
        self.run(released)

    def teller(self, who: str):  # type: ignore[no-untyped-def]
        return lambda status: self.told.append((who, status))


def section(first: int, count: int = 1, **how: object) -> Section:
    payloads = [bytes([how.get("fill", 1)]) * 8] * count  # type: ignore[list-item]
    data = records(payloads, first, length_before=first * 8)
    if how.get("damaged"):
        data = data[:-1] + bytes([data[-1] ^ 1])
    key = how.get("key", KEY)
    assert isinstance(key, bytes)
    return Section(7, key, bool(how.get("recovery")), DigestType.CRC32C, parse_run(data))


@pytest.mark.conformance("BookieSendsAddConfirmedResponse")
def test_an_add_is_acknowledged_only_when_its_group_is_durable() -> None:
    scene = Scene()

    scene.add("writer", 0, 3)

    assert scene.told == []
    assert scene.admission.is_pending(7, 2, 5)
    scene.sync()
    assert scene.told == [("writer", Status.OK)]
    assert not scene.admission.is_pending(7, 0, 2)
    assert scene.admission.pending_count == 0


def test_the_first_add_binds_the_master_key_durably() -> None:
    scene = Scene()

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
def test_a_fence_binds_the_key_of_a_ledger_never_seen() -> None:
    scene = Scene()

    scene.fence("recoverer")
    scene.sync()
    scene.fence("stranger", OTHER_KEY)

    assert scene.told == [("recoverer", Status.OK), ("stranger", Status.UNAUTHORIZED)]
    assert scene.durable.ledgers[7].is_fenced


def test_no_add_is_admitted_behind_a_fence_that_is_not_durable_yet() -> None:
    scene = Scene()
    scene.add("early", 0)
    scene.fence("recoverer")

    scene.add("late", 1)

    assert scene.told == [("late", Status.FENCED)]
    scene.sync()
    scene.sync()
    assert scene.told[1:] == [("early", Status.OK), ("recoverer", Status.OK)]
    scene.add("later", 2)
    assert scene.told[-1] == ("later", Status.FENCED)


def test_a_repeated_fence_waits_for_the_first_ones_record() -> None:
    scene = Scene()
    scene.fence("first")

    scene.fence("second")

    assert len(scene.persists) == 1
    assert scene.told == []
    scene.sync()
    assert sorted(scene.told) == [("first", Status.OK), ("second", Status.OK)]


def test_a_fence_of_a_fenced_ledger_still_waits_for_adds_admitted_before() -> None:
    """Recovery write-backs of one recoverer must be visible to the next one's reads."""
    scene = Scene()
    scene.fence("first")
    scene.sync()
    scene.add("write-back", 0, recovery=True)

    scene.fence("second")

    assert scene.told == [("first", Status.OK)]
    scene.sync()
    assert ("second", Status.OK) in scene.told


@pytest.mark.conformance("BookieSendsAddFencedResponse")
def test_recovery_adds_pass_the_fence() -> None:
    scene = Scene()
    scene.fence("recoverer")
    scene.sync()

    scene.add("write-back", 0, recovery=True)
    scene.sync()

    assert scene.told[-1] == ("write-back", Status.OK)


def test_a_duplicate_waits_for_the_group_of_the_first() -> None:
    scene = Scene()
    scene.add("first", 0, 2)

    scene.add("again", 0, 2)

    assert len(scene.persists) == 1
    assert scene.told == []
    scene.sync()
    assert scene.told == [("first", Status.OK)]
    (compare,) = scene.compares
    assert list(compare.run.entry_ids) == [0, 1]


def test_an_overlapping_add_persists_only_what_is_new() -> None:
    scene = Scene()
    scene.add("first", 0, 3)
    scene.sync()
    scene.add("pending", 3, 1)

    scene.add("overlap", 1, 5)

    added = [r.run for r in scene.persists[-1].records if isinstance(r, Add)]
    assert [list(run.entry_ids) for run in added] == [[4], [5]] or [
        list(run.entry_ids) for run in added
    ] == [[4, 5]]


def test_another_payload_under_a_pending_id_is_a_conflict() -> None:
    scene = Scene()
    scene.add("first", 0)

    scene.add("forger", 0, fill=2)

    assert scene.told == [("forger", Status.CONFLICT)]
    assert len(scene.persists) == 1


def test_a_damaged_record_is_refused_before_it_is_stored() -> None:
    scene = Scene()

    scene.add("writer", 0, damaged=True)

    assert scene.told == [("writer", Status.BAD_REQUEST)]
    assert scene.persists == []


def test_an_impossible_lac_is_refused() -> None:
    scene = Scene()
    run = parse_run(records([b"x"], 3, lac=3))
    claim = Section(7, KEY, False, DigestType.CRC32C, run)

    scene.run(scene.admission.add(claim, scene.teller("writer")))

    assert scene.told == [("writer", Status.BAD_REQUEST)]


def test_a_failed_group_tells_nobody_ok() -> None:
    scene = Scene()
    scene.add("first", 0)
    scene.add("again", 0)

    scene.run(scene.admission.on_failed(scene.persists[0].ticket))

    assert scene.told == [("again", Status.UNKNOWN)]
    assert not scene.admission.is_pending(7, 0, 0)


@pytest.mark.conformance("F10")
def test_a_fence_that_was_not_stored_is_not_answered() -> None:
    """What waited for it, a recovery's read or LAC read, must not go on to say what is there."""
    scene = Scene()
    scene.fence("recoverer")
    scene.fence("another")

    scene.run(scene.admission.on_failed(scene.persists[0].ticket))

    assert {status for _, status in scene.told} <= {Status.UNKNOWN}
    assert scene.durable.ledgers == {}


@pytest.mark.conformance("F2")
def test_a_deleted_ledger_is_not_created_again_by_a_late_add() -> None:
    """Apache #4462: the write of a deleted ledger was acknowledged and lost."""
    scene = Scene()
    scene.durable.tombstones.add(7)

    scene.add("late", 0)
    scene.add("late recovery", 0, recovery=True)
    scene.fence("fence")

    assert {status for _, status in scene.told} == {Status.FENCED}
    assert scene.persists == []


def test_an_explicit_lac_waits_for_no_sync_also_when_fenced() -> None:
    scene = Scene()
    scene.fence("recoverer")
    scene.sync()

    scene.run(scene.admission.set_explicit_lac(7, KEY, PACKET, scene.teller("writer")))
    scene.run(scene.admission.set_explicit_lac(7, b"x" * 20, PACKET, scene.teller("other")))

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
def test_an_explicit_lac_that_proves_nothing_is_refused(packet: bytes) -> None:
    scene = Scene()
    scene.add("writer", 0)
    scene.sync()

    scene.run(scene.admission.set_explicit_lac(7, KEY, packet, scene.teller("stranger")))

    assert scene.told[1:] == [("stranger", Status.BAD_REQUEST)]
    assert scene.remembered == []


def test_an_explicit_lac_that_comes_first_binds_the_key_durably() -> None:
    scene = Scene()

    scene.run(scene.admission.set_explicit_lac(7, KEY, PACKET, scene.teller("writer")))

    assert scene.persists[0].records == (MasterKey(7, KEY), ExplicitLac(7, PACKET))
    assert scene.told == []


def test_settle_waits_for_everything_admitted() -> None:
    scene = Scene()
    scene.run(scene.admission.settle(7, scene.teller("nobody pending")))
    scene.add("writer", 0)
    scene.run(scene.admission.settle(7, scene.teller("reader")))

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


def test_unreadable_is_unknown_and_cut_off_is_no_absence() -> None:
    assert status_of(Presence.DAMAGED, Status.NO_ENTRY) is Status.UNKNOWN
    assert status_of(Presence.NOT_REACHED, Status.NO_ENTRY) is Status.NOT_REACHED
    assert status_of(Presence.ABSENT, Status.NO_ENTRY) is Status.NO_ENTRY
    with pytest.raises(InvariantViolation):
        status_of(Presence.FOUND, Status.NO_ENTRY)
