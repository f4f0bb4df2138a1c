"""A ledger gets back the copies that its metadata promises, on real bookies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from bookie_server.wire.messages import Status
from bookkeeper_metadata.foundation.pace import LoopPace
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.replication.mending import LedgerMender, Mended
from tests.spark_bookkeeper.ledger.scene import Scene, numbers, read_all

FIVE = pytest.mark.cluster(bookies=5)
SHAPES = pytest.mark.parametrize(
    "quorums", [(3, 3, 2), (3, 2, 2), (4, 2, 1), (2, 1, 1)], ids=lambda q: "-".join(map(str, q))
)


class Meanwhile(LoopPace):
    """Does something whenever entries are about to be copied."""

    def __init__(self, happens: Callable[[int], Awaitable[None]], at_most: int = 1_000) -> None:
        super().__init__(0)
        self._happens = happens
        self._left = at_most

    async def take(self, size_bytes: int) -> None:
        if self._left:
            self._left -= 1
            await self._happens(size_bytes)


async def mend(scene: Scene, own: str | None = None, seed: int = 7) -> Mended:
    """As a process of its own would."""
    context = scene.cluster.client(seed).cluster
    return await LedgerMender(context, LoopPace(0), own).mend(scene.ledger_id)


async def assert_whole(scene: Scene, *, last_entry: int | None = None) -> None:
    """Every entry of a complete fragment is, byte for byte alike, where the metadata says."""
    metadata = await scene.metadata()
    quorum = QuorumConfig.of(metadata)
    end = metadata.last_entry if last_entry is None else last_entry
    for entry_id in range(end + 1):
        ensemble = metadata.fragment_of(entry_id).ensemble
        wanted = {ensemble[position] for position in quorum.write_set(entry_id)}
        copies = scene.cluster.copies(scene.ledger_id, entry_id)
        assert wanted <= copies.keys(), f"{entry_id=}"
        assert len({copies[each] for each in wanted}) == 1


async def write(scene: Scene, count: int) -> None:
    """So many entries, on all of their bookies, and the end of the ledger."""
    await scene.writer.append_many(numbers(count))
    await scene.settle_adds()
    await scene.writer.close()


async def lose(scene: Scene, bookie_id: str) -> None:
    await scene.cluster.take_away(bookie_id)


@pytest.mark.conformance("A11")
@SHAPES
@pytest.mark.parametrize("count", [0, 1, 2, 50, 2_500])
@FIVE
async def test_a_lost_bookies_copies_are_made_again_elsewhere(
    scene: Scene, count: int, quorums: tuple[int, int, int]
) -> None:
    payloads = numbers(count)
    await scene.writer.append_many(payloads)
    await scene.writer.close()
    lost = scene.ensemble[0]
    is_single = quorums[1] == 1 and count > 0
    if not is_single:
        await lose(scene, lost)
    else:
        # The only copy: it leaves in good order, and is read from meanwhile.
        await scene.cluster.registrations[lost].withdraw()

    mended = await mend(scene)

    assert mended.is_whole
    assert [(first, before) for first, before, _ in mended.replaced] == [(0, lost)]
    assert lost not in (await scene.metadata()).last_fragment.ensemble
    await assert_whole(scene)
    assert (await mend(scene)).replaced == []
    assert await read_all(await scene.open()) == payloads


@pytest.mark.cluster(bookies=9)
@pytest.mark.parametrize("quorums", [(8, 1, 1)])
async def test_entries_far_apart_are_copied_as_well(scene: Scene) -> None:
    """No section may hold ids that are 65,536 apart, and small entries of a stripe would fit."""
    await scene.writer.append_many([b""] * 110_000)
    await scene.writer.close()
    lost = scene.ensemble[0]
    await scene.cluster.registrations[lost].withdraw()

    assert (await mend(scene)).is_whole

    (last,) = (await scene.metadata()).fragments
    for entry_id in (0, 37_448, 65_536, 109_992):
        holder = last.ensemble[entry_id % 8]
        assert holder in scene.cluster.copies(scene.ledger_id, entry_id)


@FIVE
async def test_one_ledger_loses_two_bookies_at_once(scene: Scene) -> None:
    await write(scene, 100)
    for bookie_id in scene.ensemble[:2]:
        await lose(scene, bookie_id)

    mended = await mend(scene)

    assert mended.is_whole
    assert len({target for _, _, target in mended.replaced}) == 2
    await assert_whole(scene)


async def test_a_member_that_missed_entries_gets_those_and_nothing_else(scene: Scene) -> None:
    """The writer went on without it: AQ of WQ."""
    await scene.writer.append_many(numbers(10))
    scene.faults[1].write_status = None
    scene.faults[1].drops_writes = True
    await scene.writer.append_many(numbers(7))
    scene.faults[1].drops_writes = False
    await write(scene, 3)
    await scene.settle_adds()
    missed = [
        entry_id
        for entry_id in range(20)
        if scene.ensemble[1] not in scene.cluster.copies(scene.ledger_id, entry_id)
    ]
    assert missed
    seen = len(scene.faults[1].writes_seen)

    mended = await mend(scene)

    assert mended.is_whole
    assert mended.replaced == []
    await assert_whole(scene)
    sent = scene.faults[1].writes_seen[seen:]
    assert [n for each in sent for n in range(each.first_entry, each.last_entry + 1)] == missed


@FIVE
async def test_our_own_bookie_is_the_first_to_take_copies(scene: Scene) -> None:
    await write(scene, 3)
    lost = scene.ensemble[2]
    outside = sorted(scene.cluster.bookies.keys() - set(scene.ensemble))
    await lose(scene, lost)

    mended = await mend(scene, own=outside[1])

    assert mended.replaced == [(0, lost, outside[1])]


@FIVE
async def test_a_bookie_that_refuses_is_passed_over(scene: Scene) -> None:
    await write(scene, 3)
    lost = scene.ensemble[0]
    first, second = sorted(scene.cluster.bookies.keys() - set(scene.ensemble))
    scene.cluster.faults[first].write_status = Status.READ_ONLY
    await lose(scene, lost)

    mended = await mend(scene, own=first)

    assert mended.replaced == [(0, lost, second)]
    await assert_whole(scene)


@pytest.mark.conformance("A13")
async def test_without_another_bookie_it_says_so_and_changes_nothing(scene: Scene) -> None:
    await write(scene, 3)
    before = await scene.metadata()
    await lose(scene, scene.ensemble[0])

    mended = await mend(scene)

    assert not mended.is_whole
    assert mended.left == [f"{scene.ensemble[0]} is away, and no other bookie can take its place"]
    assert await scene.metadata() == before


@FIVE
async def test_an_entry_that_nobody_returns_ends_it_and_the_metadata_stays(scene: Scene) -> None:
    await write(scene, 3)
    before = await scene.metadata()
    await lose(scene, scene.ensemble[0])
    for bookie_id in scene.ensemble[1:]:
        scene.cluster.faults[bookie_id].read_status = Status.UNKNOWN

    mended = await mend(scene)

    (why,) = mended.left
    assert "what it held cannot all be had: no replica returned the entry" in why
    assert not mended.is_whole
    assert await scene.metadata() == before


@FIVE
async def test_a_bookie_that_cannot_say_what_it_holds_is_left_alone(scene: Scene) -> None:
    await write(scene, 3)
    doubtful = scene.ensemble[1]
    scene.cluster.bookies[doubtful].storage.contents.suspect_everything()

    mended = await mend(scene)

    assert mended.left == [f"{doubtful} does not know what it holds: UNKNOWN"]
    assert mended.replaced == []


@FIVE
async def test_a_copy_that_is_lost_before_it_is_named_is_made_again(scene: Scene) -> None:
    """The bookie's limbo covers what the metadata names it for, and it was not named yet."""
    await write(scene, 5)
    lost = scene.ensemble[0]
    target = min(scene.cluster.bookies.keys() - set(scene.ensemble))
    await lose(scene, lost)
    context, wiped = scene.cluster.client(7).cluster, False
    update = context.ledgers.update

    async def lose_the_copy(*asked: Any, **how: Any) -> Any:
        nonlocal wiped
        if not wiped:
            wiped = True
            await scene.cluster.wipe(target)
        return await update(*asked, **how)

    context.ledgers.update = lose_the_copy  # type: ignore[method-assign]
    mended = await LedgerMender(context, LoopPace(0), target).mend(scene.ledger_id)

    assert wiped
    assert mended.is_whole
    await assert_whole(scene)


