"""The auditor marks the ledgers that name a lost bookie, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from bookkeeper_metadata.election import AuditorElection
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.replication.auditor import Auditor
from spark_bookkeeper.replication.settings import ReplicationSettings
from tests.doubles.cluster import ROOT, InProcessCluster
from tests.doubles.waits import until_read
from tests.spark_bookkeeper.ledger.scene import Scene
from tests.spark_bookkeeper.replication.test_worker import marked, marks_of

FIVE = pytest.mark.cluster(bookies=5)


def auditor_of(cluster: InProcessCluster, name: str = "a", **settings: int) -> Auditor:
    """With a metadata session of its own."""
    store = MemoryStore(cluster.store.tree)
    return Auditor(
        cluster.client(5, store).cluster,
        Underreplication(store, ROOT, random=Random(5)),
        AuditorElection(store, ROOT, name),
        settings=ReplicationSettings(**settings),
        clock_ms=lambda: 7,
    )


@asynccontextmanager
async def running(*auditors: Auditor) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(auditor.run()) for auditor in auditors]
    try:
        await asyncio.sleep(0.02)
        yield
        assert not any(task.done() for task in tasks)
    finally:
        await end_tasks(tasks)
        # With its session goes its vote: another one may be elected.
        for auditor in auditors:
            await auditor._cluster.store.close()


async def until_marked(scene: Scene, *ledger_ids: int) -> None:
    await until_read(lambda: marked(scene), lambda found: found == sorted(ledger_ids))


async def other_ledgers(scene: Scene, without: str) -> list[int]:
    """Ledgers on none of whose places this bookie is."""
    found: list[int] = []
    while len(found) < 3:
        ledger = await scene.client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        if without not in ledger.metadata.last_fragment.ensemble:
            found.append(ledger.ledger_id)
        else:
            await scene.client.cluster.ledgers.delete(ledger.ledger_id)
    return found


@pytest.mark.conformance("A1")
@FIVE
async def test_the_ledgers_of_a_lost_bookie_are_marked_and_no_others(scene: Scene) -> None:
    lost = scene.ensemble[1]
    await other_ledgers(scene, lost)

    async with running(auditor_of(scene.cluster)):
        await scene.cluster.take_away(lost)
        await until_marked(scene, scene.ledger_id)

    mark = await marks_of(scene).read(scene.ledger_id)
    assert mark is not None
    assert (mark.bookie_ids, mark.marked_ms) == ((lost,), 7)


@pytest.mark.conformance("A1")
@FIVE
async def test_a_bookie_that_was_lost_before_the_auditor_began_is_known_by_its_cookie(
    scene: Scene,
) -> None:
    await scene.cluster.take_away(scene.ensemble[0])

    async with running(auditor_of(scene.cluster)):
        await until_marked(scene, scene.ledger_id)


@pytest.mark.conformance("A1", "A3")
@FIVE
async def test_a_quick_restart_marks_nothing(scene: Scene) -> None:
    async with running(auditor_of(scene.cluster, lost_bookie_delay_ms=200)):
        await scene.cluster.take_away(scene.ensemble[0])
        await asyncio.sleep(0.05)
        await scene.cluster.bring_back(scene.ensemble[0])
        await asyncio.sleep(0.3)
        assert await marked(scene) == []


@pytest.mark.conformance("A3")
@FIVE
async def test_a_pending_audit_is_triggered_by_writing_the_delay(scene: Scene) -> None:
    async with running(auditor_of(scene.cluster, lost_bookie_delay_ms=3_600_000)):
        await scene.cluster.take_away(scene.ensemble[0])
        await asyncio.sleep(0.05)
        assert await marked(scene) == []
        await marks_of(scene).set_lost_bookie_delay(0)
        await until_marked(scene, scene.ledger_id)


@pytest.mark.conformance("A2")
@FIVE
async def test_a_bookie_that_only_serves_reads_is_not_lost_until_it_dies(scene: Scene) -> None:
    bookie_id = scene.ensemble[0]
    store, paths = scene.cluster.store, Paths(ROOT)

    async with running(auditor_of(scene.cluster)):
        readonly = await store.ephemeral(paths.bookie(bookie_id, readonly=True), b"")
        await scene.cluster.registrations[bookie_id].withdraw()
        await asyncio.sleep(0.1)
        assert await marked(scene) == []
        await readonly.withdraw()
        await until_marked(scene, scene.ledger_id)


@pytest.mark.conformance("A4")
@FIVE
async def test_nothing_is_marked_while_auto_recovery_is_disabled(scene: Scene) -> None:
    await marks_of(scene).set_enabled(False)

    async with running(auditor_of(scene.cluster)):
        await scene.cluster.take_away(scene.ensemble[0])
        await asyncio.sleep(0.1)
        assert await marked(scene) == []
        await marks_of(scene).set_enabled(True)
        await until_marked(scene, scene.ledger_id)


@pytest.mark.conformance("A5")
@FIVE
async def test_the_next_auditor_goes_on_where_the_first_was_lost(scene: Scene) -> None:
    first, second = auditor_of(scene.cluster, "first"), auditor_of(scene.cluster, "second")
    async with running(first, second):
        first._cluster.store.expire()  # type: ignore[attr-defined]
        await scene.cluster.take_away(scene.ensemble[0])
        await until_marked(scene, scene.ledger_id)


@FIVE
async def test_a_bookie_that_came_back_meanwhile_is_not_lost(scene: Scene) -> None:
    assert (await auditor_of(scene.cluster).audit(scene.ensemble)).marked == 0
    assert await marked(scene) == []


@FIVE
async def test_a_ledger_that_nobody_understands_keeps_no_other_unmarked(scene: Scene) -> None:
    broken = (await scene.client.create_ledger()).ledger_id
    path = Paths(ROOT).ledger(broken)
    node = await scene.cluster.store.get(path)
    assert node is not None
    await scene.cluster.store.put(path, b"garbage", node.version)
    await scene.cluster.take_away(scene.ensemble[0])

    assert (await auditor_of(scene.cluster).audit([scene.ensemble[0]])).marked == 1
    assert await marked(scene) == [scene.ledger_id]
