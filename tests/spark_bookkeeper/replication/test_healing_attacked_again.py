"""What a second look by outsiders found in what heals: one test for each, as they showed it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bookie_server.wire.messages import Status
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, GRPC, BookieServiceInfo, Endpoint
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.model import Fragment
from bookkeeper_metadata.underreplication import Mark
from spark_bookkeeper.ledger.fetch import Fetched, FragmentFetcher
from spark_bookkeeper.replication import copying
from spark_bookkeeper.replication.lost_bookies import LostBookies, Patience
from spark_bookkeeper.replication.migration import Migration
from tests.doubles.cluster import ROOT
from tests.spark_bookkeeper.ledger.scene import Scene, numbers
from tests.spark_bookkeeper.replication.test_auditor import auditor_of
from tests.spark_bookkeeper.replication.test_mending import Meanwhile, lose, mend, write
from tests.spark_bookkeeper.replication.test_worker import AT_ONCE, marked, marks_of, worker_of

FIVE = pytest.mark.cluster(bookies=5)


async def other_ledger(scene: Scene, payloads: Sequence[bytes] = (b"x",)) -> int:
    """A closed one of the same client."""
    writer = await scene.client.create_ledger()
    await writer.append_many(payloads)
    await writer.close()
    return writer.ledger_id


@FIVE
async def test_a_member_that_goes_during_a_look_leaves_no_ledger_whole(scene: Scene) -> None:
    """Who was registered was asked before: a mark was cleared though a member of an open ledger was away."""
    await scene.writer.append_many(numbers(3))
    await scene.settle_adds()
    lost, marks = scene.ensemble[0], marks_of(scene)
    await marks.mark(await other_ledger(scene), ["b9:1"], now_ms=1)
    worker = worker_of(scene)
    assert await worker.look() == 1
    list_locked = worker._marks.list_locked_ledgers

    async def lose_it_first() -> set[int]:
        await lose(scene, lost)
        await auditor_of(scene.cluster).audit([lost])
        return await list_locked()

    worker._marks.list_locked_ledgers = lose_it_first  # type: ignore[method-assign]
    await worker.look()

    assert scene.ledger_id in await marked(scene)


@FIVE
async def test_a_writer_has_its_time_whatever_else_of_its_ledger_is_tried_again(
    scene: Scene,
) -> None:
    member = scene.ensemble[0]
    scene.cluster.set_faults(member, drops_writes=True)
    await scene.writer.append_many(numbers(3))
    scene.cluster.set_faults(member, drops_writes=False, is_dead=True)
    while len((await scene.metadata()).fragments) == 1:
        await scene.writer.append_many(numbers(3))
    scene.cluster.set_faults(member, is_dead=False, write_status=Status.BUSY)
    lost = (await scene.metadata()).last_fragment.ensemble[0]
    await lose(scene, lost)
    await marks_of(scene).mark(scene.ledger_id, [lost], now_ms=1)
    worker = worker_of(scene, replace(AT_ONCE, open_ledger_grace_ms=3_600_000))

    for _ in range(3):
        await worker.look()
        await asyncio.sleep(0.01)

    assert not (await scene.metadata()).is_closed


@pytest.mark.parametrize("quorums", [(3, 2, 1), (3, 3, 1), (2, 1, 1)])
@FIVE
async def test_no_writer_is_ended_whose_ledger_could_not_be_recovered(scene: Scene) -> None:
    """With an ack quorum of one every bookie is needed for that; the ledger was in recovery for ever."""
    await scene.writer.append_many(numbers(6))
    await scene.settle_adds()
    lost = scene.ensemble[0]
    await lose(scene, lost)
    await marks_of(scene).mark(scene.ledger_id, [lost], now_ms=1)
    worker = worker_of(scene)

    for _ in range(3):
        await worker.look()
        await asyncio.sleep(0.01)

    await scene.writer.append(b"more")
    assert await marked(scene) == [scene.ledger_id]


@FIVE
async def test_two_of_three_that_are_lost_end_no_writer(scene: Scene) -> None:
    await scene.writer.append_many(numbers(6))
    await scene.settle_adds()
    lost = scene.ensemble[:2]
    for each in lost:
        await lose(scene, each)
    await marks_of(scene).mark(scene.ledger_id, lost, now_ms=1)
    worker = worker_of(scene)
    for _ in range(3):
        await worker.look()
        await asyncio.sleep(0.01)

    await scene.writer.append_many(numbers(2))
    await scene.writer.close()

    assert (await scene.metadata()).is_closed


@FIVE
async def test_a_member_that_is_back_before_its_ledger_is_taken_saves_the_writer(
    scene: Scene,
) -> None:
    member = scene.ensemble[0]
    scene.cluster.set_faults(member, drops_writes=True)
    await scene.writer.append_many(numbers(3))
    scene.cluster.set_faults(member, drops_writes=False, is_dead=True)
    while len((await scene.metadata()).fragments) == 1:
        await scene.writer.append_many(numbers(3))
    scene.cluster.set_faults(member, is_dead=False, write_status=Status.BUSY)
    lost = (await scene.metadata()).last_fragment.ensemble[0]
    await lose(scene, lost)
    await marks_of(scene).mark(scene.ledger_id, [lost], now_ms=1)
    came_back = False

    async def come_back(_: int) -> None:
        nonlocal came_back
        if not came_back:
            came_back = True
            await scene.cluster.bring_back(lost)

    worker = worker_of(scene, AT_ONCE, pace=Meanwhile(come_back))
    await worker.look()
    await asyncio.sleep(0.01)
    scene.cluster.set_faults(member, write_status=None)
    await worker.look()

    assert not (await scene.metadata()).is_closed


@FIVE
async def test_small_entries_before_large_ones_make_no_window_of_hundreds_of_megabytes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "WINDOW_BYTES", 256 * 1024)
    await scene.writer.append_many([b""] * 5_000)
    for _ in range(20):
        await scene.writer.append_many([b"x" * 100_000] * 20)
    await scene.writer.close()
    await lose(scene, scene.ensemble[0])
    sizes: list[int] = []
    fetch_some = FragmentFetcher.fetch_some

    async def noted(
        self: FragmentFetcher,
        fragment: Fragment,
        wanted: Sequence[int],
        turn: int,
        *,
        enough_bytes: int | None = None,
    ) -> Fetched:
        found = await fetch_some(self, fragment, wanted, turn, enough_bytes=enough_bytes)
        sizes.append(sum(run.size_bytes for run in found.runs))
        return found

    monkeypatch.setattr(FragmentFetcher, "fetch_some", noted)

    assert (await mend(scene)).is_whole

    assert max(sizes) < 2 * 1024 * 1024
    assert sum(sizes) > 40_000_000


@pytest.mark.parametrize("quorums", [(3, 2, 2)])
@FIVE
async def test_a_window_that_was_cut_off_leaves_no_gap(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "WINDOW_BYTES", 64 * 1024)
    await scene.writer.append_many([b"x" * (1 + 40_000 * (n % 5 == 0)) for n in range(300)])
    await scene.writer.close()
    await lose(scene, scene.ensemble[0])

    assert (await mend(scene)).is_whole

    for entry_id in range(300):
        assert len(scene.cluster.copies(scene.ledger_id, entry_id)) >= 2, entry_id


@FIVE
async def test_a_healer_that_is_stopped_stops_though_a_bookie_refuses_its_copies(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        await scene.writer.append_many([b"x" * 400_000] * 10)
    await scene.writer.close()
    await lose(scene, scene.ensemble[0])
    spare = [each for each in scene.cluster.bookies if each not in scene.ensemble]
    scene.cluster.set_faults(*spare, write_status=Status.BUSY)
    reads, is_reading = 0, asyncio.Event()
    fetch_some = FragmentFetcher.fetch_some

    async def slow(
        self: FragmentFetcher,
        fragment: Fragment,
        wanted: Sequence[int],
        turn: int,
        *,
        enough_bytes: int | None = None,
    ) -> Fetched:
        nonlocal reads
        reads += 1
        found = await fetch_some(self, fragment, wanted, turn, enough_bytes=enough_bytes)
        if reads == 2:
            is_reading.set()
            await asyncio.Event().wait()
        return found

    monkeypatch.setattr(FragmentFetcher, "fetch_some", slow)
    task = asyncio.create_task(mend(scene))
    await is_reading.wait()
    await asyncio.sleep(0.05)  # the first window is refused meanwhile
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@FIVE
async def test_one_lost_reply_does_not_end_what_is_done_for_other_ledgers(scene: Scene) -> None:
    await write(scene, 50)
    lost = scene.ensemble[0]
    other = await other_ledger(scene)
    await lose(scene, lost)
    for ledger_id in (scene.ledger_id, other):
        await marks_of(scene).mark(ledger_id, [lost], now_ms=1)
    worker = worker_of(scene)
    clear = worker._marks.clear

    async def lose_a_reply(ledger_id: int, known: Mark) -> bool:
        if ledger_id == other:
            raise MetadataUnavailableError("zk:2181", "reply lost")
        return await clear(ledger_id, known)

    worker._marks.clear = lose_a_reply  # type: ignore[method-assign]

    assert await worker.look() == 1

    assert await marked(scene) == [other]
    assert lost not in (await scene.metadata()).bookie_ids


@FIVE
async def test_a_read_only_bookie_at_another_address_is_found(scene: Scene) -> None:
    await write(scene, 20)
    moved, cluster = scene.ensemble[0], scene.cluster
    await marks_of(scene).mark(scene.ledger_id, [moved], now_ms=1)
    worker = worker_of(scene)
    assert await worker.look() == 1
    await cluster.registrations[moved].withdraw()
    cluster.ports[moved] = 77
    info = BookieServiceInfo((Endpoint(BOOKIE_ENDPOINT, moved.split(":")[0], 77, GRPC),))
    registry = BookieRegistry(cluster.store, ROOT)
    cluster.registrations[moved] = await registry.register(moved, info, readonly=True)
    await marks_of(scene).mark(scene.ledger_id, [moved], now_ms=1)

    for _ in range(200):
        if await worker.look():
            break
        await asyncio.sleep(0.05)

    assert await marked(scene) == []


@FIVE
async def test_a_target_that_is_a_member_already_is_no_reason_to_end_a_writer(
    scene: Scene,
) -> None:
    await scene.writer.append_many(numbers(3))
    await scene.settle_adds()
    leaving, member, _ = scene.ensemble
    context = scene.cluster.client(7).cluster

    migration = Migration(context, leaving, holder="h", targets=[member], open_ledger_grace_ms=0)
    migrated = await migration.run()

    assert migrated.recovered == []
    assert not (await scene.metadata()).is_closed


def test_a_bookie_that_is_gone_for_long_ends_no_patience_with_another() -> None:
    bookies = LostBookies(600)
    bookies.on_known({"a", "b", "dead"})
    bookies.on_registered({"a", "b"}, 0)
    assert bookies.due(600) == {"dead"}
    bookies.on_audited({"dead"})

    bookies.on_registered({"a"}, 10_000)

    assert bookies.due(10_599) == set()
    assert bookies.due(10_600) == {"b"}
    patience = Patience(600)
    patience.waited_for({"dead"}, 0)
    assert patience.waited_for({"b", "dead"}, 10_000) == {"b"}


async def test_an_id_that_ours_never_have_is_marked_as_any(scene: Scene) -> None:
    """One such id in a ledger's metadata ended the auditor at every start."""
    await write(scene, 3)
    odd = "x@y"

    await marks_of(scene).mark(scene.ledger_id, [odd], now_ms=1)

    mark = await marks_of(scene).read(scene.ledger_id)
    assert mark is not None
    assert mark.bookie_ids == (odd,)
