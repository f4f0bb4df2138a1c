"""Marks of ledgers that lack copies: Apache's text, never lost, and one mender at a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.election import AuditorElection
from bookkeeper_metadata.errors import MetadataCorruptError, MetadataUnavailableError
from bookkeeper_metadata.paths import LEDGER_ID_MAX, Paths, PeriodicCheck, marked_ledger
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import Node
from bookkeeper_metadata.underreplication import Mark, Underreplication, encode_mark, parse_mark
from tests.doubles.stores import LoseNth, ScriptedStore, StandingStill, every_mutation

ROOT = "/ledgers"
LEDGERS = [0, 7, 65_535, 65_536, 2**31 - 1, 2**31, 12_345_678_901, LEDGER_ID_MAX]


def over(store: MemoryStore, seed: int = 0) -> Underreplication:
    return Underreplication(store, ROOT, random=Random(seed))


@pytest.fixture
async def store() -> MemoryStore:
    made = MemoryStore()
    await initialize(made, ROOT, random=Random(0))
    return made


async def marked(found: Underreplication, random: Random | None = None) -> list[int]:
    return [ledger_id async for ledger_id in found.list_marked_ledgers(random)]


# -- what is written ----------------------------------------------------------------------------------


@pytest.mark.conformance("A10")
def test_marks_and_their_places_are_apaches() -> None:
    """As Apache's ``TextFormat.printToString`` writes them, and ``getUrLedgerZnode`` finds them."""
    text = b'replica: "b0:3181"\nreplica: "b1:3181"\nctime: 1700000000000\n'

    assert encode_mark(Mark(("b0:3181", "b1:3181"), 1_700_000_000_000)) == text
    assert parse_mark(Node(text, 3, 0), "/x") == Mark(("b0:3181", "b1:3181"), 1_700_000_000_000, 3)
    assert parse_mark(Node(b'replica: "b0:3181"\n', 0, 0), "/x") == Mark(("b0:3181",), None, 0)
    below = f"{ROOT}/underreplication"
    paths = Paths(ROOT)
    assert paths.mark(0xABCD) == f"{below}/ledgers/0000/0000/0000/abcd/urL0000043981"
    assert paths.mark_lock(0xABCD) == f"{below}/locks/urL0000043981"


@pytest.mark.parametrize("ledger_id", LEDGERS)
def test_every_ledger_has_a_mark_of_its_own(ledger_id: int) -> None:
    name = Paths(ROOT).mark(ledger_id).rpartition("/")[2]

    assert marked_ledger(name) == ledger_id


@pytest.mark.parametrize(
    "name", ["", "urL", "urL7", "urL00000000070", "L0000000007", "urL9999999999999999999"]
)
def test_no_other_name_is_a_marks(name: str) -> None:
    assert marked_ledger(name) is None


@pytest.mark.parametrize("value", [b"\xff", b"no text of a mark", b"replica: 7"])
async def test_what_is_no_mark_is_neither_believed_nor_overwritten(
    store: MemoryStore, value: bytes
) -> None:
    path = Paths(ROOT).mark(7)
    await store.create(path, value, make_parents=True)

    with pytest.raises(MetadataCorruptError, match="urL0000000007"):
        await over(store).mark(7, ["b0:3181"], now_ms=1)
    with pytest.raises(MetadataCorruptError):
        await over(store).read(7)
    node = await store.get(path)
    assert node is not None
    assert node.value == value


# -- marks --------------------------------------------------------------------------------------------


@pytest.mark.conformance("A10")
async def test_marks_are_merged_listed_in_order_and_leave_no_folder(store: MemoryStore) -> None:
    marks = over(store)
    for ledger_id in reversed(LEDGERS):
        await marks.mark(ledger_id, ["b0:3181"], now_ms=1)
    assert await marked(marks) == LEDGERS
    assert sorted(await marked(marks, Random(1))) == LEDGERS
    assert await marked(marks, Random(1)) != LEDGERS

    again = await marks.mark(7, ["b1:3181", "b0:3181"], now_ms=2)

    assert again == Mark(("b0:3181", "b1:3181"), 2, 1)
    assert await marks.read(7) == again
    for ledger_id in LEDGERS:
        mark = await marks.read(ledger_id)
        assert mark is not None
        assert await marks.clear(ledger_id, mark)
        assert await marks.read(ledger_id) is None
    assert await marked(marks) == []
    await marks.delete_empty_folders(LEDGERS)
    assert await store.children(Paths(ROOT).underreplicated_ledgers) == []