@FIVE
@pytest.mark.parametrize("quorums", [(3, 3, 3)])
async def test_of_an_open_ledger_everything_but_the_last_fragment_is_mended(scene: Scene) -> None:
    await scene.writer.append_many(numbers(10))
    (lost,) = scene.fail(0)
    await scene.writer.append_many(numbers(5))
    assert len((await scene.metadata()).fragments) == 2
    await lose(scene, lost)

    mended = await mend(scene)

    assert mended.is_whole
    assert [(first, before) for first, before, _ in mended.replaced] == [(0, lost)]
    await assert_whole(scene, last_entry=9)
    # The writer is none the wiser, and its next change keeps what was mended.
    scene.fail(1)
    await write(scene, 5)
    metadata = await scene.metadata()
    assert lost not in metadata.fragments[0].ensemble
    assert metadata.last_entry == 19


@FIVE
async def test_the_last_fragment_of_a_ledger_that_is_written_is_its_writers(scene: Scene) -> None:
    await scene.writer.append_many(numbers(10))
    before = await scene.metadata()
    await lose(scene, scene.ensemble[2])

    mended = await mend(scene)

    assert mended.open_fragment == before.last_fragment
    assert not mended.is_whole
    assert (await scene.metadata()).fragments == before.fragments


@FIVE
async def test_two_who_mend_the_same_break_nothing(scene: Scene) -> None:
    await write(scene, 300)
    await lose(scene, scene.ensemble[0])

    both = await asyncio.gather(mend(scene, seed=1), mend(scene, seed=2))

    assert all(each.is_whole for each in both)
    assert sum(len(each.replaced) for each in both) == 1
    await assert_whole(scene)


