"""Tailing: every confirmed entry once, in order, to the ledger's end, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.ledger.errors import NoSuchEntryError
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.doubles.cluster import InProcessCluster
from tests.doubles.stores import Script
from tests.doubles.waits import until
from tests.patience import seconds
from tests.spark_bookkeeper.ledger.scene import Scene
from tests.spark_bookkeeper.ledger.tails import QUORUMS, SLOW_POLLS, Follower, append, payload

pytestmark = SLOW_POLLS


@pytest.mark.parametrize("quorums", QUORUMS, ids=str)
@pytest.mark.cluster(bookies=6)
async def test_a_tail_sees_each_entry_without_waiting_for_the_next(
    writer: WriteHandle, follower: Follower
) -> None:
    for entry_id in range(8):
        await append(writer, 1)
        await follower.seen(entry_id)
    await writer.append_many([payload(entry_id) for entry_id in range(8, 30)])
    await follower.seen(29)
    await writer.close()

    assert await follower.ended() == list(range(30))
    assert follower.payloads == [payload(entry_id) for entry_id in range(30)]


@pytest.mark.parametrize("quorums", QUORUMS, ids=str)
@pytest.mark.cluster(bookies=6)
async def test_a_tail_goes_on_over_ensemble_changes(
    scene: Scene, follower: Follower, quorums: tuple[int, int, int]
) -> None:
    await append(scene.writer, 5)
    for position in (0, 1, 2):
        away = scene.ensemble[position % quorums[0]]
        scene.cluster.faults[away].is_dead = True
        await append(scene.writer, 5)
        await until(lambda away=away: away not in scene.ensemble)  # type: ignore[misc]
        await append(scene.writer, 5)
        await follower.seen(scene.writer.last_add_confirmed - 1)
        scene.cluster.faults[away].is_dead = False
    await scene.writer.close()

    assert await follower.ended() == list(range(35))
    assert len(scene.writer.metadata.fragments) > 2


async def test_a_tail_of_a_closed_ledger_is_a_read_that_ends(scene: Scene) -> None:
    await append(scene.writer, 5)
    await scene.writer.close()
    reader = await scene.open()

    assert await Follower(reader, 2).ended() == [2, 3, 4]
    assert await Follower(reader, 5).ended() == []
    with pytest.raises(NoSuchEntryError):
        await anext(reader.tail(-1))


@pytest.mark.slow
async def test_an_idle_tail_ends_after_its_timeout_and_an_active_one_does_not(
    writer: WriteHandle, reader: ReadHandle
) -> None:
    follower = Follower(reader, 0, timeout=0.5)
    loop = asyncio.get_running_loop()
    active_until_s = loop.time() + 0.7
    while loop.time() < active_until_s:
        await append(writer, 1)
        await asyncio.sleep(0.02)

    assert not follower.task.done()
    assert await follower.ended() == list(range(writer.last_add_confirmed + 1))
    assert not reader.is_closed


async def test_a_tail_of_a_ledger_that_is_deleted_says_so(scene: Scene, follower: Follower) -> None:
    await append(scene.writer, 2)
    await follower.seen(1)

    await scene.cluster.client(3).delete_ledger(scene.ledger_id, force=True)

    with pytest.raises(NoSuchLedgerError):
        await follower.ended()


async def test_a_tail_ends_where_a_recovery_ends_the_ledger(
    scene: Scene, follower: Follower
) -> None:
    await append(scene.writer, 6)

    recovered = await scene.recover(3)

    assert await follower.ended() == list(range(recovered.last_add_confirmed + 1))
    assert follower.reader.last_add_confirmed == 5


@pytest.mark.slow
async def test_what_no_ack_quorum_holds_is_not_tailed(scene: Scene, reader: ReadHandle) -> None:
    await append(scene.writer, 3)
    scene.fail(1, 2, drops_writes=True)
    lost = scene.writer.append_async(b"held by one bookie")
    holder = scene.cluster.bookies[scene.ensemble[0]]
    await until(lambda: holder.storage.contents.last_entry(scene.ledger_id) == 3)

    assert await Follower(reader, 0, timeout=seconds(0.3)).ended() == [0, 1, 2]
    assert [e.entry_id async for e in reader.read_unconfirmed(3, 3)] == [3]
    scene.writer.abandon(NoSuchLedgerError(0))
    await asyncio.gather(lost, return_exceptions=True)


@pytest.mark.cluster(explicit_lac_interval_ms=0)
async def test_an_iteration_that_is_left_leaves_nothing_behind(
    cluster: InProcessCluster, writer: WriteHandle, reader: ReadHandle
) -> None:
    await append(writer, 3)
    before = asyncio.all_tasks()
    entries = reader.tail(0)
    assert [(await anext(entries)).entry_id for _ in range(2)] == [0, 1]
    waiting = asyncio.ensure_future(anext(entries))
    watches = [bookie.lac_watch for bookie in cluster.bookies.values()]
    await until(lambda: sum(watch.waiter_count for watch in watches) == 1)

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await entries.aclose()
    await until(lambda: asyncio.all_tasks() == before)

    assert sum(watch.waiter_count for watch in watches) == 0


@pytest.mark.cluster(long_poll_timeout_ms=20)
async def test_a_tail_goes_on_while_the_metadata_is_away(scene: Scene, follower: Follower) -> None:
    await append(scene.writer, 1)
    await follower.seen(0)
    lost: list[str] = []

    def lose(operation: str, path: str) -> Fault:
        lost.append(path)
        return Fault.LOST_REQUEST

    scene.cluster.store.fault = lose
    ensemble = scene.ensemble
    scene.cluster.faults[ensemble[0]].is_dead = True  # and so is a bookie
    await until(lambda: len(lost) > 3)
    await append(scene.writer, 3)
    await follower.seen(3)

    scene.cluster.store.fault = None
    await scene.writer.close()
    assert await follower.ended() == [0, 1, 2, 3]


@pytest.mark.cluster(long_poll_timeout_ms=20)
async def test_a_close_that_no_watch_reports_is_noticed(
    writer: WriteHandle, reader: ReadHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(self: LedgerStore, ledger_id: int, changed: object) -> Callable[[], None]:
        return lambda: None

    monkeypatch.setattr(LedgerStore, "watch", silent)

    follower = Follower(reader, 0)
    await append(writer, 2)
    await writer.close()

    assert await follower.ended() == [0, 1]


async def test_a_bookie_without_an_address_is_not_looked_up_with_every_question(
    scene: Scene,
) -> None:
    await scene.cluster.registrations[scene.ensemble[2]].withdraw()
    follower = Follower(await scene.open(3), 0)
    await append(scene.writer, 1)
    await follower.seen(0)
    scene.cluster.store.fault = script = Script()
    await append(scene.writer, 20)
    await follower.seen(20)

    # Each look lists twice; a busy machine may give cause for a doubt or two.
    assert sum("/available" in path for path in script.paths("children")) < 10
    await scene.writer.close()
    await follower.ended()
