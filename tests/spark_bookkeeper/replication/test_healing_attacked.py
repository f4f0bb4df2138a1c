"""What adversaries found in auto-recovery: it stays found."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bookie_server.wire.messages import IdRange, Status
from bookkeeper_metadata.election import AuditorElection
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.paths import Paths
from spark_bookkeeper.replication.checking import CopyChecks
from spark_bookkeeper.replication.lost_bookies import Patience
from spark_bookkeeper.replication.mending import LedgerMender
from tests.doubles.cluster import ROOT
from tests.spark_bookkeeper.ledger.scene import Scene, numbers
from tests.spark_bookkeeper.replication.test_auditor import auditor_of
from tests.spark_bookkeeper.replication.test_limbo_ends import integrity_of, limbo_of, look
from tests.spark_bookkeeper.replication.test_mending import assert_whole, lose, mend, write
from tests.spark_bookkeeper.replication.test_worker import marked, marks_of, worker_of

FIVE = pytest.mark.cluster(bookies=5)


async def another_ledger(scene: Scene) -> int:
    """On the bookies of the scene's."""
    writer = await scene.client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await writer.append_many(numbers(3))
    await scene.settle_adds()
    await writer.close()
    return writer.ledger_id


async def test_one_mark_that_nobody_understands_stops_neither_auditor_nor_worker(
    scene: Scene,
) -> None:
    await write(scene, 3)
    other = await another_ledger(scene)
    lost = scene.ensemble[0]
    path = Paths(ROOT).mark(scene.ledger_id)
    await scene.cluster.store.create(path, b"\xffrubbish{", make_parents=True)
    await lose(scene, lost)

    assert (await auditor_of(scene.cluster).audit([lost])).marked == 1

    await scene.cluster.bring_back(lost)
    assert await worker_of(scene).look() == 1
    assert await marked(scene) == [scene.ledger_id], "left for an operator to look at"
    assert other != scene.ledger_id


@FIVE
async def test_a_bookie_that_is_waited_for_keeps_its_places_whoever_marked_the_ledger(
    scene: Scene,
) -> None:
    """A rolling restart moved every ledger that was closed meanwhile."""
    await write(scene, 20)
    away = scene.ensemble[1]
    await lose(scene, away)
    context = scene.cluster.client(7).cluster
    mender = LedgerMender(context, LoopPace(0), patience=Patience(600))

    mended = await mender.mend(scene.ledger_id)

    assert mended.left == [f"{away} is away, and waited for"]
    assert mended.replaced == []
    assert mended.open_fragment is None
    # Two at once are no restart.
    await lose(scene, scene.ensemble[2])
    mender.look_around()
    assert (await mender.mend(scene.ledger_id)).is_whole
    await assert_whole(scene)


@FIVE
async def test_the_idle_writer_of_a_bookie_that_is_waited_for_is_not_ended(scene: Scene) -> None:
    await scene.writer.append_many(numbers(3))
    await lose(scene, scene.ensemble[0])
    context = scene.cluster.client(7).cluster

    mended = await LedgerMender(context, LoopPace(0), patience=Patience(600)).mend(scene.ledger_id)

    assert mended.open_fragment is None


def test_patience_ends_and_begins_anew_for_one_that_was_back() -> None:
    patience = Patience(10)

    assert patience.waited_for({"a"}, 0) == {"a"}
    assert patience.waited_for({"a"}, 9.9) == {"a"}
    assert patience.waited_for({"a"}, 10) == set()
    assert patience.waited_for(set(), 11) == set()
    assert patience.waited_for({"a"}, 12) == {"a"}
    assert patience.waited_for({"a", "b"}, 13) == set()


