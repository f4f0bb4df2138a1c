"""Bookies that fail under a writer: who replaces them, from which entry on, and who is told what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Transform, Versioned
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.errors import (
    AddQuorumTimeoutError,
    LedgerClosedError,
    LedgerFencedError,
    NotEnoughBookiesError,
)
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.doubles.cluster import InProcessCluster, running_cluster
from tests.doubles.stores import Script
from tests.doubles.waits import pass_turns, until
from tests.spark_bookkeeper.ledger.ledgers import read_ledger


def fail(cluster: InProcessCluster, writer: WriteHandle, *positions: int) -> list[str]:
    """Kill the bookies at these positions of the present ensemble."""
    ensemble = writer.metadata.last_fragment.ensemble
    for position in positions:
        cluster.faults[ensemble[position]].is_dead = True
    return [ensemble[position] for position in positions]


async def change(
    client: LedgerClient, ledger_id: int, transform: Transform[BookKeeperError]
) -> Versioned:
    """Change a ledger's metadata behind its writer's back."""
    known = await client.cluster.ledgers.read(ledger_id)
    return await client.cluster.update(ledger_id, transform, known)


@pytest.mark.conformance("W3")
@pytest.mark.cluster(bookies=4)
async def test_a_bookie_that_fails_at_once_is_replaced_in_place(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    (dead,) = fail(cluster, writer, 1)

    await writer.append_many([b"0", b"1"])
    await pass_turns(50)

    (fragment,) = writer.metadata.fragments
    assert fragment.first_entry == 0
    assert dead not in fragment.ensemble
    await writer.close()
    assert await read_ledger(client, writer.ledger_id) == [b"0", b"1"]


@pytest.mark.conformance("W4")
@pytest.mark.cluster(bookies=4)
async def test_a_bookie_that_fails_later_is_replaced_from_the_next_entry_on(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    await writer.append(b"0")
    (dead,) = fail(cluster, writer, 0)
    await writer.append(b"1")
    await pass_turns(50)
    await writer.append(b"2")
    await writer.close()

    metadata = await client.ledger_metadata(writer.ledger_id)
    assert len(metadata.fragments) == 2
    assert dead in metadata.fragments[0].ensemble
    assert dead not in metadata.fragments[1].ensemble
    assert await read_ledger(client, writer.ledger_id) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 3, 3), (3, 2, 2), (5, 3, 2)])
async def test_the_metadata_names_the_bookies_that_really_store_an_entry(
    tmp_path: Path, quorums: tuple[int, int, int], seed: int
) -> None:
    """Apache #4097, #4194, #4651, #4660: recorded ensembles and written ones differed."""

    random = Random(seed)
    async with running_cluster(tmp_path, bookies=9, bookie_quarantine_ms=1) as cluster:
        e, w, a = quorums
        writer = await cluster.client(seed).create_ledger(
            ensemble_size=e, write_quorum=w, ack_quorum=a
        )
        for _ in range(12):
            ensemble = writer.metadata.last_fragment.ensemble
            for bookie_id in random.sample(ensemble, 2):
                answer = random.choice([None, Status.UNREACHABLE, Status.UNKNOWN])
                cluster.faults[bookie_id].write_status = answer
            pending = [writer.append_async(b"%d" % n) for n in range(random.randrange(1, 30))]
            await pass_turns(random.randrange(20))
            cluster.set_faults(write_status=None)
            await asyncio.gather(*pending)
        await writer.close()

        metadata = writer.metadata
        assert len(metadata.fragments) > 1
        for entry_id in range(metadata.last_entry + 1):
            ensemble = metadata.fragment_of(entry_id).ensemble
            write_set = {ensemble[(entry_id + i) % e] for i in range(w)}
            assert len(write_set & cluster.copies(writer.ledger_id, entry_id).keys()) >= a


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 3, 3), (3, 2, 2), (4, 3, 2)])
@pytest.mark.conformance("W14", "D8")
@pytest.mark.cluster(bookies=8)
async def test_one_failure_after_another_leaves_every_entry_readable(
    cluster: InProcessCluster, client: LedgerClient, quorums: tuple[int, int, int]
) -> None:
    """W14, D8: also for a reader that opened the ledger before."""
    e, w, a = quorums
    writer = await client.create_ledger(ensemble_size=e, write_quorum=w, ack_quorum=a)
    reader = await client.open_ledger(writer.ledger_id)
    dead: list[str] = []
    for round_number in range(4):
        batch = [f"{round_number}-{i}".encode() for i in range(20)]
        appended = writer.append_many(batch)
        waiting = asyncio.ensure_future(appended)
        await asyncio.sleep(0)
        dead += fail(cluster, writer, round_number % e)
        await waiting
        await pass_turns(50)
    await writer.close()

    expected = [f"{r}-{i}".encode() for r in range(4) for i in range(20)]
    for bookie_id in dead[:-1]:
        cluster.faults[bookie_id].is_dead = False
    assert await read_ledger(client, writer.ledger_id) == expected
    last = await reader.read_last_add_confirmed()
    assert [bytes(e.payload) async for e in reader.read(0, last)] == expected


