"""Copies too many are dropped; one that anybody may count on never is, whatever the metadata does meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from bookie_server.collection import surplus as surplus_module
from bookie_server.core.space import Disk
from bookie_server.wire.messages import EntryList, IdRange, ListRequest, Status
from bookkeeper_metadata.errors import MetadataUnavailableError, NoSuchLedgerError
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.store.operations import Node
from tests.bookie_server.collection.surplus_scene import (
    CLOSED,
    MEMBER,
    OTHER,
    OTHERS,
    OWN,
    ROOT,
    Scene,
    scene,
)
from tests.doubles.bookies import FaultyClient
from tests.doubles.records import add, section
from tests.doubles.stores import LoseNth, ScriptedStore, every_mutation, losing_at_random
from tests.doubles.waits import pass_turns, until

__all__ = ["scene"]


async def test_a_closed_ledger_of_others_is_dropped_and_fenced(scene: Scene) -> None:
    ledger_id = await scene.make()
    before = (await scene.ledgers.read(ledger_id)).version

    assert await scene.dropper().drop() == 1

    assert not scene.bookie.holds_entries(ledger_id)
    assert scene.bookie.storage.contents.ledgers[ledger_id].is_fenced
    assert scene.bookie.measures.dropped_ledgers == 1
    after = await scene.ledgers.read(ledger_id)
    assert after.version == before + 1, "nobody may name this bookie from what was read before"
    assert replace(after.metadata, writer_token=0) == replace(
        CLOSED, writer_token=0, created_ms=after.metadata.created_ms
    )
    assert await scene.marks.list_locked_ledgers() == set()
    assert await scene.dropper().drop() == 0


async def test_it_may_come_again_and_stays_then(scene: Scene) -> None:
    ledger_id = await scene.make()
    await scene.dropper().drop()

    assert await scene.send_copy(ledger_id) is Status.OK

    assert scene.bookie.holds_entries(ledger_id)
    assert await add(scene.bookie, section([b"y"], 1, ledger_id=ledger_id)) is Status.FENCED


@pytest.mark.parametrize(
    "metadata",
    [
        OTHERS,
        OTHERS.in_recovery(),
        replace(CLOSED, fragments=(Fragment(0, (OWN,)),)),
        replace(CLOSED, fragments=(Fragment(0, (OWN,)), Fragment(1, (MEMBER,)))),
        replace(CLOSED, fragments=(Fragment(0, (OTHER,)),)),
    ],
    ids=["open", "in recovery", "own", "own at first", "of a bookie that is away"],
)
async def test_what_may_be_counted_on_is_kept(scene: Scene, metadata: LedgerMetadata) -> None:
    ledger_id = await scene.make(metadata)

    assert await scene.dropper().drop() == 0

    assert scene.bookie.holds_entries(ledger_id)
    assert (await scene.ledgers.read(ledger_id)).version == 0


@pytest.mark.parametrize("trouble", ["lacks an entry", "has no such ledger", "is silent"])
async def test_what_a_member_does_not_show_is_kept(scene: Scene, trouble: str) -> None:
    """A restored copy of the metadata names the bookies of its time, which may have dropped their copies since."""
    two = replace(CLOSED, last_entry=1, length=2) if trouble == "lacks an entry" else CLOSED
    ledger_id = await scene.make(two)
    if trouble == "has no such ledger":
        assert await scene.member.delete([(ledger_id, ledger_id)]) is Status.OK
    scene.faults.is_dead = trouble == "is silent"

    assert await scene.dropper().drop() == 0

    assert scene.bookie.holds_entries(ledger_id)
    assert (await scene.ledgers.read(ledger_id)).version == 0


async def test_each_part_of_what_a_member_should_hold_counts(scene: Scene) -> None:
    """It has the last fragment, and nothing of the one before."""
    two = replace(OTHERS, fragments=(Fragment(0, (MEMBER,)), Fragment(1, (MEMBER,)))).in_recovery()
    ledger_id, _ = await scene.ledgers.create(two.closed(1, 2))
    assert await add(scene.bookie, section([b"x", b"y"], ledger_id=ledger_id)) is Status.OK
    last = section([b"y"], 1, ledger_id=ledger_id, length_before=1)
    assert await add(scene.member, last) is Status.OK
    scene.rest()

    assert await scene.dropper().drop() == 0


async def test_entries_behind_the_end_of_their_ledger_are_kept(scene: Scene) -> None:
    """It was ended in error, it may be, by somebody whose metadata was a restored copy: these are the only copies."""
    ledger_id = await scene.make(OTHERS.in_recovery().closed(-1, 0))

    assert await scene.dropper().drop() == 0
    assert scene.bookie.holds_entries(ledger_id)


async def test_what_is_not_known_of_one_ledger_keeps_no_other(scene: Scene) -> None:
    made = [await scene.make() for _ in range(6)]
    over = MemoryStore(scene.store.tree)
    lost = iter([Fault.LOST_REPLY])
    over.fault = lambda operation, path: next(lost, None) if operation == "put" else None

    assert await scene.dropper(over).drop() == 5
    assert sum(map(scene.bookie.holds_entries, made)) == 1


async def test_a_ledger_that_is_deleted_meanwhile_keeps_no_other(scene: Scene) -> None:
    first, *_ = made = [await scene.make() for _ in range(3)]
    over = ScriptedStore(scene.store.tree)

    async def delete(operation: str, path: str) -> None:
        if operation == "put":
            over.before = None
            with suppress(NoSuchLedgerError):
                await scene.ledgers.delete(first)

    over.before = delete

    assert await scene.dropper(over).drop() >= 2
    assert not any(scene.bookie.holds_entries(each) for each in made[1:])


async def test_a_member_in_limbo_that_has_everything_is_enough(scene: Scene) -> None:
    ledger_id = await scene.make()
    scene.member.storage.contents.set_limbo([ledger_id])

    assert await scene.dropper().drop() == 1


async def test_a_member_that_only_serves_reads_is_enough(scene: Scene) -> None:
    """Its disk is full, it may be: of all bookies those need the copies of others to go."""
    ledger_id = await scene.make()
    await scene.make_readonly(MEMBER)

    assert await scene.dropper().drop() == 1
    assert not scene.bookie.holds_entries(ledger_id)


@pytest.mark.parametrize("is_cut_short", [False, True])
async def test_no_connection_outlives_its_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_cut_short: bool
) -> None:
    """A bookie looks every day, and is not stopped for months."""
    monkeypatch.setattr(surplus_module, "_BATCH", 2)
    await scene.make(count=5)
    over = MemoryStore(scene.store.tree)
    if is_cut_short:
        over.fault = lambda operation, _: Fault.LOST_REQUEST if operation == "ephemeral" else None

    with suppress(MetadataUnavailableError):
        await scene.dropper(over).drop()

    assert len(scene.connections) == (1 if is_cut_short else 3)
    assert all(each.is_closed for each in scene.connections)


async def test_what_was_damaged_of_a_dropped_ledger_is_forgotten(scene: Scene) -> None:
    """It may come again, and then it would not be listed though it is there."""
    ledger_id = await scene.make()
    scene.bookie.verifier._damaged.add(ledger_id, [0])

    assert await scene.dropper().drop() == 1

    assert scene.bookie.verifier.damaged_count == 0
    assert await scene.send_copy(ledger_id) is Status.OK
    assert scene.bookie.list_entries(ListRequest(ledger_id)).held == (IdRange(0, 0, Status.OK),)


async def test_a_marked_ledger_is_kept_and_one_that_somebody_mends(scene: Scene) -> None:
    marked, locked = await scene.make(), await scene.make()
    await scene.marks.mark(marked, [MEMBER], now_ms=0)
    async with scene.marks.lock(locked, "a worker"):
        assert await scene.dropper().drop() == 0

    assert scene.bookie.holds_entries(marked)
    assert scene.bookie.holds_entries(locked)


async def test_a_ledger_in_limbo_is_kept_and_one_that_is_in_no_log_yet(scene: Scene) -> None:
    limbo = await scene.make()
    scene.bookie.storage.contents.set_limbo([limbo])
    fresh = (await scene.ledgers.create(CLOSED))[0]
    for bookie in (scene.bookie, scene.member):
        assert await add(bookie, section([b"x"], ledger_id=fresh)) is Status.OK

    assert await scene.dropper().drop() == 0
    assert scene.bookie.holds_entries(limbo)
    assert scene.bookie.holds_entries(fresh)
    scene.rest()
    assert await scene.dropper().drop() == 1
    assert not scene.bookie.holds_entries(fresh)


async def test_an_unknown_or_unreadable_ledger_is_nobodys_to_drop(scene: Scene) -> None:
    unknown = 5_000
    assert await add(scene.bookie, section([b"x"], ledger_id=unknown)) is Status.OK
    corrupt, surplus = await scene.make(), await scene.make()
    paths = Paths(ROOT)
    path = next(each for each in scene.store.tree.paths() if paths.ledger_id(each) == corrupt)
    await scene.store.put(path, b"rubbish", 0)

    assert await scene.dropper().drop() == 1

    assert not scene.bookie.holds_entries(surplus)
    assert scene.bookie.holds_entries(unknown)
    assert scene.bookie.holds_entries(corrupt)


async def test_who_names_the_bookie_at_the_last_moment_wins(scene: Scene) -> None:
    ledger_id = await scene.make()
    over = ScriptedStore(scene.store.tree)

    async def name_it(operation: str, path: str) -> None:
        if operation == "put":
            over.before = None
            await scene.ledgers.update(
                ledger_id, lambda known: replace(known, fragments=(Fragment(0, (OWN,)),))
            )

    over.before = name_it

    assert await scene.dropper(over).drop() == 0
    assert scene.bookie.holds_entries(ledger_id)


async def test_an_old_answer_drops_nothing(scene: Scene) -> None:
    """A follower that lags behind says that others have the ledger; by now this bookie is named."""
    ledger_id = await scene.make()
    paths = Paths(ROOT)
    path = next(each for each in scene.store.tree.paths() if paths.ledger_id(each) == ledger_id)
    old = await scene.store.get(path)
    await scene.ledgers.update(
        ledger_id, lambda known: replace(known, fragments=(Fragment(0, (OWN,)),))
    )
    over = ScriptedStore(scene.store.tree)

    def answer(asked: str, node: Node | None) -> Node | None:
        return old if asked == path else node

    over.answer = answer

    assert await scene.dropper(over).drop() == 0
    assert scene.bookie.holds_entries(ledger_id)


async def test_no_copy_is_taken_between_the_metadatas_answer_and_the_drop(scene: Scene) -> None:
    """Its sender would name the bookie for what is about to go."""
    ledger_id = await scene.make()
    over = ScriptedStore(scene.store.tree)
    answers: list[Status] = []

    async def send(operation: str, path: str) -> None:
        if operation == "put":
            answers.append(await scene.send_copy(ledger_id))

    over.before = send

    assert await scene.dropper(over).drop() == 1
    assert answers == [Status.LIMBO]
    assert await scene.send_copy(ledger_id) is Status.OK, "and it is, as soon as that is over"


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY])
async def test_a_lost_reply_drops_nothing_that_it_should_not(scene: Scene, fault: Fault) -> None:
    async def attempt(lose: LoseNth) -> None:
        ledger_id = await scene.make()
        dropper = scene.dropper(MemoryStore(scene.store.tree, fault=lose))
        with suppress(MetadataUnavailableError):
            await dropper.drop()
        assert await scene.send_copy(ledger_id) is Status.OK, "nothing is suspected any more"
        scene.rest()
        for _ in range(2):
            with suppress(MetadataUnavailableError):
                await dropper._marks.release_left()
                await dropper.drop()
        assert not scene.bookie.holds_entries(ledger_id)
        assert await scene.marks.list_locked_ledgers() == set()

    assert await every_mutation(attempt, fault) >= 3


async def test_on_a_disk_without_room_for_a_word_nothing_is_dropped(scene: Scene) -> None:
    ledger_id = await scene.make()
    scene.bookie.on_look(scene.bookie.begin_look(), [Disk(0, has_journals=True, has_ledgers=True)])

    assert await scene.dropper().drop() == 0
    assert scene.bookie.holds_entries(ledger_id)


async def test_many_are_looked_at_in_batches(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surplus_module, "_BATCH", 3)
    await scene.make(count=7)
    kept = await scene.make(OTHERS)

    assert await scene.dropper().drop() == 7
    assert [each for each in scene.bookie.held_ledgers if scene.bookie.holds_entries(each)] == [
        kept
    ]


async def test_a_member_that_hangs_is_waited_for_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.make(count=300)
    asked: list[int] = []

    async def hang(client: FaultyClient, ledger_id: int, _: int) -> EntryList:
        asked.append(ledger_id)
        await pass_turns(20)
        return EntryList(Status.UNREACHABLE)

    monkeypatch.setattr(FaultyClient, "list_page", hang)

    assert await scene.dropper().drop() == 0

    assert len(asked) <= surplus_module._READS_IN_FLIGHT


async def test_it_looks_at_every_interval_while_the_metadata_is_believed(scene: Scene) -> None:
    first = await scene.make()
    believed, asked = False, 0

    def is_believed() -> bool:
        nonlocal asked
        asked += 1
        return believed

    dropper = scene.dropper()
    running = asyncio.create_task(dropper.run(interval_ms=1, is_metadata_believed=is_believed))
    await until(lambda: asked > 3 or not scene.bookie.holds_entries(first))
    assert scene.bookie.holds_entries(first)

    believed = True
    await until(lambda: not scene.bookie.holds_entries(first))
    second = await scene.make()
    await until(lambda: not scene.bookie.holds_entries(second))

    await end_tasks([running])


async def test_a_look_that_fails_is_followed_by_another(scene: Scene) -> None:
    ledger_id = await scene.make()
    dropper = scene.dropper(MemoryStore(scene.store.tree, fault=losing_at_random(Random(1), 0.3)))
    running = asyncio.create_task(dropper.run(interval_ms=1, is_metadata_believed=lambda: True))

    await until(lambda: not scene.bookie.holds_entries(ledger_id))

    await end_tasks([running])


async def test_it_waits_for_a_collection_that_suspects_ledgers(scene: Scene) -> None:
    ledger_id = await scene.make()
    async with scene.bookie.suspicion:
        await scene.bookie.suspect([5_000])
        looking = asyncio.create_task(scene.dropper().drop())
        await pass_turns(500)
        assert await add(scene.bookie, section([b"x"], ledger_id=5_000)) is Status.LIMBO
        assert scene.bookie.holds_entries(ledger_id)
        await scene.bookie.suspect(())

    assert await looking == 1