@FIVE
@pytest.mark.parametrize("status", [Status.UNREACHABLE, Status.UNKNOWN, Status.BUSY])
async def test_a_member_that_fails_once_does_not_lose_all_it_has(
    scene: Scene, status: Status
) -> None:
    scene.faults[1].drops_writes = True
    await scene.writer.append_many(numbers(1))
    scene.faults[1].drops_writes = False
    await write(scene, 50)
    member = scene.ensemble[1]
    scene.cluster.faults[member].write_status = status

    mended = await mend(scene)

    assert mended.left == [f"{member} answered {status.name}"]
    assert mended.replaced == []
    scene.cluster.faults[member].write_status = None
    assert (await mend(scene)).is_whole
    await assert_whole(scene)


async def test_a_mark_made_for_others_does_not_keep_a_bookie_in_limbo(scene: Scene) -> None:
    await write(scene, 20)
    doubtful, _, lost = scene.ensemble
    scene.cluster.bookies[doubtful].storage.contents.set_limbo([scene.ledger_id])
    await marks_of(scene).mark(scene.ledger_id, [doubtful, lost], now_ms=1)
    await lose(scene, lost)

    assert await look(await integrity_of(scene, doubtful)) == 1

    assert limbo_of(scene, doubtful) == []
    assert await marked(scene) == [scene.ledger_id]


async def test_of_an_open_ledger_in_limbo_nothing_is_read(scene: Scene) -> None:
    """Its complete fragments were, at every look."""
    await scene.writer.append_many(numbers(20))
    await scene.settle_adds()
    doubtful = scene.ensemble[0]
    bookie = scene.cluster.bookies[doubtful]
    bookie.storage.contents.set_limbo([scene.ledger_id])
    check = await integrity_of(scene, doubtful)
    reads = 0
    verify = bookie.verifier.verify

    async def counted(*asked: object) -> object:
        nonlocal reads
        reads += 1
        return await verify(*asked)  # type: ignore[arg-type]

    bookie.verifier.verify = counted  # type: ignore[method-assign, assignment]
    for _ in range(3):
        assert await look(check) == 0

    assert reads == 0


async def test_a_recovery_leaves_a_mark_for_it_waits_for_no_more_than_an_ack_quorum(
    scene: Scene,
) -> None:
    await AuditorElection(scene.cluster.store, ROOT, "somebody").win()
    scene.faults[2].drops_writes = True
    await scene.writer.append_many(numbers(20))
    await scene.settle_adds()
    scene.faults[2].drops_writes = False

    await scene.recover()

    assert await marked(scene) == [scene.ledger_id]
    assert await worker_of(scene).look() == 1
    await assert_whole(scene)


async def test_a_copy_with_a_wrong_digest_is_said_and_not_called_mended(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    await write(scene, 3)
    liar = scene.ensemble[0]

    def spoil(reply: object) -> object:
        runs = tuple(
            replace(run, data=bytes(run.data[:-1]) + b"!")
            for run in reply.runs  # type: ignore[attr-defined]
        )
        return replace(reply, runs=runs)  # type: ignore[type-var]

    scene.cluster.faults[liar].alter_read = spoil  # type: ignore[assignment]
    context = scene.cluster.client(7).cluster

    found = await CopyChecks(context).by_ends(scene.ledger_id, await scene.metadata())

    assert found == set()
    assert f"does not match its digest. ledger_id={scene.ledger_id} entry_id=0" in caplog.text


async def test_a_list_of_many_places_comes_in_pages(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a large ledger kept the bookie from all else for seconds, and its client gave up."""
    monkeypatch.setattr("bookie_server.reads.reader._LIST_PLACES_MAX", 2)
    for _ in range(5):
        await scene.writer.append_many(numbers(3))
    await scene.settle_adds()
    await scene.writer.close()
    bookie_id = scene.ensemble[0]
    client = scene.cluster.client(9).cluster.client(bookie_id)

    page = await client.list_page(scene.ledger_id, 0)
    listed = await client.list_entries(scene.ledger_id)

    assert page.next_entry > 0
    held = [
        entry_id
        for part in listed.held
        for entry_id in range(part.first_entry, part.last_entry + 1)
    ]
    assert held == list(range(15))
    assert listed.status is Status.OK
    assert IdRange(0, 14, Status.OK) not in page.held
    await asyncio.sleep(0)