@pytest.mark.conformance("W5")
async def test_with_too_few_bookies_the_ledger_is_closed_at_its_last_acknowledged_entry(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    """W5: without anybody having to close it."""
    await writer.append(b"0")
    fail(cluster, writer, 0, 1)

    with pytest.raises(NotEnoughBookiesError):
        await writer.append(b"1")
    await pass_turns(50)

    metadata = await client.ledger_metadata(writer.ledger_id)
    assert (metadata.is_closed, metadata.last_entry, metadata.length) == (True, 0, 1)
    with pytest.raises(NotEnoughBookiesError):
        await writer.append(b"2")
    await writer.close()


@pytest.mark.conformance("W2")
@pytest.mark.cluster(bookies=6)
async def test_a_second_bookie_failing_during_the_change_is_replaced_too(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    await writer.append(b"0")
    dead = fail(cluster, writer, 0, 2)
    await writer.append_many([b"1", b"2"])
    await pass_turns(50)
    await writer.close()

    assert not set(dead) & set(writer.metadata.last_fragment.ensemble)
    assert await read_ledger(client, writer.ledger_id) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY])
@pytest.mark.cluster(bookies=5)
async def test_a_lost_metadata_message_delays_acknowledgements_and_nothing_else(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle, fault: Fault
) -> None:
    await writer.append(b"0")
    cluster.store.fault = script = Script()
    script.lose("put", 1, fault)
    script.lose("put", 2, fault)
    fail(cluster, writer, 1)
    await writer.append_many([b"1"] * 3)
    cluster.store.fault = None
    await writer.close()

    assert script.paths("put")
    metadata = await client.ledger_metadata(writer.ledger_id)
    assert [f.first_entry for f in metadata.fragments] == [0, 1]
    assert await read_ledger(client, writer.ledger_id) == [b"0", b"1", b"1", b"1"]


