"""Bookies that fail under a writer: who replaces them, from which entry on, and who is told what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from unittest.mock import Mock

import pytest

from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Transform
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.errors import (
    AddQuorumTimeoutError,
    LedgerFencedError,
    NotEnoughBookiesError,
)
from tests.doubles.cluster import InProcessCluster
from tests.doubles.stores import Script
from tests.doubles.waits import pass_turns, until
from tests.spark_bookkeeper.ledger.scene import ACK_BY_ALL, Scene, assert_at_ack_quorum, read_all


@pytest.mark.conformance("W3")
@pytest.mark.cluster(bookies=4)
async def test_a_bookie_that_fails_at_once_is_replaced_in_place(scene: Scene) -> None:
    (dead,) = scene.fail(1)

    await scene.writer.append_many([b"0", b"1"])
    await pass_turns(50)

    (fragment,) = scene.writer.metadata.fragments
    assert fragment.first_entry == 0
    assert dead not in fragment.ensemble
    await scene.writer.close()
    assert await scene.read() == [b"0", b"1"]


@pytest.mark.parametrize(
    ("positions", "how"),
    [
        ((0,), {"is_dead": True}),
        ((0, 2), {"is_dead": True}),
        ((1,), {"write_status": Status.READ_ONLY}),
    ],
    ids=["dead", "two-dead", "read-only"],
)
@pytest.mark.conformance("W2", "W4", "W11")
@pytest.mark.cluster(bookies=6)
async def test_bookies_that_fail_later_are_replaced_from_the_next_entry_on(
    scene: Scene, positions: tuple[int, ...], how: dict[str, object]
) -> None:
    """W2: the second during the change for the first. W11's read-only case; none is ever delayed."""
    await scene.writer.append(b"0")
    failed = set(scene.fail(*positions, **how))
    await scene.writer.append(b"1")
    await pass_turns(50)
    await scene.writer.append(b"2")
    await scene.writer.close()

    before, after = (await scene.metadata()).fragments
    assert failed <= set(before.ensemble)
    assert not failed & set(after.ensemble)
    assert (before.first_entry, after.first_entry) == (0, 1)
    assert await scene.read() == [b"0", b"1", b"2"]


@pytest.mark.cluster(bookies=3, ensemble_change_retry_ms=1, bookie_quarantine_ms=1)
async def test_a_bookie_that_lost_its_disk_ends_no_writer_and_takes_part_no_more(
    scene: Scene,
) -> None:
    """It is the only candidate; another ledger may have it."""
    await scene.writer.append(b"0")
    lost = scene.cluster.bookies[scene.ensemble[2]]
    lost.storage.contents.set_limbo([scene.ledger_id])
    searches = Mock(side_effect=scene.client.cluster.replace_bookies)
    scene.client.cluster.replace_bookies = searches  # type: ignore[method-assign]

    await scene.writer.append(b"1")
    await until(lambda: searches.call_count > 3)
    await scene.writer.append(b"2")
    excluded = {call.kwargs["excluded"] for call in searches.call_args_list}
    assert excluded == {frozenset({scene.ensemble[2]})}

    assert list(lost.storage.contents.entry_ids(scene.ledger_id)) == [range(1)]
    assert scene.writer.metadata.fragments == (Fragment(0, scene.ensemble),)
    async with await scene.client.create_ledger() as other:
        await other.append(b"0")
        assert scene.ensemble[2] in other.metadata.last_fragment.ensemble
    await scene.writer.close()
    assert await scene.read() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("quorums", [(3, 3, 1)])
@pytest.mark.cluster(ensemble_change_retry_ms=5, bookie_quarantine_ms=10)
async def test_a_bookie_in_limbo_keeps_no_other_one_from_coming_back(scene: Scene) -> None:
    """The search for it never ends; it was the only one, and knew of no other failure."""
    await scene.writer.append(b"0")
    lost = scene.cluster.bookies[scene.ensemble[0]]
    lost.storage.contents.set_limbo([scene.ledger_id])
    await scene.writer.append(b"1")
    await asyncio.sleep(0.03)
    (blinking,) = scene.fail(1, write_status=Status.READ_ONLY)
    await scene.writer.append(b"2")
    scene.cluster.set_faults(blinking, write_status=None)

    def is_back() -> bool:
        return 1 not in scene.writer._state.failed_bookies

    await until(is_back)
    entry_id = await scene.writer.append(b"3")
    await scene.settle_adds()
    returned = scene.cluster.bookies[scene.ensemble[1]].storage.contents
    assert returned.last_entry(scene.ledger_id) == entry_id
    assert lost.storage.contents.last_entry(scene.ledger_id) == 0


