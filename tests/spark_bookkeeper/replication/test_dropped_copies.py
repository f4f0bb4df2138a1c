"""Menders, readers and a bookie that drops copies too many, beside each other."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from bookie_server.collection.peers import Peers
from bookie_server.collection.surplus import SurplusDropper
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.replication.mending import LedgerMender
from tests.spark_bookkeeper.ledger.scene import Scene, numbers, read_all
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

    async def drop_before(mender, mended, share, target):  # type: ignore[no-untyped-def]
        names.append(target)
        if len(names) == 1:
            # All that are named are there, as they have to be.
            await scene.cluster.bring_back(lost)
            dropped.append(await drop(scene, target))
            await scene.cluster.take_away(lost)
            mender.look_around()
        return await put_in_place(mender, mended, share, target)

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
