"""What no registration tells: copies that a writer left out, or that only look as if they were there."""

from __future__ import annotations

import asyncio

import pytest

from bookie_server.wire.messages import EntryList, Status
from bookkeeper_metadata.election import AuditorElection
from bookkeeper_metadata.errors import MetadataAccessError
from bookkeeper_metadata.paths import LedgerLayout, Paths, PeriodicCheck
from bookkeeper_metadata.store.operations import Node
from spark_bookkeeper.replication import checking
from spark_bookkeeper.replication.checking import CopyChecks, LedgerWalk, Walked, find_ledgers_of
from tests.doubles.bookies import FaultyClient
from tests.doubles.cluster import ROOT
from tests.doubles.waits import until, until_read
from tests.spark_bookkeeper.ledger.scene import Scene, numbers
from tests.spark_bookkeeper.replication.test_auditor import auditor_of, running, until_marked
from tests.spark_bookkeeper.replication.test_limbo_ends import SIZE, rot
from tests.spark_bookkeeper.replication.test_mending import assert_whole, write
from tests.spark_bookkeeper.replication.test_worker import marked, marks_of, worker_of

SHAPES = pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 1)], ids=["all", "striped"])


async def lacking(scene: Scene, by: str) -> set[str]:
    context = scene.cluster.client(7).cluster
    look = getattr(CopyChecks(context), by)
    return set(await look(scene.ledger_id, await scene.metadata()))


async def leave_out(scene: Scene, position: int) -> str:
    """One member never gets some entries in the middle of the ledger."""
    await scene.writer.append_many(numbers(9))
    await scene.settle_adds()
    scene.faults[position].drops_writes = True
    await scene.writer.append_many(numbers(9))
    await scene.settle_adds()
    scene.faults[position].drops_writes = False
    await write(scene, 9)
    return scene.ensemble[position]


@pytest.mark.conformance("A7")
@SHAPES
async def test_a_gap_in_the_middle_is_found_by_lists_and_not_by_ends(scene: Scene) -> None:
    bookie_id = await leave_out(scene, 1)

    assert await lacking(scene, "by_lists") == {bookie_id}
    assert await lacking(scene, "by_ends") == set()


@pytest.mark.parametrize("by", ["by_lists", "by_ends"])
async def test_a_member_that_was_forgotten_is_found(scene: Scene, by: str) -> None:
    """Its cookie was deleted by force: no auditor waits for it, and its copies were missed by nobody."""
    await write(scene, 20)
    forgotten = scene.ensemble[1]
    await scene.cluster.take_away(forgotten)
    assert await lacking(scene, by) == set(), "it may come back"

    await scene.cluster.cookies.delete(forgotten)

    assert await lacking(scene, by) == {forgotten}


@SHAPES
async def test_of_what_is_whole_nothing_is_said(scene: Scene) -> None:
    await write(scene, 20)

    assert await lacking(scene, "by_lists") == set()
    assert await lacking(scene, "by_ends") == set()


@pytest.mark.conformance("A7")
async def test_a_bookie_that_does_not_answer_is_not_said_to_lack_anything(scene: Scene) -> None:
    await write(scene, 5)
    (gone,) = scene.fail(0)

    assert await lacking(scene, "by_lists") == set()
    assert await lacking(scene, "by_ends") == set()
    scene.cluster.set_faults(gone, is_dead=False)
    scene.cluster.bookies[gone].storage.contents.suspect_everything()
    assert await lacking(scene, "by_lists") == set(), "it does not know, and may have it"


@pytest.mark.conformance("A6")
async def test_a_last_entry_that_cannot_be_read_is_found_by_ends_alone(scene: Scene) -> None:
    await scene.writer.append_many([b"x" * SIZE] * 3)
    await scene.settle_adds()
    await scene.writer.close()
    await rot(scene, scene.ensemble[0], 3, part=3)

    assert await lacking(scene, "by_lists") == set()
    assert await lacking(scene, "by_ends") == {scene.ensemble[0]}
    # From then on the bookie says so itself, and gets another copy.
    assert await lacking(scene, "by_lists") == {scene.ensemble[0]}