@pytest.mark.cluster(bookies=3, ensemble_change_retry_ms=50)
async def test_a_full_bookie_costs_its_writer_no_ledger_and_comes_back_when_it_has_room(
    scene: Scene,
) -> None:
    """With the quarantine of one that failed it was left alone for half a minute after that."""
    await scene.writer.append(b"0")
    (full,) = scene.fail(2, write_status=Status.READ_ONLY)

    # given nobody to replace it, then the writer goes on without
    for payload in (b"1", b"2"):
        await scene.writer.append(payload)

    # when there is room, then it is a member again, of this ledger and of new ones
    scene.cluster.set_faults(full, write_status=None)
    await until(lambda: not scene.writer._state.failed_bookies)
    entry_id = await scene.writer.append(b"3")
    await scene.settle_adds()
    contents = scene.cluster.bookies[full].storage.contents
    assert contents.last_entry(scene.ledger_id) == entry_id


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 3, 3), (3, 2, 2), (5, 3, 2)])
@pytest.mark.cluster(bookies=9, bookie_quarantine_ms=1)
async def test_the_metadata_names_the_bookies_that_really_store_an_entry(
    cluster: InProcessCluster, quorums: tuple[int, int, int], seed: int
) -> None:
    """Apache #4097, #4194, #4651, #4660: recorded ensembles and written ones differed."""
    random, (e, w, a) = Random(seed), quorums
    client = cluster.client(seed)
    writer = await client.create_ledger(ensemble_size=e, write_quorum=w, ack_quorum=a)
    for _ in range(12):
        for bookie_id in random.sample(writer.metadata.last_fragment.ensemble, 2):
            answer = random.choice([None, Status.UNREACHABLE, Status.UNKNOWN])
            cluster.faults[bookie_id].write_status = answer
        pending = [writer.append_async(b"%d" % n) for n in range(random.randrange(1, 30))]
        await pass_turns(random.randrange(20))
        cluster.set_faults(write_status=None)
        await asyncio.gather(*pending)
    await writer.close()

    assert len(writer.metadata.fragments) > 1
    assert_at_ack_quorum(cluster, writer.ledger_id, writer.metadata)


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 3, 3), (3, 2, 2), (4, 3, 2)])
@pytest.mark.conformance("W14", "D8")
@pytest.mark.cluster(bookies=8)
async def test_one_failure_after_another_leaves_every_entry_readable(
    scene: Scene, quorums: tuple[int, int, int]
) -> None:
    """W14, D8: also for a reader that opened the ledger before."""
    reader = await scene.client.open_ledger(scene.ledger_id)
    dead: list[str] = []
    for round_number in range(4):
        batch = [f"{round_number}-{i}".encode() for i in range(20)]
        waiting = asyncio.ensure_future(scene.writer.append_many(batch))
        await asyncio.sleep(0)
        dead += scene.fail(round_number % quorums[0])
        await waiting
        await pass_turns(50)
    await scene.writer.close()

    expected = [f"{r}-{i}".encode() for r in range(4) for i in range(20)]
    scene.cluster.set_faults(*dead[:-1], is_dead=False)
    assert await scene.read() == expected
    await reader.read_last_add_confirmed()
    assert await read_all(reader) == expected


@pytest.mark.conformance("W5")
async def test_with_too_few_bookies_the_ledger_is_closed_at_its_last_acknowledged_entry(
    scene: Scene,
) -> None:
    """W5: without anybody having to close it. One dead bookie of three stops nobody."""
    await scene.writer.append(b"0")
    scene.fail(0)
    await scene.writer.append(b"1")
    scene.fail(1)

    with pytest.raises(NotEnoughBookiesError, match="ends at entry 1"):
        await scene.writer.append(b"2")
    await pass_turns(50)

    metadata = await scene.metadata()
    assert (metadata.is_closed, metadata.last_entry, metadata.length) == (True, 1, 2)
    with pytest.raises(NotEnoughBookiesError):
        await scene.writer.append(b"3")
    await scene.writer.close()
    scene.fail(1, is_dead=False)
    assert await scene.read() == [b"0", b"1"]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.cluster(bookies=5)
async def test_a_lost_metadata_message_delays_acknowledgements_and_nothing_else(
    scene: Scene, fault: Fault
) -> None:
    await scene.writer.append(b"0")
    scene.cluster.store.fault = script = Script()
    script.lose("put", 1, fault)
    script.lose("put", 2, fault)
    scene.fail(1)
    await scene.writer.append_many([b"1"] * 3)
    scene.cluster.store.fault = None
    await scene.writer.close()

    assert script.paths("put")
    metadata = await scene.metadata()
    assert [f.first_entry for f in metadata.fragments] == [0, 1]
    assert await scene.read() == [b"0", b"1", b"1", b"1"]


@pytest.mark.cluster(bookies=5, ensemble_change_timeout_ms=50)
@ACK_BY_ALL
async def test_metadata_that_stays_away_ends_the_writer(scene: Scene) -> None:
    await scene.writer.append(b"0")
    scene.cluster.store.fault = lambda operation, path: Fault.LOST_REQUEST
    scene.fail(1)

    with pytest.raises(MetadataUnavailableError):
        await scene.writer.append(b"1")

    with pytest.raises(MetadataUnavailableError):
        await scene.writer.close()
    scene.cluster.store.fault = None
    await scene.writer.close()  # a close that failed is tried again
    assert scene.writer.metadata.last_entry == 0
    assert await scene.read() == [b"0"]


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.conformance("W7", "ClientChangesEnsemble", "M3")
@pytest.mark.cluster(bookies=5)
@ACK_BY_ALL
async def test_a_ledger_taken_over_meanwhile_ends_the_writer(scene: Scene, is_closed: bool) -> None:
    """W7, M3: neither state is ever overwritten by an ensemble change."""
    await scene.writer.append(b"0")
    take: Transform[BookKeeperError] = (
        (lambda m: m.closed(0, 1)) if is_closed else LedgerMetadata.in_recovery
    )
    taken = await scene.change(take)
    scene.fail(1)

    # Not "closed", which says that the entry was not written: a recovery may have kept it.
    with pytest.raises(LedgerFencedError):
        await scene.writer.append(b"1")

    assert await scene.metadata() == taken.metadata


