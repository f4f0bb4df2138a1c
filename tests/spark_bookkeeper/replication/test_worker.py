"""Marked ledgers are mended and their marks cleared; what is marked meanwhile stays marked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.underreplication import MarkLock, Underreplication
from spark_bookkeeper.ledger.errors import LedgerFencedError
from spark_bookkeeper.ledger.protocol.transitions import marked_in_recovery
from spark_bookkeeper.replication.lost_bookies import Patience
from spark_bookkeeper.replication.measures import ReplicationMeasures
from spark_bookkeeper.replication.mending import LedgerMender
from spark_bookkeeper.replication.settings import ReplicationSettings
from spark_bookkeeper.replication.worker import ReplicationWorker
from tests.doubles.cluster import ROOT
from tests.spark_bookkeeper.ledger.scene import Scene, numbers
from tests.spark_bookkeeper.replication.test_mending import Meanwhile, assert_whole, lose, write

AT_ONCE = ReplicationSettings(open_ledger_grace_ms=0, retry_ms_min=1, retry_ms_max=1, poll_ms=1)
FIVE = pytest.mark.cluster(bookies=5)


def marks_of(scene: Scene, seed: int = 3) -> Underreplication:
    return Underreplication(scene.cluster.store, ROOT, random=Random(seed))


def worker_of(
    scene: Scene,
    settings: ReplicationSettings = AT_ONCE,
    *,
    seed: int = 7,
    pace: LoopPace | None = None,
    measures: ReplicationMeasures | None = None,
) -> ReplicationWorker:
    context = scene.cluster.client(seed).cluster
    return ReplicationWorker(
        context,
        Underreplication(context.store, ROOT, random=Random(seed)),
        LedgerMender(context, pace or LoopPace(0)),
        holder=f"worker{seed}",
        settings=settings,
        measures=measures,
    )


async def marked(scene: Scene) -> list[int]:
    return [ledger_id async for ledger_id in marks_of(scene).list_marked_ledgers()]


async def look_behind_the_grace(worker: ReplicationWorker) -> int:
    """What the look does that comes after the writer's time; the one before does nothing."""
    assert await worker.look() == 0
    await asyncio.sleep(0.01)
    return await worker.look()


async def lose_and_mark(scene: Scene, position: int = 0) -> str:
    """A member of the present ensemble is gone for good, and somebody has noticed."""
    lost = scene.ensemble[position]
    await lose(scene, lost)
    await marks_of(scene).mark(scene.ledger_id, [lost], now_ms=1)
    return lost


@pytest.mark.conformance("A8")
@FIVE
async def test_a_marked_ledger_is_mended_and_its_mark_cleared(scene: Scene) -> None:
    await write(scene, 50)
    lost = await lose_and_mark(scene)

    assert await worker_of(scene).look() == 1

    assert lost not in (await scene.metadata()).last_fragment.ensemble
    await assert_whole(scene)
    assert await marked(scene) == []
    assert await scene.cluster.store.children(Paths(ROOT).underreplicated_ledgers) == []
    assert await marks_of(scene).list_locked_ledgers() == set()
    assert await worker_of(scene).look() == 0


@FIVE
async def test_what_a_worker_did_is_counted(scene: Scene) -> None:
    await write(scene, 50)
    await lose_and_mark(scene)
    measures = ReplicationMeasures()
    other = await scene.client.create_ledger()
    await other.close()
    await marks_of(scene).mark(other.ledger_id, ["b9:1"], now_ms=1)
    # One that waits: nobody knows it.
    await marks_of(scene).mark(99, ["b9:1"], now_ms=1)
    worker = worker_of(scene, pace=measures.pace, measures=measures)

    cleared = await worker.look()

    left = len(await marked(scene))
    assert cleared == 3 - left
    assert measures.underreplicated_ledgers == left
    assert measures.mended.count == cleared
    assert measures.replaced_members >= 1
    assert measures.pace.begun_bytes >= 50
    await worker.look()
    assert measures.mended.count == cleared
    assert measures.underreplicated_ledgers == len(await marked(scene))


@pytest.mark.conformance("A9")
@FIVE
async def test_what_is_marked_while_it_is_mended_stays_marked(scene: Scene) -> None:
    await write(scene, 50)
    lost = await lose_and_mark(scene)

    async def mark_again(_: int) -> None:
        await marks_of(scene).mark(scene.ledger_id, [lost], now_ms=2)

    assert await worker_of(scene, pace=Meanwhile(mark_again)).look() == 0
    assert await marked(scene) == [scene.ledger_id]
    # Behind it nothing lacks, and the mark goes.
    assert await worker_of(scene).look() == 1