@pytest.mark.conformance("A10")
async def test_a_mark_that_was_made_again_meanwhile_is_not_lost(store: MemoryStore) -> None:
    """Also one that says nothing new: the bookie came back, got a copy's place again, and was lost again."""
    marks = over(store)
    seen = await marks.mark(7, ["b0:3181"], now_ms=1)

    await marks.mark(7, ["b0:3181"], now_ms=2)

    assert not await marks.clear(7, seen)
    assert await marks.read(7) == Mark(("b0:3181",), 2, 1)


async def cleared_and_made_again(marks: Underreplication, now_ms: int) -> Mark:
    """By another worker, that found the ledger whole, and the auditor; returns the new one, whose version is the old one's."""
    before = await marks.read(7)
    assert before is not None
    assert await marks.clear(7, before)
    await marks.mark(7, ["b0:3181"], now_ms=now_ms)
    after = await marks.read(7)
    assert after is not None
    assert after.version == before.version
    return after


@pytest.mark.conformance("A10")
@pytest.mark.parametrize("now_ms", [1, 2])
async def test_a_mark_of_the_same_version_may_be_another(now_ms: int) -> None:
    """Versions begin anew with a node. By ``now_ms`` of 1 it says the same; it was made later all the same."""
    clock = count()
    store = MemoryStore(MemoryTree(lambda: next(clock)))
    await initialize(store, ROOT, random=Random(0))
    late, others = over(store), over(MemoryStore(store.tree))
    await others.mark(7, ["b0:3181"], now_ms=1)
    seen = await late.read(7)
    assert seen is not None
    new = await cleared_and_made_again(others, now_ms)

    assert not await late.clear(7, seen)

    assert await others.read(7) == new


async def test_a_server_that_lags_behind_has_no_mark_taken_for_the_one_before(
    store: MemoryStore,
) -> None:
    lagging, others = StandingStill(store.tree), over(store)
    seen = await others.mark(7, ["b0:3181"], now_ms=1)
    await lagging.stop()
    new = await cleared_and_made_again(others, now_ms=2)
    assert await over(lagging).read(7) == seen

    assert not await over(lagging).clear(7, seen)

    assert await others.read(7) == new


async def test_a_mark_that_is_made_behind_a_clearing_without_a_reply_is_not_taken_for_the_same(
    store: MemoryStore,
) -> None:
    """No lock keeps anybody from marking."""
    losing, others = ScriptedStore(store.tree), over(store)
    seen = await others.mark(7, ["b0:3181"], now_ms=1)
    lost = iter([Fault.LOST_REPLY])
    losing.fault = lambda operation, _: next(lost, None) if operation == "multi" else None

    async def mark_again(operation: str, _path: str) -> None:
        if operation == "sync" and await others.read(7) is None:
            await others.mark(7, ["b0:3181"], now_ms=2)

    losing.before = mark_again

    assert not await over(losing).clear(7, seen)

    assert await others.read(7) == replace(seen, marked_ms=2)


@pytest.mark.conformance("A10")
async def test_a_mark_is_made_while_the_one_before_is_cleared(store: MemoryStore) -> None:
    """Between its being read and its being written, with all folders."""
    other, marking = over(store), ScriptedStore(store.tree)
    mark = await other.mark(7, ["b0:3181"], now_ms=1)

    async def clear(operation: str, _path: str) -> None:
        if operation == "put":
            assert await other.clear(7, mark)

    marking.before = clear
    assert await over(marking).mark(7, ["b1:3181"], now_ms=2) == Mark(("b1:3181",), 2, 0)


async def test_two_who_mark_at_once_lose_nothing(store: MemoryStore) -> None:
    bookies = [f"b{number}:3181" for number in range(8)]

    await asyncio.gather(
        *(
            over(MemoryStore(store.tree), seed).mark(7, [bookie], now_ms=seed)
            for seed, bookie in enumerate(bookies)
        )
    )

    mark = await over(store).read(7)
    assert mark is not None
    assert sorted(mark.bookie_ids) == bookies


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_lost_message_of_a_clearing_neither_fails_it_nor_takes_a_later_mark(
    fault: Fault,
) -> None:
    async def attempt(lose: LoseNth) -> None:
        plain = MemoryStore()
        await initialize(plain, ROOT, random=Random(0))
        mark = await over(plain).mark(7, ["b0:3181"], now_ms=1)
        marks = over(MemoryStore(plain.tree, fault=lose))
        assert await marks.clear(7, mark)
        assert await over(plain).read(7) is None

    assert await every_mutation(attempt, fault) >= 1


# -- locks --------------------------------------------------------------------------------------------