@pytest.mark.conformance("W8")
@pytest.mark.cluster(bookies=6)
async def test_an_older_fragment_changed_elsewhere_is_kept(scene: Scene) -> None:
    """W8: re-replication moves an old fragment while the writer replaces a bookie."""
    await scene.writer.append(b"0")
    scene.fail(0)
    await scene.writer.append(b"1")
    await pass_turns(50)

    def move(metadata: LedgerMetadata) -> LedgerMetadata:
        old = metadata.fragments[0]
        spare = next(b for b in scene.cluster.bookies if b not in old.ensemble)
        moved = Fragment(0, (spare, *old.ensemble[1:]))
        return replace(metadata, fragments=(moved, *metadata.fragments[1:]))

    moved = await scene.change(move)
    scene.fail(1)
    await scene.writer.append(b"2")
    await pass_turns(50)
    await scene.writer.close()

    fragments = (await scene.metadata()).fragments
    assert fragments[0] == moved.metadata.fragments[0]
    assert [f.first_entry for f in fragments] == [0, 1, 2]


@pytest.mark.conformance("W6")
@pytest.mark.cluster(bookies=5)
@ACK_BY_ALL
async def test_closing_during_a_change_ends_consistently(scene: Scene) -> None:
    await scene.writer.append(b"0")
    scene.fail(1)
    future = scene.writer.append_async(b"1")
    await asyncio.gather(scene.writer.close(), scene.writer.close())

    assert future.result() == 1
    metadata = await scene.metadata()
    assert (metadata.last_entry, metadata.is_closed) == (1, True)


@pytest.mark.cluster(bookies=5, bookie_quarantine_ms=3_000)
async def test_bookies_that_failed_a_writer_are_avoided_for_a_while(scene: Scene) -> None:
    (dead,) = scene.fail(0)
    await scene.writer.append(b"0")
    await pass_turns(50)

    for _ in range(10):
        other = await scene.client.create_ledger()
        assert dead not in other.metadata.last_fragment.ensemble
    assert dead in scene.client.cluster.quarantined()
    await until(lambda: dead not in scene.client.cluster.quarantined())


async def test_an_avoided_bookie_is_better_than_none(client: LedgerClient) -> None:
    client.cluster.quarantine("b0:1")

    writer = await client.create_ledger()

    assert "b0:1" in writer.metadata.last_fragment.ensemble


@pytest.mark.cluster(ensemble_change_retry_ms=10)
async def test_a_writer_that_does_without_a_bookie_takes_one_that_turns_up(scene: Scene) -> None:
    (dead,) = scene.fail(2)
    await scene.writer.append(b"0")
    await pass_turns(50)
    assert dead in scene.ensemble

    await scene.cluster.start_bookie("b9:1")
    await until(lambda: dead not in scene.ensemble)
    await scene.writer.append(b"1")
    await scene.writer.close()

    assert "b9:1" in scene.ensemble
    assert await scene.read() == [b"0", b"1"]


@pytest.mark.cluster(ensemble_change_retry_ms=10, bookie_quarantine_ms=50)
async def test_a_bookie_that_comes_back_takes_its_place_again(scene: Scene) -> None:
    await scene.writer.append(b"0")
    ensemble = scene.ensemble
    (dead,) = scene.fail(2)
    await scene.writer.append(b"1")
    await pass_turns(50)
    scene.cluster.faults[dead].is_dead = False
    await until(lambda: len(scene.writer.metadata.fragments) == 2)
    scene.fail(0)

    await scene.writer.append(b"2")  # without it there would be no ack quorum
    await scene.writer.close()

    fragments = scene.writer.metadata.fragments
    assert {f.ensemble for f in fragments} == {ensemble}
    assert await scene.read() == [b"0", b"1", b"2"]


@pytest.mark.conformance("W24")
@pytest.mark.cluster(add_quorum_timeout_ms=1_500)
async def test_an_add_that_misses_its_quorum_deadline_ends_the_writer_and_closes_the_ledger(
    scene: Scene,
) -> None:
    await scene.writer.append(b"0")
    scene.cluster.set_faults(drops_writes=True)
    futures = [scene.writer.append_async(b"1"), scene.writer.append_async(b"2")]

    outcomes = await asyncio.gather(*futures, return_exceptions=True)

    assert all(isinstance(outcome, AddQuorumTimeoutError) for outcome in outcomes)
    await scene.writer.close()
    assert (await scene.metadata()).last_entry == 0
