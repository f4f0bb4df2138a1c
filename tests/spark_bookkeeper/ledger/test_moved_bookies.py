"""Bookies that come back under their ids at other addresses are found without a new client."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.ledger import connections
from spark_bookkeeper.ledger.errors import EntryUnreadableError
from tests.doubles.cluster import InProcessCluster
from tests.doubles.stores import Script, ScriptedStore
from tests.patience import seconds
from tests.spark_bookkeeper.ledger.scene import ACK_BY_ALL, Scene, numbers, read_all
from tests.spark_bookkeeper.ledger.tails import Follower


async def move_all(cluster: InProcessCluster) -> None:
    for number, bookie_id in enumerate(cluster.bookies):
        await cluster.move(bookie_id, 7000 + number)


async def test_a_reader_finds_them_with_its_next_read(scene: Scene) -> None:
    await scene.writer.append_many(numbers(3))
    await scene.writer.close()
    reader = await scene.open()
    assert await read_all(reader) == numbers(3)

    await move_all(scene.cluster)

    assert await read_all(reader) == numbers(3)


async def test_a_recovery_finds_them(scene: Scene) -> None:
    await scene.writer.append_many(numbers(3))
    other = scene.cluster.client(2)
    reader = await other.open_ledger(scene.ledger_id)
    await move_all(scene.cluster)

    assert await reader.read_last_add_confirmed() >= -1
    recovered = await other.open_ledger(scene.ledger_id, recovery=True)

    assert await read_all(recovered) == numbers(3)


@pytest.mark.cluster(long_poll_timeout_ms=20, bookie_wait_timeout_ms=600_000)
@ACK_BY_ALL
async def test_a_writer_and_a_tail_find_them(scene: Scene) -> None:
    follower = Follower(await scene.open(), 0)
    await scene.writer.append_many(numbers(2))

    await move_all(scene.cluster)

    async with asyncio.timeout(seconds(20)):
        await scene.writer.append(b"2")
        await scene.writer.close()
        await follower.ended()
    assert follower.payloads == numbers(3)


async def test_who_finds_a_bookie_silent_has_its_address_looked_up_in_the_background(
    scene: Scene,
) -> None:
    """With one of three moved nothing fails, and it is read from again all the same."""
    await scene.writer.append_many(numbers(3))
    await scene.writer.close()
    reader = await scene.open()
    moved = scene.ensemble[1]
    await scene.cluster.move(moved, 7000)
    scene.cluster.store.fault = script = Script()

    for _ in range(30):
        assert await read_all(reader) == numbers(3)
    await asyncio.sleep(0)

    assert reader._cluster.connections._endpoints[moved].port == 7000
    # A dead one is not looked for with every read.
    assert len(script.paths("children")) <= 2


async def test_reads_need_no_metadata_while_a_bookie_is_silent(scene: Scene) -> None:
    await scene.writer.append_many(numbers(3))
    await scene.writer.close()
    reader = await scene.open()
    assert await read_all(reader) == numbers(3)
    scene.fail(0)
    scene.cluster.store.fault = lambda operation, path: Fault.LOST_REQUEST

    for _ in range(6):
        assert await read_all(reader) == numbers(3)
    scene.cluster.store.fault = None


async def test_bookies_that_are_really_gone_are_an_error_as_before(scene: Scene) -> None:
    await scene.writer.append_many(numbers(3))
    await scene.writer.close()
    reader = await scene.open()
    scene.fail(0, 1, 2)

    with pytest.raises(EntryUnreadableError):
        await read_all(reader)


async def test_reads_go_on_without_metadata_where_a_bookie_was_away_from_the_start(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows its address, and nobody needs it."""
    monkeypatch.setattr(connections, "_UNKNOWN_AGAIN_S", 0.0)
    monkeypatch.setattr(connections, "_UNKNOWN_WAIT_S", 0.01)
    await scene.writer.append_many(numbers(3))
    await scene.writer.close()
    await scene.cluster.take_away(scene.ensemble[0])
    store = ScriptedStore(scene.cluster.store.tree)
    reader = await scene.cluster.client(2, store).open_ledger(scene.ledger_id)
    store.fault = lambda operation, path: Fault.LOST_REQUEST
    with pytest.raises(MetadataUnavailableError):
        await read_all(reader)  # of no bookie is known where it is
    store.fault = None
    assert await read_all(reader) == numbers(3)

    store.fault = lambda operation, path: Fault.LOST_REQUEST
    assert await read_all(reader) == numbers(3)
    store.fault, store.before = None, lambda operation, path: asyncio.sleep(3600)
    connection = reader._cluster.connections
    connection._unknown_again_s = 0.0
    assert await read_all(reader) == numbers(3)
    # It is not waited for with every read.
    asked_again_s = connection._unknown_again_s
    assert await read_all(reader) == numbers(3)
    assert connection._unknown_again_s == asked_again_s
    await connection.close()