@pytest.mark.cluster(bookies=5, ensemble_change_timeout_ms=50)
async def test_metadata_that_stays_away_ends_the_writer(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    writer = await client.create_ledger(ack_quorum=3)
    await writer.append(b"0")
    cluster.store.fault = lambda operation, path: Fault.LOST_REQUEST
    fail(cluster, writer, 1)

    with pytest.raises(MetadataUnavailableError):
        await writer.append(b"1")

    with pytest.raises(MetadataUnavailableError):
        await writer.close()
    cluster.store.fault = None
    await writer.close()  # a close that failed is tried again
    assert writer.metadata.last_entry == 0
    assert await read_ledger(client, writer.ledger_id) == [b"0"]


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.conformance("W7", "ClientChangesEnsemble")
@pytest.mark.cluster(bookies=5)
async def test_a_ledger_taken_over_meanwhile_ends_the_writer(
    cluster: InProcessCluster, client: LedgerClient, is_closed: bool
) -> None:
    """W7, M3: neither state is ever overwritten by an ensemble change."""
    writer = await client.create_ledger(ack_quorum=3)
    await writer.append(b"0")
    take: Transform[BookKeeperError] = (
        (lambda m: m.closed(0, 1)) if is_closed else LedgerMetadata.in_recovery
    )
    taken = await change(client, writer.ledger_id, take)
    fail(cluster, writer, 1)

    with pytest.raises(LedgerClosedError if is_closed else LedgerFencedError):
        await writer.append(b"1")

    metadata = await client.ledger_metadata(writer.ledger_id)
    assert metadata == taken.metadata


@pytest.mark.conformance("W8")
@pytest.mark.cluster(bookies=6)
async def test_an_older_fragment_changed_elsewhere_is_kept(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    """W8: re-replication moves an old fragment while the writer replaces a bookie."""
    await writer.append(b"0")
    fail(cluster, writer, 0)
    await writer.append(b"1")
    await pass_turns(50)

    def move(metadata: LedgerMetadata) -> LedgerMetadata:
        old = metadata.fragments[0]
        spare = next(b for b in cluster.bookies if b not in old.ensemble)
        moved = Fragment(0, (spare, *old.ensemble[1:]))
        return replace(metadata, fragments=(moved, *metadata.fragments[1:]))

    moved = await change(client, writer.ledger_id, move)
    fail(cluster, writer, 1)
    await writer.append(b"2")
    await pass_turns(50)
    await writer.close()

    fragments = (await client.ledger_metadata(writer.ledger_id)).fragments
    assert fragments[0] == moved.metadata.fragments[0]
    assert [f.first_entry for f in fragments] == [0, 1, 2]


@pytest.mark.conformance("W6")
@pytest.mark.cluster(bookies=5)
async def test_closing_during_a_change_ends_consistently(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    writer = await client.create_ledger(ack_quorum=3)
    await writer.append(b"0")
    fail(cluster, writer, 1)
    future = writer.append_async(b"1")
    await asyncio.gather(writer.close(), writer.close())

    assert future.result() == 1
    metadata = await client.ledger_metadata(writer.ledger_id)
    assert (metadata.last_entry, metadata.is_closed) == (1, True)


@pytest.mark.cluster(bookies=5, bookie_quarantine_ms=200)
async def test_bookies_that_failed_a_writer_are_avoided_for_a_while(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    (dead,) = fail(cluster, writer, 0)
    await writer.append(b"0")
    await pass_turns(50)

    for _ in range(10):
        other = await client.create_ledger()
        assert dead not in other.metadata.last_fragment.ensemble
    assert dead in client.cluster.quarantined()
    await asyncio.sleep(0.25)
    assert dead not in client.cluster.quarantined()


async def test_an_avoided_bookie_is_better_than_none(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    client.cluster.quarantine("b0:1")

    writer = await client.create_ledger()

    assert "b0:1" in writer.metadata.last_fragment.ensemble


@pytest.mark.cluster(ensemble_change_retry_ms=10)
async def test_a_writer_that_does_without_a_bookie_takes_one_that_turns_up(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    (dead,) = fail(cluster, writer, 2)
    await writer.append(b"0")
    await pass_turns(50)
    assert dead in writer.metadata.last_fragment.ensemble

    await cluster.start_bookie("b9:1")
    await until(lambda: dead not in writer.metadata.last_fragment.ensemble)
    await writer.append(b"1")
    await writer.close()

    assert "b9:1" in writer.metadata.last_fragment.ensemble
    assert await read_ledger(client, writer.ledger_id) == [b"0", b"1"]


@pytest.mark.cluster(ensemble_change_retry_ms=10, bookie_quarantine_ms=50)
async def test_a_bookie_that_comes_back_takes_its_place_again(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    await writer.append(b"0")
    ensemble = writer.metadata.last_fragment.ensemble
    (dead,) = fail(cluster, writer, 2)
    await writer.append(b"1")
    await pass_turns(50)
    cluster.faults[dead].is_dead = False
    await until(lambda: len(writer.metadata.fragments) == 2)
    fail(cluster, writer, 0)

    await writer.append(b"2")  # without it there would be no ack quorum
    await writer.close()

    fragments = writer.metadata.fragments
    assert {f.ensemble for f in fragments} == {ensemble}
    assert await read_ledger(client, writer.ledger_id) == [b"0", b"1", b"2"]


@pytest.mark.conformance("W24")
@pytest.mark.cluster(add_quorum_timeout_ms=50)
async def test_an_add_that_misses_its_quorum_deadline_ends_the_writer_and_closes_the_ledger(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    await writer.append(b"0")
    cluster.set_faults(drops_writes=True)
    futures = [writer.append_async(b"1"), writer.append_async(b"2")]

    outcomes = await asyncio.gather(*futures, return_exceptions=True)

    assert all(isinstance(outcome, AddQuorumTimeoutError) for outcome in outcomes)
    await writer.close()
    assert (await client.ledger_metadata(writer.ledger_id)).last_entry == 0


@pytest.mark.conformance("W11")
@pytest.mark.cluster(bookies=4)
async def test_a_read_only_bookie_is_replaced(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    """W11's read-only case; changes are never delayed here."""
    await writer.append(b"0")
    readonly = writer.metadata.last_fragment.ensemble[1]
    cluster.faults[readonly].write_status = Status.READ_ONLY
    await writer.append(b"1")
    await pass_turns(50)
    await writer.close()

    assert readonly not in writer.metadata.last_fragment.ensemble
    assert await read_ledger(client, writer.ledger_id) == [b"0", b"1"]