@pytest.mark.conformance("A10")
async def test_one_at_a_time_mends_a_ledger(store: MemoryStore) -> None:
    first, second = over(store), over(MemoryStore(store.tree))
    lock = await first.try_lock(7, "b0:3181")
    assert lock is not None

    assert await second.try_lock(7, "b1:3181") is None
    assert await first.try_lock(7, "b0:3181") is None, "not twice by one either"
    assert await second.list_locked_ledgers() == {7}
    node = await store.get(Paths(ROOT).mark_lock(7))
    assert node is not None
    assert node.value == b'bookieId: "b0:3181"\n'

    await lock.release()
    taken = await second.try_lock(7, "b1:3181")
    assert taken is not None
    assert await first.list_locked_ledgers() == {7}


@pytest.mark.conformance("A10")
async def test_a_lock_goes_with_its_holder(store: MemoryStore) -> None:
    gone = MemoryStore(store.tree)
    assert await over(gone).try_lock(7, "b0:3181") is not None

    await gone.close()

    assert await over(store).try_lock(7, "b1:3181") is not None


async def test_a_lock_that_could_not_be_given_back_is_kept_in_mind_until_it_is(
    store: MemoryStore,
) -> None:
    faulty = MemoryStore(store.tree)
    marks = over(faulty)
    async with marks.lock(7, "b0:3181") as is_held:
        assert is_held
        faulty.fault = lambda operation, path: Fault.LOST_REQUEST if operation == "delete" else None
    with pytest.raises(MetadataUnavailableError):
        await marks.release_left()
    assert await over(store).list_locked_ledgers() == {7}

    faulty.fault = None
    await marks.release_left()

    assert await over(store).list_locked_ledgers() == set()


async def test_a_lock_whose_release_was_cancelled_is_given_back_later(store: MemoryStore) -> None:
    """One of eight that fails ends the others; a lock that they held stayed as long as their session."""
    slow = ScriptedStore(store.tree)
    marks = over(slow)
    arrived = asyncio.Event()

    async def hold() -> None:
        async with marks.lock(7, "b0:3181"):
            slow.before = never

    async def never(operation: str, path: str) -> None:
        arrived.set()
        await asyncio.Event().wait()

    holding = asyncio.create_task(hold())
    await arrived.wait()
    holding.cancel()
    with suppress(asyncio.CancelledError):
        await holding
    assert await over(store).list_locked_ledgers() == {7}

    slow.before = None
    await marks.release_left()

    assert await over(store).list_locked_ledgers() == set()


# -- whether, and when --------------------------------------------------------------------------------


@pytest.mark.conformance("A4")
async def test_it_is_disabled_for_all_and_enabled_again(store: MemoryStore) -> None:
    marks, other = over(store), over(MemoryStore(store.tree))
    seen: list[bool] = []
    await other.watch_enabled(seen.append)

    assert await marks.set_enabled(False)
    assert not await marks.set_enabled(False)
    assert not await other.is_enabled()
    await asyncio.sleep(0)
    assert await other.set_enabled(True)
    assert not await other.set_enabled(True)
    assert await marks.is_enabled()
    await asyncio.sleep(0)

    assert seen == [True, False, True]


@pytest.mark.conformance("A4")
async def test_while_it_is_disabled_marks_are_made_for_later_where_an_auditor_is(
    store: MemoryStore,
) -> None:
    """Bookies are restarted one by one then, and what a writer left out waited for the daily check."""
    marks = over(store)
    assert not await marks.is_attended()
    election = AuditorElection(store, ROOT, "b0:3181")
    await election.win()

    assert await marks.is_attended()
    await marks.set_enabled(False)
    assert await marks.is_attended()


@pytest.mark.conformance("A3")
async def test_a_delay_is_told_whenever_it_is_written(store: MemoryStore) -> None:
    marks = over(store)
    seen: list[int | None] = []
    await marks.watch_lost_bookie_delay(seen.append)

    for seconds in (60, 60, 0):
        await marks.set_lost_bookie_delay(seconds)
        await asyncio.sleep(0)

    assert seen == [None, 60, 60, 0]
    node = await store.get(Paths(ROOT).lost_bookie_delay)
    assert node is not None
    assert node.value == b"0"


@pytest.mark.parametrize("check", list(PeriodicCheck))
async def test_the_time_of_a_check_outlives_the_auditor(
    store: MemoryStore, check: PeriodicCheck
) -> None:
    marks = over(store)
    assert await marks.last_check_ms(check) is None

    for now_ms in (1_700_000_000_000, 1_700_000_000_001):
        await marks.note_check(check, now_ms)
        assert await over(MemoryStore(store.tree)).last_check_ms(check) == now_ms

    node = await store.get(Paths(ROOT).last_check(check))
    assert node is not None
    assert node.value[:1] == b"\x08", "Apache's is field 1, a varint"
