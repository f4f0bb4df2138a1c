"""Menders, readers and a bookie that drops copies too many, beside each other."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import pytest

from bookie_server.collection.peers import Peers
from bookie_server.collection.surplus import SurplusDropper
from bookie_server.core.absence import status_of_absence
from bookie_server.wire.messages import Status
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.ledger.errors import LedgerRecoveryError
from spark_bookkeeper.replication.mending import LedgerMender
from tests.spark_bookkeeper.ledger.scene import Scene, numbers, read_all
from tests.spark_bookkeeper.replication.test_limbo_ends import integrity_of
from tests.spark_bookkeeper.replication.test_mending import assert_whole, mend, write

FIVE = pytest.mark.cluster(bookies=5)
SIX = pytest.mark.cluster(bookies=6)


async def drop(scene: Scene, bookie_id: str) -> int:
    """What one look of this bookie drops."""
    bookie = scene.cluster.bookies[bookie_id]
    # Only what rests in logs is dropped.
    bookie.storage.checkpoint_now()
    root, store = scene.client.cluster.root, MemoryStore(scene.cluster.store.tree)
    ledgers = LedgerStore(store, root, random=Random(5))
    marks = Underreplication(store, root, random=Random(6))
    peers = partial(Peers, BookieRegistry(store, root), scene.cluster.connect)
    return await SurplusDropper(bookie, bookie_id, ledgers, marks, peers).drop()


@FIVE
async def test_a_bookie_that_comes_back_gives_up_what_others_have_now(scene: Scene) -> None:
    await write(scene, 50)
    lost = scene.ensemble[0]
    await scene.cluster.take_away(lost)
    assert (await mend(scene)).is_whole
    await scene.cluster.bring_back(lost)

    assert await drop(scene, lost) == 1

    assert lost not in scene.cluster.copies(scene.ledger_id, 0)
    await assert_whole(scene)
    assert [await drop(scene, each) for each in scene.cluster.bookies] == [0] * 5


@FIVE
async def test_what_is_dropped_between_its_copy_and_its_naming_is_copied_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mender has lost its lock without a word: nobody may be named for what is not there."""
    await write(scene, 50)
    lost = scene.ensemble[0]
    await scene.cluster.take_away(lost)
    names, put_in_place, dropped = [], LedgerMender._put_in_place, []

    async def drop_before(mender, look):  # type: ignore[no-untyped-def]
        ((_, target),) = look.taken
        names.append(target)
        if len(names) == 1:
            # All that are named are there, as they have to be.
            await scene.cluster.bring_back(lost)
            dropped.append(await drop(scene, target))
            await scene.cluster.take_away(lost)
            mender.look_around()
        return await put_in_place(mender, look)

    monkeypatch.setattr(LedgerMender, "_put_in_place", drop_before)

    assert (await mend(scene)).is_whole

    assert dropped == [1]
    assert len(names) == 2, "what was copied first did not count"
    await assert_whole(scene)


@SIX
async def test_a_reader_with_old_metadata_finds_everything_where_it_is_now(scene: Scene) -> None:
    """Every bookie that it knows of has dropped the ledger."""
    await write(scene, 50)
    before = scene.ensemble
    reader = await scene.cluster.client(9).open_ledger(scene.ledger_id)
    leaving = LedgerMender(scene.client.cluster, LoopPace(0), leaving=before)
    assert (await leaving.mend(scene.ledger_id)).is_whole
    for each in before:
        assert await drop(scene, each) == 1

    assert await read_all(reader) == numbers(50)


@FIVE
@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize(("quorums", "away"), [((2, 2, 2), 1), ((3, 3, 2), 2)], ids=str)
async def test_what_was_dropped_is_not_denied_to_who_has_an_older_copy_of_the_metadata(
    scene: Scene, away: int, restarts: bool
) -> None:
    """It is open in the backup, on bookies that have dropped it since: a recovery would have ended it before its entries."""
    await scene.writer.append_many(numbers(10))
    await scene.settle_adds()
    store, paths = scene.cluster.store, Paths(scene.client.cluster.root)
    path = next(each for each in store.tree.paths() if paths.ledger_id(each) == scene.ledger_id)
    backup, before = await store.get(path), scene.ensemble
    await scene.writer.close()
    for late in before[:away]:
        await scene.cluster.take_away(late)
        assert (await mend(scene)).is_whole
        await scene.cluster.bring_back(late)
        assert await drop(scene, late) == 1
        if restarts:
            await scene.cluster.bookies[late].stop()
            await scene.cluster.restart_bookie(late)
    now = await store.get(path)
    assert backup is not None
    assert now is not None
    await store.put(path, backup.value, now.version)

    client = scene.cluster.client(9)
    if away == 2:
        with pytest.raises(LedgerRecoveryError):
            await client.open_ledger(scene.ledger_id, recovery=True)
        # Who is left can be asked by an operator.
        await client.recover_with_losses(scene.ledger_id)
    reader = await client.open_ledger(scene.ledger_id, recovery=True)

    assert await read_all(reader) == numbers(10)


async def assert_limbo_ends_without_a_denial(scene: Scene, bookie_id: str) -> None:
    contents = scene.cluster.bookies[bookie_id].storage.contents
    contents.set_limbo([scene.ledger_id])
    check = await integrity_of(scene, bookie_id)

    await check.look()
    assert await check.read() == 1

    handle = contents.ledgers[scene.ledger_id]
    assert not handle.is_limbo
    assert status_of_absence(handle, is_storage_damaged=False) is Status.UNKNOWN


@FIVE
async def test_limbo_of_a_ledger_that_others_hold_ends_without_a_denial(scene: Scene) -> None:
    await write(scene, 5)
    other = next(each for each in scene.cluster.bookies if each not in scene.ensemble)
    await assert_limbo_ends_without_a_denial(scene, other)


@FIVE
async def test_limbo_of_a_ledger_that_others_hold_a_part_of_ends_without_a_denial(
    scene: Scene,
) -> None:
    """Its place was taken in the first fragment only; an older copy of the metadata may name it there."""
    await scene.writer.append_many(numbers(5))
    await scene.settle_adds()
    scene.fail(1)
    await write(scene, 5)
    first, last = (await scene.metadata()).fragments
    kept = first.ensemble[0]
    other = next(each for each in scene.cluster.bookies if each not in first.ensemble)

    def moved(metadata: LedgerMetadata) -> LedgerMetadata:
        ensemble = (other, *first.ensemble[1:])
        return replace(metadata, fragments=(replace(first, ensemble=ensemble), last))

    await scene.change(moved)

    await assert_limbo_ends_without_a_denial(scene, kept)
