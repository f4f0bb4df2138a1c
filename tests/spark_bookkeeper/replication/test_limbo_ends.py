"""A bookie that may have lost entries gets them back, and says again what it has not - no sooner."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bookie_server.core import damaged_entries
from bookie_server.integrity.integrity_check import IntegrityCheck
from bookie_server.integrity.scrubber import Scrubber
from bookie_server.wire.messages import IdRange, ReadReply, Status
from bookkeeper_metadata.election import AuditorElection
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.ledgers import LedgerStore
from spark_bookkeeper.ledger.protocol.transitions import marked_in_recovery
from tests.doubles.cluster import ROOT
from tests.spark_bookkeeper.ledger.scene import Scene, numbers
from tests.spark_bookkeeper.replication.test_mending import assert_whole, write
from tests.spark_bookkeeper.replication.test_worker import marked, marks_of, worker_of

SHAPES = pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)], ids=["all", "striped"])
SIZE = 40_000
"""Large enough for a block of its own each."""


async def integrity_of(scene: Scene, bookie_id: str) -> IntegrityCheck:
    """As its process begins it; and somebody is there who mends what is marked."""
    await AuditorElection(scene.cluster.store, ROOT, "somebody").win()
    return IntegrityCheck(
        scene.cluster.bookies[bookie_id],
        bookie_id,
        LedgerStore(scene.cluster.store, ROOT, random=Random(0)),
        marks_of(scene),
        interval_ms=100,
        pace=LoopPace(0),
        clock_ms=lambda: 5,
    )


async def look(check: IntegrityCheck) -> int:
    """A look, and what comes of it; for how many ledgers limbo ended."""
    await check.look()
    return await check.read()


def limbo_of(scene: Scene, bookie_id: str) -> list[int]:
    return list(scene.cluster.bookies[bookie_id].ledgers_in_limbo())


async def status_of(scene: Scene, bookie_id: str, entry_id: int) -> Status:
    listed = await scene.cluster.client(9).cluster.client(bookie_id).list_entries(scene.ledger_id)
    if any(each.first_entry <= entry_id <= each.last_entry for each in listed.held):
        return Status.OK
    return listed.status


@pytest.mark.conformance("S8")
@SHAPES
async def test_a_bookie_on_empty_disks_gets_back_what_it_had(scene: Scene) -> None:
    await write(scene, 200)
    wiped = scene.ensemble[1]
    held = {e for e in range(200) if wiped in scene.cluster.copies(scene.ledger_id, e)}
    await scene.cluster.wipe(wiped)
    check = await integrity_of(scene, wiped)
    assert limbo_of(scene, wiped) == [scene.ledger_id]

    assert await look(check) == 0
    mark = await marks_of(scene).read(scene.ledger_id)
    assert mark is not None
    assert mark.bookie_ids == (wiped,)
    assert await worker_of(scene).look() == 1
    assert limbo_of(scene, wiped) == [scene.ledger_id], "nobody has looked again yet"
    assert await look(check) == 1

    assert limbo_of(scene, wiped) == []
    assert check.limbo_count == 0
    assert {e for e in range(200) if wiped in scene.cluster.copies(scene.ledger_id, e)} == held
    await assert_whole(scene)
    assert await status_of(scene, wiped, 200) is Status.OK if 200 in held else Status.NO_ENTRY
    # And for good: the end is stored with the next checkpoint.
    await scene.cluster.bookies[wiped].stop()
    await scene.cluster.restart_bookie(wiped)
    assert limbo_of(scene, wiped) == []


async def test_what_has_everything_leaves_without_anybody_s_help(scene: Scene) -> None:
    await write(scene, 20)
    doubtful = scene.ensemble[0]
    bookie = scene.cluster.bookies[doubtful]
    bookie.storage.contents.set_limbo([scene.ledger_id])

    assert await look(await integrity_of(scene, doubtful)) == 1

    assert limbo_of(scene, doubtful) == []
    assert await marked(scene) == []


async def test_behind_limbo_a_closed_ledger_is_fenced(scene: Scene) -> None:
    """A fence may be among what was lost, and an add of the writer still on its way."""
    await scene.writer.append_many(numbers(3))
    (late, *_) = scene.faults[1].writes_seen
    await scene.recover()
    wiped = scene.ensemble[0]
    await scene.cluster.wipe(wiped)
    check = await integrity_of(scene, wiped)
    await look(check)
    assert (await scene.answers_to(late))[0] is Status.LIMBO
    await worker_of(scene).look()

    assert await look(check) == 1

    assert (await scene.answers_to(late))[0] is Status.FENCED


@pytest.mark.conformance("S8")
@pytest.mark.parametrize("quorums", [(3, 3, 2)])
async def test_an_open_ledger_stays_in_limbo_and_its_writer_goes_on(scene: Scene) -> None:
    """Even if the bookie holds everything: what it once denied could become acknowledged elsewhere."""
    await scene.writer.append_many(numbers(3))
    doubtful = scene.ensemble[0]
    scene.cluster.bookies[doubtful].storage.contents.set_limbo([scene.ledger_id])
    check = await integrity_of(scene, doubtful)

    assert await look(check) == 0
    assert await marked(scene) == [], "its last fragment is its writer's"
    await scene.writer.append_many(numbers(3))
    await scene.change(marked_in_recovery)
    assert await look(check) == 0
    assert limbo_of(scene, doubtful) == [scene.ledger_id]

    await scene.recover()
    ended = await look(check)
    await worker_of(scene).look()
    assert ended + await look(check) == 1


def without_entry_1(reply: ReadReply) -> ReadReply:
    """Its copy cannot be read there."""
    runs = tuple(part for run in reply.runs for part in run.without({1}.__contains__))
    missing = (*reply.missing, IdRange(1, 1, Status.UNKNOWN))
    return replace(reply, runs=runs, missing=missing)


@pytest.mark.conformance("S8")
async def test_what_nobody_can_serve_keeps_its_ledger_in_limbo(scene: Scene) -> None:
    await write(scene, 3)
    wiped, *others = scene.ensemble
    await scene.cluster.wipe(wiped)
    for bookie_id in others:
        scene.cluster.faults[bookie_id].alter_read = without_entry_1
    check = await integrity_of(scene, wiped)

    await look(check)
    assert await worker_of(scene).look() == 0

    assert await look(check) == 0
    assert limbo_of(scene, wiped) == [scene.ledger_id]
    assert await marked(scene) == [scene.ledger_id]
    found = [await status_of(scene, wiped, each) for each in range(3)]
    assert found == [Status.OK, Status.LIMBO, Status.OK], "the others are here again"
    # Its copies come back.
    for bookie_id in others:
        scene.cluster.faults[bookie_id].alter_read = None
    assert await worker_of(scene).look() == 1
    assert await look(check) == 1


async def test_while_auto_recovery_is_disabled_what_is_lacking_is_marked_for_later(
    scene: Scene,
) -> None:
    await write(scene, 3)
    wiped = scene.ensemble[0]
    await scene.cluster.wipe(wiped)
    check = await integrity_of(scene, wiped)
    await marks_of(scene).set_enabled(False)

    await look(check)

    assert await marked(scene) == [scene.ledger_id]


@pytest.mark.conformance("A6")
async def test_deleted_ledgers_are_forgotten(scene: Scene) -> None:
    await write(scene, 3)
    wiped = scene.ensemble[0]
    await scene.cluster.wipe(wiped)
    check = await integrity_of(scene, wiped)
    await scene.client.cluster.ledgers.delete(scene.ledger_id)

    assert await look(check) == 0
    assert check.limbo_count == 1, "the collector deletes it"
    await scene.cluster.bookies[wiped].delete([(scene.ledger_id, scene.ledger_id)])
    assert await look(check) == 0
    assert check.limbo_count == 0


# -- damage -----------------------------------------------------------------------------------------


async def rot(scene: Scene, bookie_id: str, entries: int, part: int = 2) -> None:
    """A bit of that part of its entry log changes while nobody looks, the entries being as large as each other."""
    await scene.cluster.bookies[bookie_id].stop()
    (log,) = (scene.cluster.place_of(bookie_id) / "l").glob("*.log")
    content = bytearray(log.read_bytes())
    content[64 + part * len(content) // (entries + 1)] ^= 1
    log.write_bytes(content)
    await scene.cluster.restart_bookie(bookie_id)


@pytest.mark.conformance("A6")
@SHAPES
async def test_a_scrub_finds_a_damaged_block_and_it_is_replaced(scene: Scene) -> None:
    await scene.writer.append_many([bytes([each]) * SIZE for each in range(9)])
    await scene.settle_adds()
    await scene.writer.close()
    rotten = scene.ensemble[2]
    held = {e for e in range(9) if rotten in scene.cluster.copies(scene.ledger_id, e)}
    await rot(scene, rotten, len(held))
    bookie = scene.cluster.bookies[rotten]
    check = await integrity_of(scene, rotten)
    assert await look(check) == 0
    assert await marked(scene) == [], "nobody has read it yet"

    read_bytes = await Scrubber(bookie, interval_ms=1000, pace=LoopPace(0), random=Random(1)).walk()

    assert read_bytes > (len(held) - 2) * SIZE
    assert bookie.verifier.damaged_count == 1
    (damaged,) = [e for e in held if rotten not in scene.cluster.copies(scene.ledger_id, e)]
    assert await status_of(scene, rotten, damaged) is Status.OK, "said to be wanted"
    listed = await scene.cluster.client(9).cluster.client(rotten).list_entries(scene.ledger_id)
    assert not any(r.first_entry <= damaged <= r.last_entry for r in listed.held)
    await look(check)
    assert await marked(scene) == [scene.ledger_id]
    assert await worker_of(scene).look() == 1
    await look(check)

    assert bookie.verifier.damaged_count == 0
    assert await marked(scene) == []
    await assert_whole(scene)
    await bookie.stop()
    await scene.cluster.restart_bookie(rotten)
    await assert_whole(scene)


async def test_damage_of_an_open_fragment_waits_until_it_is_complete(scene: Scene) -> None:
    await scene.writer.append_many([b"x" * SIZE] * 4)
    await scene.settle_adds()
    rotten = scene.ensemble[0]
    await rot(scene, rotten, 4)
    bookie = scene.cluster.bookies[rotten]
    check = await integrity_of(scene, rotten)
    await Scrubber(bookie, interval_ms=1000, pace=LoopPace(0), random=Random(1)).walk()
    assert bookie.verifier.damaged_count == 1

    await look(check)
    assert await marked(scene) == []

    await scene.recover()
    if bookie.verifier.damaged_count:
        await look(check)
        await worker_of(scene).look()
        await look(check)
    assert bookie.verifier.damaged_count == 0
    await assert_whole(scene)


async def test_a_disk_that_had_a_bad_moment_is_no_reason_to_copy(scene: Scene) -> None:
    await scene.writer.append_many([b"x" * SIZE] * 4)
    await scene.settle_adds()
    await scene.writer.close()
    rotten = scene.ensemble[0]
    await rot(scene, rotten, 4)
    bookie = scene.cluster.bookies[rotten]
    await Scrubber(bookie, interval_ms=1000, pace=LoopPace(0), random=Random(1)).walk()
    assert bookie.verifier.damaged_count == 1
    (log,) = (scene.cluster.place_of(rotten) / "l").glob("*.log")
    content = bytearray(log.read_bytes())
    content[64 + 2 * len(content) // 5] ^= 1
    log.write_bytes(content)

    await look(await integrity_of(scene, rotten))

    assert bookie.verifier.damaged_count == 0
    assert await marked(scene) == []


async def test_a_walk_finds_the_damage_that_the_one_before_had_no_room_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first damaged entry there is no other copy: it stays damaged, and in mind."""
    monkeypatch.setattr(damaged_entries, "IDS_MAX", 1)
    await scene.writer.append_many([b"x" * SIZE] * 9)
    await scene.settle_adds()
    await scene.writer.close()
    rotten = scene.ensemble[0]
    for part in (2, 6):
        await rot(scene, rotten, 9, part)
    damaged = [e for e in range(9) if rotten not in scene.cluster.copies(scene.ledger_id, e)]
    bookie = scene.cluster.bookies[rotten]
    scrubber = Scrubber(bookie, interval_ms=1000, pace=LoopPace(0), random=Random(1))

    def without_the_first(reply: ReadReply) -> ReadReply:
        if not any(damaged[0] in run.entry_ids for run in reply.runs):
            return reply
        return ReadReply((), (IdRange(0, 8, Status.UNKNOWN),), -1)

    scene.cluster.set_faults(*scene.ensemble[1:], alter_read=without_the_first)
    check = await integrity_of(scene, rotten)
    for _ in range(3):
        await scrubber.walk()
        await look(check)
        await worker_of(scene).look()

    assert [e for e in range(9) if rotten not in scene.cluster.copies(scene.ledger_id, e)] == (
        damaged[:1]
    )