async def test_the_fragment_of_a_writer_that_goes_on_is_left_alone(scene: Scene) -> None:
    scene.faults[0].drops_writes = True
    await scene.writer.append_many(numbers(5))

    assert await lacking(scene, "by_lists") == set()
    assert await lacking(scene, "by_ends") == set()


@pytest.mark.conformance("A6", "A7")
async def test_an_auditor_finds_it_at_first_and_then_no_sooner_than_is_set(scene: Scene) -> None:
    await leave_out(scene, 1)

    async with running(auditor_of(scene.cluster)):
        await until_marked(scene, scene.ledger_id)
        done = marks_of(scene).last_check_ms
        await until_read(lambda: done(PeriodicCheck.ALL_LEDGERS), lambda ms: ms == 7)
    assert await done(PeriodicCheck.REPLICAS) == 7
    assert await worker_of(scene).look() == 1
    await assert_whole(scene)
    await leave_another(scene)
    second = auditor_of(scene.cluster, "b")
    async with running(second):
        await until(lambda: second._measures.is_auditor)
        await asyncio.sleep(0.1)
        assert await marked(scene) == []


async def test_a_check_that_no_bookie_answers_is_not_made(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """As without a certificate: it was noted as made, so that the next one came a day later, and a week later."""
    await leave_out(scene, 1)
    done = marks_of(scene).last_check_ms
    for bookie_id in scene.ensemble:
        scene.cluster.set_faults(bookie_id, is_dead=True)

    async with running(auditor_of(scene.cluster)):
        await until(lambda: "no bookie answers. by=all_ledgers" in caplog.text)
    assert await done(PeriodicCheck.REPLICAS) is await done(PeriodicCheck.ALL_LEDGERS) is None

    for bookie_id in scene.ensemble[1:]:
        scene.cluster.set_faults(bookie_id, is_dead=False)
    async with running(auditor_of(scene.cluster, "b")):
        await until_marked(scene, scene.ledger_id)
        await until_read(lambda: done(PeriodicCheck.ALL_LEDGERS), lambda ms: ms == 7)
    assert f"by=replicas silent=['{scene.ensemble[0]}']" in caplog.text


@pytest.mark.parametrize("status", [Status.UNREACHABLE, Status.UNAUTHORIZED])
async def test_a_check_that_is_answered_no_more_behind_its_first_ledger_is_not_made(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, status: Status
) -> None:
    """One answer of each bookie was enough: a network that was cut a second later hid all that lacked anything."""
    await leave_out(scene, 1)
    await leave_another(scene)
    asked = list[int]()

    async def first_only(self: FaultyClient, ledger_id: int) -> EntryList:
        asked.append(ledger_id)
        is_first = len(asked) <= len(scene.ensemble)
        return EntryList(Status.NO_LEDGER) if is_first else EntryList(status)

    monkeypatch.setattr(FaultyClient, "list_entries", first_only)
    monkeypatch.setattr(checking, "LEDGERS_AT_ONCE", 1)
    async with running(auditor_of(scene.cluster)):
        await until(lambda: "no bookie answers. by=replicas" in caplog.text)
    assert len(set(asked)) > 1
    assert await marks_of(scene).last_check_ms(PeriodicCheck.REPLICAS) is None


async def test_who_answered_one_check_may_be_silent_in_the_next(scene: Scene) -> None:
    await write(scene, 9)
    checks = CopyChecks(scene.cluster.client(7).cluster)
    await checks.by_lists(scene.ledger_id, await scene.metadata())
    assert (checks.is_unheard, checks.silent) == (False, set())
    for bookie_id in scene.ensemble:
        scene.cluster.set_faults(bookie_id, is_dead=True)

    checks.begin()
    assert not checks.is_unheard
    await checks.by_lists(scene.ledger_id, await scene.metadata())
    assert (checks.is_unheard, checks.silent) == (True, set(scene.ensemble))


async def leave_another(scene: Scene) -> None:
    """A ledger with a gap."""
    writer = await scene.client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    left_out = writer.metadata.last_fragment.ensemble[0]
    scene.cluster.faults[left_out].drops_writes = True
    await writer.append_many(numbers(3))
    await scene.settle_adds()
    scene.cluster.faults[left_out].drops_writes = False
    await writer.close()


async def test_a_time_that_nobody_understands_keeps_no_check_from_being_made(scene: Scene) -> None:
    await leave_out(scene, 1)
    path = Paths(ROOT).last_check(PeriodicCheck.REPLICAS)
    await scene.cluster.store.create(path, b"\xff", make_parents=True)

    async with running(auditor_of(scene.cluster)):
        await until_marked(scene, scene.ledger_id)


async def test_a_ledger_that_nobody_understands_keeps_no_other_unmarked(scene: Scene) -> None:
    await leave_out(scene, 1)
    other = await scene.client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    store = scene.cluster.store
    path = Paths(ROOT).ledger(other.ledger_id, LedgerLayout.HIERARCHICAL)
    node = await store.get(path)
    assert isinstance(node, Node)
    await store.put(path, b"rubbish", node.version)
    context = scene.cluster.client(7).cluster

    walk = LedgerWalk(context, marks_of(scene), lambda: 9)
    assert await walk.mark_lacking(CopyChecks(context).by_lists) == Walked(1)

    assert await marked(scene) == [scene.ledger_id]


async def test_what_its_user_may_not_see_keeps_no_other_ledger_unmarked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that names nobody else in its ACLs, or a folder that somebody made, ended every audit."""
    await leave_out(scene, 1)
    other = await scene.client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    context = scene.cluster.client(7).cluster
    store = context.store
    hidden = Paths(ROOT).ledger(other.ledger_id, LedgerLayout.HIERARCHICAL)
    folder = f"{ROOT}/77"
    await scene.cluster.store.create(f"{folder}/0000", b"", make_parents=True)
    get, children = store.get, store.children

    def refuse(path: str) -> None:
        if path in (hidden, folder):
            raise MetadataAccessError("not allowed", path, "me", "zk")

    async def guarded_get(path: str) -> Node | None:
        refuse(path)
        return await get(path)

    async def guarded_children(path: str) -> list[str] | None:
        refuse(path)
        return await children(path)

    monkeypatch.setattr(store, "get", guarded_get)
    monkeypatch.setattr(store, "children", guarded_children)
    walk = LedgerWalk(context, marks_of(scene), lambda: 9)

    assert await walk.mark_lacking(CopyChecks(context).by_lists) == Walked(1)
    assert await marked(scene) == [scene.ledger_id]
    # Whoever is about to take a bookie out must know all of its ledgers.
    with pytest.raises(MetadataAccessError):
        await find_ledgers_of(context, "b1")


# -- a writer that went on without a member -----------------------------------------------------------


async def go_on_without_one(scene: Scene) -> None:
    """No other bookie can take its place, and an ack quorum is left."""
    await scene.writer.append_many(numbers(3))
    scene.cluster.set_faults(scene.ensemble[2], write_status=Status.UNKNOWN)
    await scene.writer.append_many(numbers(3))
    await until_read(lambda: _missed(scene), bool)
    await scene.writer.close()
    scene.cluster.set_faults(write_status=None)


async def _missed(scene: Scene) -> frozenset[str]:
    return scene.writer.bookies_missed


async def test_a_writer_marks_what_a_member_missed_as_it_closes(scene: Scene) -> None:
    await AuditorElection(scene.cluster.store, ROOT, "somebody").win()
    missed = scene.ensemble[2]

    await go_on_without_one(scene)

    mark = await marks_of(scene).read(scene.ledger_id)
    assert mark is not None
    assert mark.bookie_ids == (missed,)
    assert await worker_of(scene).look() == 1
    await assert_whole(scene)


async def test_where_nobody_mends_it_leaves_no_marks_behind(scene: Scene) -> None:
    await go_on_without_one(scene)

    assert await marked(scene) == []


async def test_a_writer_whose_members_missed_nothing_marks_nothing(scene: Scene) -> None:
    await AuditorElection(scene.cluster.store, ROOT, "somebody").win()
    await write(scene, 5)

    assert await marked(scene) == []