@FIVE
async def test_a_lock_that_could_not_be_released_is_released_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept everybody from the ledger as long as the session lived."""
    await write(scene, 50)
    await lose_and_mark(scene)
    worker, other, release = worker_of(scene), worker_of(scene, seed=8), MarkLock.release

    async def unavailable(_: MarkLock) -> None:
        raise MetadataUnavailableError("memory", "delete got no reply")

    monkeypatch.setattr(MarkLock, "release", unavailable)
    assert await worker.look() == 1
    monkeypatch.setattr(MarkLock, "release", release)
    await marks_of(scene).mark(scene.ledger_id, ["b9:1"], now_ms=3)
    assert await other.look() == 0

    await worker.look()

    assert await marks_of(scene).list_locked_ledgers() == set()


@pytest.mark.conformance("A9")
@FIVE
async def test_two_workers_take_turns(scene: Scene) -> None:
    await write(scene, 50)
    await lose_and_mark(scene)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(_: int) -> None:
        begun.set()
        await go_on.wait()

    first = asyncio.create_task(worker_of(scene, pace=Meanwhile(slowly)).look())
    await begun.wait()
    assert await marks_of(scene).list_locked_ledgers() == {scene.ledger_id}
    assert await worker_of(scene, seed=8).look() == 0
    go_on.set()

    assert await first == 1
    await assert_whole(scene)


@pytest.mark.conformance("A9")
@FIVE
async def test_a_writer_has_its_time_before_its_ledger_is_taken_from_it(scene: Scene) -> None:
    """IsNotUR: it replaces the bookie by itself, and goes on."""
    await scene.writer.append_many(numbers(5))
    lost = await lose_and_mark(scene)
    worker = worker_of(scene)

    assert await worker.look() == 0
    assert not (await scene.metadata()).is_closed
    await scene.writer.append_many(numbers(5))
    assert lost not in scene.ensemble
    await asyncio.sleep(0.01)

    assert await worker.look() == 1
    await scene.writer.append(b"on")
    assert not (await scene.metadata()).is_closed
    await assert_whole(scene, last_entry=4)


@pytest.mark.conformance("A9")
@FIVE
async def test_an_idle_writer_that_did_not_notice_is_ended_after_its_time(scene: Scene) -> None:
    """IsUR: what it had acknowledged gets its copies."""
    await scene.writer.append_many(numbers(5))
    await lose_and_mark(scene)

    assert await look_behind_the_grace(worker_of(scene)) == 1

    assert (await scene.metadata()).last_entry == 4
    await assert_whole(scene)
    with pytest.raises(LedgerFencedError):
        await scene.writer.append(b"late")


@pytest.mark.conformance("F11")
@FIVE
async def test_a_recovery_that_was_left_half_done_is_finished(scene: Scene) -> None:
    await scene.writer.append_many(numbers(5))
    await scene.change(marked_in_recovery)
    await lose_and_mark(scene)

    assert await look_behind_the_grace(worker_of(scene)) == 1

    assert (await scene.metadata()).last_entry == 4
    await assert_whole(scene)


@pytest.mark.conformance("A9")
async def test_no_writer_is_ended_where_nobody_could_take_the_place(scene: Scene) -> None:
    await scene.writer.append_many(numbers(5))
    await lose_and_mark(scene)
    worker = worker_of(scene)

    for _ in range(4):
        assert await worker.look() == 0
        await asyncio.sleep(0.01)

    assert await scene.writer.append(b"on") == 5
    assert await marked(scene) == [scene.ledger_id]


@pytest.mark.conformance("A9")
@FIVE
async def test_the_mark_of_a_deleted_ledger_goes(scene: Scene) -> None:
    await write(scene, 5)
    await lose_and_mark(scene)
    await scene.client.cluster.ledgers.delete(scene.ledger_id)

    assert await worker_of(scene).look() == 1
    assert await marked(scene) == []


def tries(caplog: pytest.LogCaptureFixture) -> int:
    """How often something could not be mended."""
    return sum("still lacks" in record.msg for record in caplog.records)


@FIVE
async def test_what_cannot_be_mended_is_tried_again_later_each_time(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(ReplicationWorker, "_now_s", staticmethod(lambda: now_s))
    await write(scene, 5)
    lost = await lose_and_mark(scene)
    others = [each for each in scene.ensemble if each != lost]
    scene.cluster.set_faults(*others, read_status=Status.UNKNOWN)
    settings = ReplicationSettings(retry_ms_min=1_000, retry_ms_max=4_000)
    worker = worker_of(scene, settings)

    for number, delay_s in enumerate((1, 2, 4, 4), start=1):
        assert await worker.look() == 0
        assert tries(caplog) == number
        now_s += delay_s - 0.001
        assert await worker.look() == 0
        assert tries(caplog) == number, "tried again too early"
        now_s += 0.001

    scene.cluster.set_faults(*others, read_status=None)
    assert await worker.look() == 1


@pytest.mark.conformance("A4")
@FIVE
async def test_nothing_is_mended_while_auto_recovery_is_disabled(scene: Scene) -> None:
    await write(scene, 5)
    await lose_and_mark(scene)
    await marks_of(scene).set_enabled(False)
    running = asyncio.create_task(worker_of(scene).run())
    await asyncio.sleep(0.05)
    assert await marked(scene) == [scene.ledger_id]

    await marks_of(scene).set_enabled(True)
    for _ in range(500):
        if not await marked(scene):
            break
        await asyncio.sleep(0.01)
    running.cancel()

    assert await marked(scene) == []
    await assert_whole(scene)


async def test_a_bookie_that_comes_and_goes_has_nothing_be_tried_at_every_look(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(ReplicationWorker, "_now_s", staticmethod(lambda: now_s))
    await write(scene, 5)
    lost = await lose_and_mark(scene)
    flapping, *_ = others = [each for each in scene.ensemble if each != lost]
    scene.cluster.set_faults(*others, read_status=Status.UNKNOWN)
    worker = worker_of(scene, replace(AT_ONCE, retry_ms_min=3_600_000, retry_ms_max=3_600_000))

    await worker.look()
    first = tries(caplog)
    for _ in range(10):
        await scene.cluster.take_away(flapping)
        await worker.look()
        await scene.cluster.bring_back(flapping)
        await worker.look()
        now_s += 1
    assert tries(caplog) <= first + 1
    before = tries(caplog)

    now_s += 60
    await worker.look()

    assert tries(caplog) == before + 1, "what came last was not forgotten"


async def test_what_failed_is_tried_again_as_soon_as_a_bookie_comes(scene: Scene) -> None:
    await write(scene, 5)
    lost = await lose_and_mark(scene)
    patient = replace(AT_ONCE, retry_ms_min=3_600_000, retry_ms_max=3_600_000)
    worker = worker_of(scene, patient)
    assert await worker.look() == 0
    assert await worker.look() == 0

    await scene.cluster.bring_back(lost)

    assert await worker.look() == 1
    assert await marked(scene) == []


@FIVE
async def test_what_a_silent_bookie_kept_from_being_mended_is_tried_again_once_it_is_gone(
    scene: Scene,
) -> None:
    """It waited for up to five minutes, though another bookie could take the place by then."""
    scene.faults[1].drops_writes = True
    await scene.writer.append_many(numbers(1))
    scene.faults[1].drops_writes = False
    await write(scene, 5)
    silent = scene.ensemble[1]
    await marks_of(scene).mark(scene.ledger_id, [silent], now_ms=1)
    scene.cluster.faults[silent].write_status = Status.UNREACHABLE
    worker = worker_of(scene, replace(AT_ONCE, retry_ms_min=3_600_000, retry_ms_max=3_600_000))
    assert await worker.look() == 0
    assert await worker.look() == 0

    await lose(scene, silent)

    assert await worker.look() == 1
    assert silent not in (await scene.metadata()).bookie_ids


@FIVE
async def test_how_long_a_lost_bookie_is_waited_for_may_be_written_in_the_metadata(
    scene: Scene,
) -> None:
    await write(scene, 5)
    lost = await lose_and_mark(scene)
    context, patience = scene.cluster.client(7).cluster, Patience(0)
    worker = ReplicationWorker(
        context,
        marks_of(scene),
        LedgerMender(context, LoopPace(0), patience=patience),
        holder="worker",
        settings=AT_ONCE,
        patience=patience,
    )
    await marks_of(scene).set_lost_bookie_delay(600)

    assert await worker.look() == 0
    assert lost in (await scene.metadata()).bookie_ids

    await marks_of(scene).set_lost_bookie_delay(0)
    await asyncio.sleep(0.01)
    assert await worker.look() == 1
    assert lost not in (await scene.metadata()).bookie_ids