@FIVE
async def test_a_ledger_that_was_deleted_lacks_nothing(scene: Scene) -> None:
    await write(scene, 3)
    await scene.client.cluster.ledgers.delete(scene.ledger_id)

    mended = await mend(scene)

    assert mended.is_gone
    assert mended.is_whole


@FIVE
async def test_a_place_that_somebody_else_filled_meanwhile_is_not_taken_away(scene: Scene) -> None:
    await write(scene, 10)
    lost = scene.ensemble[0]
    first, second = sorted(scene.cluster.bookies.keys() - set(scene.ensemble))
    await lose(scene, lost)
    context = scene.cluster.client(7).cluster

    async def mend_it_too(_: int) -> None:
        await mend(scene, own=second)

    mended = await LedgerMender(context, Meanwhile(mend_it_too, at_most=1), first).mend(
        scene.ledger_id
    )

    assert mended.is_whole
    assert mended.replaced == []
    assert second in (await scene.metadata()).last_fragment.ensemble
    await assert_whole(scene)


@pytest.mark.conformance("F6")
@FIVE
async def test_copies_that_were_made_again_unfence_nothing(scene: Scene) -> None:
    await scene.writer.append_many(numbers(3))
    (late, *_) = scene.faults[1].writes_seen
    await scene.recover()
    lost = scene.ensemble[0]
    await lose(scene, lost)

    assert (await mend(scene)).is_whole

    answers = await scene.answers_to(late)
    assert answers == [Status.UNREACHABLE, Status.FENCED, Status.FENCED]


def test_what_is_whole_says_nothing_is_left() -> None:
    assert Mended(1).is_whole
    assert not replace(Mended(1), left=["x"]).is_whole


@FIVE
async def test_a_lost_bookies_copies_of_tiny_entries_are_made_again(scene: Scene) -> None:
    """More of them fit the bytes of a frame than a bookie takes in a section: each attempt failed alike."""
    payloads = [b""] * 40_000
    await scene.writer.append_many(payloads)
    await scene.writer.close()
    await lose(scene, scene.ensemble[0])

    assert (await mend(scene)).is_whole

    assert await scene.read() == payloads
    await assert_whole(scene, last_entry=50)
