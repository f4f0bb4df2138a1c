"""What a bookie holds moves to others before it goes: nothing is lost on the way, and nobody is ended in vain."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper_metadata.readonly import ReadonlyWishes
from spark_bookkeeper.ledger.errors import LedgerFencedError
from spark_bookkeeper.replication import migration
from spark_bookkeeper.replication.migration import Migration
from tests.doubles.cluster import ROOT
from tests.doubles.waits import until
from tests.spark_bookkeeper.ledger.scene import Scene, numbers
from tests.spark_bookkeeper.replication.test_mending import assert_whole, lose, write
from tests.spark_bookkeeper.replication.test_worker import marks_of

FIVE = pytest.mark.cluster(bookies=5)


def migration_of(scene: Scene, bookie_id: str, **options: object) -> Migration:
    settings = {"open_ledger_grace_ms": 0, **options}
    return Migration(scene.cluster.client(7).cluster, bookie_id, holder="operator", **settings)  # type: ignore[arg-type]


async def named(scene: Scene, bookie_id: str) -> bool:
    return bookie_id in (await scene.metadata()).bookie_ids


@pytest.mark.conformance("A12")
@FIVE
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)], ids=["all", "striped"])
async def test_a_bookie_that_serves_on_gives_away_all_it_has(scene: Scene) -> None:
    await write(scene, 50)
    leaving = scene.ensemble[0]
    seen: list[int] = []

    migrated = await migration_of(scene, leaving, on_progress=lambda m: seen.append(m.moved)).run()

    assert (migrated.ledgers, migrated.moved, migrated.left) == (1, 1, {})
    assert migrated.copied_bytes > 0
    assert seen == [1, 1]
    assert not await named(scene, leaving)
    await assert_whole(scene)
    await lose(scene, leaving)
    assert await scene.read() == numbers(50)


@FIVE
async def test_a_bookie_that_is_dead_is_recovered_from_the_others(scene: Scene) -> None:
    await write(scene, 50)
    lost = scene.ensemble[1]
    await lose(scene, lost)
    target = max(scene.cluster.bookies.keys() - set(scene.ensemble))

    migrated = await migration_of(scene, lost, targets=[target]).run()

    assert migrated.left == {}
    assert target in (await scene.metadata()).bookie_ids
    await assert_whole(scene)


@pytest.mark.conformance("A12")
async def test_without_another_bookie_it_stays_and_says_why(scene: Scene) -> None:
    await write(scene, 5)
    leaving = scene.ensemble[0]
    before = await scene.metadata()

    migrated = await migration_of(scene, leaving).run()

    assert migrated.moved == 0
    assert migrated.left == {
        scene.ledger_id: f"{leaving} is to leave, and no other bookie can take its place"
    }
    assert await scene.metadata() == before


@FIVE
async def test_only_a_target_takes_anything(scene: Scene) -> None:
    await write(scene, 5)
    leaving, member, _ = scene.ensemble

    migrated = await migration_of(scene, leaving, targets=[member]).run()

    assert "no other bookie can take its place" in migrated.left[scene.ledger_id]


@pytest.mark.conformance("A12")
@FIVE
async def test_an_empty_ledger_and_one_of_many_fragments_are_moved_as_well(scene: Scene) -> None:
    leaving = scene.ensemble[0]
    await scene.writer.append_many(numbers(5))
    scene.fail(1)
    await scene.writer.append_many(numbers(5))
    await scene.settle_adds()
    await scene.writer.close()
    scene.cluster.set_faults(is_dead=False)
    empty = await scene.client.create_ledger(ensemble_size=5, write_quorum=3, ack_quorum=2)
    await empty.close()

    migrated = await migration_of(scene, leaving).run()

    assert migrated.moved == 1
    assert list(migrated.left) == [empty.ledger_id], "it names all five bookies"
    assert not await named(scene, leaving)
    await assert_whole(scene)


@pytest.mark.conformance("A12")
@FIVE
@pytest.mark.parametrize("quorums", [(3, 3, 3)])
async def test_a_writer_leaves_a_read_only_bookie_by_itself_and_goes_on(scene: Scene) -> None:
    await scene.writer.append_many(numbers(5))
    leaving = scene.ensemble[0]
    await ReadonlyWishes(scene.cluster.store, ROOT).make(leaving)
    scene.cluster.bookies[leaving].set_readonly_by_hand(True)

    moving = asyncio.create_task(migration_of(scene, leaving, open_ledger_grace_ms=3_600_000).run())
    await asyncio.sleep(0.05)
    await scene.writer.append_many(numbers(5))
    migrated = await moving

    assert migrated.recovered == []
    assert not await named(scene, leaving)
    await scene.writer.append_many(numbers(5))
    await scene.settle_adds()
    await scene.writer.close()
    await assert_whole(scene)


@pytest.mark.conformance("A12")
@FIVE
async def test_an_idle_ledger_is_taken_from_its_writer_in_the_end(scene: Scene) -> None:
    await scene.writer.append_many(numbers(5))
    leaving = scene.ensemble[0]

    migrated = await migration_of(scene, leaving).run()

    assert migrated.recovered == [scene.ledger_id]
    assert not await named(scene, leaving)
    await assert_whole(scene)
    with pytest.raises(LedgerFencedError):
        await scene.writer.append(b"late")


async def test_an_idle_writer_is_not_ended_where_nothing_is_gained(scene: Scene) -> None:
    await scene.writer.append_many(numbers(5))
    leaving = scene.ensemble[0]

    migrated = await migration_of(scene, leaving).run()

    assert migrated.recovered == []
    assert migrated.left == {
        scene.ledger_id: "no bookie is writable that could take the place of one that is away"
    }
    await scene.writer.append_many(numbers(5))


@FIVE
async def test_a_ledger_that_is_being_mended_is_waited_for(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "_LOOK_AGAIN_S", 0.01)
    await write(scene, 5)
    leaving = scene.ensemble[0]
    lock = await marks_of(scene).try_lock(scene.ledger_id, "worker")
    assert lock is not None

    moving = asyncio.create_task(migration_of(scene, leaving).run())
    await until(lambda: "waited for" in caplog.text)
    await asyncio.sleep(0.05)
    assert caplog.text.count("waited for") == 1, "it is looked at again and again"
    assert await named(scene, leaving)
    await lock.release()

    assert (await moving).left == {}
    assert not await named(scene, leaving)
    assert await marks_of(scene).list_locked_ledgers() == set()
