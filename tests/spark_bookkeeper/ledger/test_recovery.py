"""Fencing and recovery through real bookies (rules R*, F*; invariants I1-I13)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from bookie_server.wire.digest import master_key
from bookie_server.wire.messages import IdRange, ReadLacRequest, ReadReply, Status
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import LedgerMetadata, LedgerState, Stop, Versioned
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.errors import (
    EntryUnreadableError,
    LedgerFencedError,
    LedgerRecoveryError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.doubles.cluster import InProcessCluster, running_cluster
from tests.spark_bookkeeper.ledger.ledgers import open_ledger_with_tail, read_all, settle_adds


@pytest.mark.parametrize("count", [0, 1, 2, 2500])
@pytest.mark.conformance("R1", "R2")
async def test_recovery_closes_a_ledger_at_its_last_acknowledged_entry(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle, count: int
) -> None:
    payloads = [b"%d" % i for i in range(count)]
    await writer.append_many(payloads)

    reader = await cluster.client(2).open_ledger(writer.ledger_id, recovery=True)

    assert reader.is_closed
    assert reader.last_add_confirmed == count - 1
    assert await read_all(reader) == payloads
    assert reader.length == sum(map(len, payloads))


@pytest.mark.conformance("F1")
async def test_a_fenced_writer_is_told_and_never_acknowledges_again(
    cluster: InProcessCluster, writer: WriteHandle
) -> None:
    """F1, I20."""
    await writer.append(b"0")
    reader = await cluster.client(2).open_ledger(writer.ledger_id, recovery=True)

    with pytest.raises(LedgerFencedError):
        await writer.append(b"1")
    with pytest.raises(LedgerFencedError):
        await writer.append(b"2")

    assert reader.last_add_confirmed == 0
    await writer.close()  # finds it closed at exactly its last entry


@pytest.mark.conformance("F5")
async def test_opening_without_recovery_does_not_disturb_the_writer(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    """F5: the reader sees what is confirmed, which lags the writer by what carries the LAC."""
    for payload in (b"0", b"1", b"2"):
        await writer.append(payload)
    reader = await cluster.client(2).open_ledger(writer.ledger_id)

    assert not reader.is_closed
    assert reader.last_add_confirmed == 1
    assert await writer.append(b"3") == 3
    assert await reader.read_last_add_confirmed() == 2
    await writer.close()
    assert await reader.read_last_add_confirmed() == 3
    assert await read_all(reader) == [b"0", b"1", b"2", b"3"]


def unsure_about_two(reply: ReadReply) -> ReadReply:
    """The same answer, but "don't know" for entry 2."""
    missing = [
        IdRange(max(part.first_entry, 3), part.last_entry, part.status) for part in reply.missing
    ]
    about_two = IdRange(2, 2, Status.UNKNOWN)
    return replace(reply, missing=(about_two, *missing))


@pytest.mark.parametrize("tail_on", [{0}, {1}, {2}, {0, 2}])
@pytest.mark.conformance("ClientWritesBackEntry", "RecoveryClientReceivesAddConfirmedResponse")
async def test_an_entry_found_anywhere_is_recovered_and_replicated(
    cluster: InProcessCluster, client: LedgerClient, tail_on: set[int]
) -> None:
    """Positive is generous: one copy suffices, and recovery writes it back byte for byte."""
    ledger_id, faults = await open_ledger_with_tail(cluster, client, tail_on=tail_on)
    for position in {0, 1, 2} - tail_on:
        faults[position].alter_read = unsure_about_two

    reader = await cluster.client(2).open_ledger(ledger_id, recovery=True)

    assert await read_all(reader) == [b"0", b"1", b"tail"]
    assert reader.length == 6
    await settle_adds(cluster)
    copies = list(cluster.copies(ledger_id, 2).values())
    assert len(set(copies)) == 1
    assert len(copies) >= 2


@pytest.mark.conformance("R23")
async def test_an_entry_nobody_reachable_has_is_absent_only_with_a_coverage(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    """R23, I11: with the one holder away, two explicit negatives close before the tail."""
    ledger_id, faults = await open_ledger_with_tail(cluster, client, tail_on={0})
    faults[0].is_dead = True

    reader = await cluster.client(2).open_ledger(ledger_id, recovery=True)

    assert await read_all(reader) == [b"0", b"1"]


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.UNREACHABLE, Status.BUSY])
async def test_what_cannot_be_known_aborts_the_recovery_and_closes_nothing(
    cluster: InProcessCluster, client: LedgerClient, status: Status
) -> None:
    """I13: "don't know" is never "no"."""
    ledger_id, faults = await open_ledger_with_tail(cluster, client, tail_on={0, 1})
    faults[0].is_dead = True
    faults[1].read_status = status

    with pytest.raises(LedgerRecoveryError, match="neither readable nor provably absent"):
        await cluster.client(2).open_ledger(ledger_id, recovery=True)
    metadata = await client.ledger_metadata(ledger_id)
    assert metadata.state is LedgerState.IN_RECOVERY

    faults[0].is_dead, faults[1].read_status = False, None
    reader = await cluster.client(3).open_ledger(ledger_id, recovery=True)
    assert await read_all(reader) == [b"0", b"1", b"tail"]


@pytest.mark.conformance("R9")
async def test_too_few_fenced_bookies_close_nothing(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    """R9: all down is an error, not a ledger closed at -1."""
    ledger_id, faults = await open_ledger_with_tail(cluster, client, tail_on={0, 1, 2})
    for fault in faults[:2]:
        fault.is_dead = True

    with pytest.raises(LedgerRecoveryError, match="too few bookies could be fenced"):
        await cluster.client(2).open_ledger(ledger_id, recovery=True)
    with pytest.raises(EntryUnreadableError):
        await cluster.client(2).open_ledger(ledger_id)
    assert not (await client.ledger_metadata(ledger_id)).is_closed


@pytest.mark.conformance("R4", "R10")
async def test_a_recovery_that_cannot_write_back_closes_nothing(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    ledger_id, faults = await open_ledger_with_tail(cluster, client, tail_on={0})
    for fault in faults[1:]:
        fault.write_status = Status.READ_ONLY

    with pytest.raises(LedgerRecoveryError, match="could not be written back to an ack quorum"):
        await cluster.client(2).open_ledger(ledger_id, recovery=True)
    metadata = await client.ledger_metadata(ledger_id)
    assert metadata.state is LedgerState.IN_RECOVERY


@pytest.mark.conformance("R21")
async def test_what_lies_behind_a_gap_is_cut_off(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    """R21: entry 3 reached a bookie, entry 2 nobody: the ledger ends at 1."""
    ledger_id, faults = await open_ledger_with_tail(cluster, client, tail_on={0})

    def hide_two(reply: ReadReply) -> ReadReply:
        if not any(2 in run.entry_ids for run in reply.runs):
            return reply
        missing = IdRange(2, 10**6, Status.NO_ENTRY)
        return ReadReply((), (missing,), reply.last_add_confirmed)

    faults[0].alter_read = hide_two
    reader = await cluster.client(2).open_ledger(ledger_id, recovery=True)

    assert await read_all(reader) == [b"0", b"1"]


@pytest.mark.conformance("ClientStartsRecovery", "ClientSendsRecoveryReadRequests")
@pytest.mark.cluster(bookies=5)
async def test_every_recovery_read_fences_and_asks_the_snapshot_ensemble(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    """#2614, BOOKKEEPER-581."""
    ledger_id, _ = await open_ledger_with_tail(cluster, client, tail_on={0, 1})
    for fault in cluster.faults.values():
        fault.reads_seen.clear()
    metadata = await client.ledger_metadata(ledger_id)

    await cluster.client(2).open_ledger(ledger_id, recovery=True)

    for bookie_id, fault in cluster.faults.items():
        beyond = [r for r in fault.reads_seen if r.first_entry > 1]
        assert all(request.is_fencing for request in beyond)
        assert bool(beyond) == (bookie_id in metadata.last_fragment.ensemble)


@pytest.mark.conformance("R16")
async def test_a_writer_that_lost_the_race_for_its_ack_quorum_stays_without(
    cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle
) -> None:
    """R16 (#2614): an add delayed until after a recovery read cannot reach its quorum."""
    faults = cluster.ensemble_faults(writer.metadata.last_fragment.ensemble)
    await writer.append(b"0")
    for fault in faults[1:]:
        fault.drops_writes = True
    late = writer.append_async(b"late")
    await settle_adds(cluster)
    held = faults[1].writes_seen[-1]
    for fault in faults[1:]:
        fault.drops_writes = False
    faults[0].is_dead = True
    reader = await cluster.client(2).open_ledger(writer.ledger_id, recovery=True)
    assert reader.last_add_confirmed == 0
    faults[0].is_dead = False

    answers: list[Status] = []
    for bookie_id in writer.metadata.last_fragment.ensemble[1:]:
        client.cluster.client(bookie_id).write(held, answers.append)
    await settle_adds(cluster)

    assert answers == [Status.FENCED, Status.FENCED]
    assert not late.done()


@pytest.mark.parametrize("window", [1, 3, 13])
@pytest.mark.conformance("R8")
async def test_windows_of_any_size_come_to_the_same_end(tmp_path: Path, window: int) -> None:
    async with running_cluster(tmp_path, recovery_window_entries=window) as cluster:
        writer = await cluster.client().create_ledger()
        payloads = [b"%d" % i for i in range(40)]
        await writer.append_many(payloads)

        reader = await cluster.client(2).open_ledger(writer.ledger_id, recovery=True)

        assert await read_all(reader) == payloads


@pytest.mark.parametrize("recovery", [False, True])
@pytest.mark.conformance("R25")
async def test_one_that_never_saw_the_ledger_decides_nothing_when_the_others_are_away(
    cluster: InProcessCluster, client: LedgerClient, recovery: bool
) -> None:
    """R25: a NO_LEDGER and then failures are an error, reported once, never "empty" (#2612)."""
    writer = await client.create_ledger(ack_quorum=2)
    faults = cluster.ensemble_faults(writer.metadata.last_fragment.ensemble)
    faults[0].drops_writes = True
    await writer.append(b"0")
    for fault in faults[1:]:
        fault.is_dead = True

    with pytest.raises((LedgerRecoveryError, EntryUnreadableError)):
        await cluster.client(2).open_ledger(writer.ledger_id, recovery=recovery)


@pytest.mark.conformance("R3", "F8")
async def test_the_wrong_password_neither_opens_nor_fences(client: LedgerClient) -> None:
    writer = await client.create_ledger(password=b"right")
    await writer.append(b"0")

    for recovery in (False, True):
        with pytest.raises(UnauthorizedError):
            await client.open_ledger(writer.ledger_id, password=b"wrong", recovery=recovery)

    assert await writer.append(b"1") == 1


@pytest.mark.conformance("R20", "F4")
async def test_concurrent_recoveries_come_to_one_end(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    """R20, F4, I4."""
    ledger_id, _ = await open_ledger_with_tail(cluster, client, tail_on={1})

    readers = await asyncio.gather(
        *(cluster.client(n).open_ledger(ledger_id, recovery=True) for n in range(2, 8))
    )

    metadata = await client.ledger_metadata(ledger_id)
    assert {reader.last_add_confirmed for reader in readers} == {metadata.last_entry}
    assert metadata.last_entry in {1, 2}  # the tail was never acknowledged


@pytest.mark.conformance("R22")
async def test_a_writers_close_and_a_recovery_agree(tmp_path: Path) -> None:
    """R22: whoever wins, both know the same last entry, or one is told it lost."""

    for seed in range(5):
        async with running_cluster(tmp_path / str(seed)) as cluster:
            writer = await cluster.client().create_ledger()
            await writer.append_many([b"0", b"1", b"2"])

            outcomes = await asyncio.gather(
                writer.close(),
                cluster.client(seed).open_ledger(writer.ledger_id, recovery=True),
                return_exceptions=True,
            )

            metadata = await cluster.client().ledger_metadata(writer.ledger_id)
            assert (metadata.is_closed, metadata.last_entry) == (True, 2)
            assert outcomes[0] is None or isinstance(outcomes[0], LedgerFencedError)
            assert cast(ReadHandle, outcomes[1]).last_add_confirmed == 2


@pytest.mark.conformance("R11", "RecoveryClientClosesLedger")
async def test_a_ledger_closed_meanwhile_is_adopted(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    ledger_id, faults = await open_ledger_with_tail(cluster, client, tail_on={0, 1, 2})
    closing: list[asyncio.Future[Versioned | Stop[object]]] = []

    def close_elsewhere(reply: ReadReply) -> ReadReply:
        def end(metadata: LedgerMetadata) -> LedgerMetadata:
            return metadata if metadata.is_closed else metadata.closed(1, 2)

        known = client.cluster.ledgers
        closing.append(asyncio.ensure_future(known.update(ledger_id, end)))
        return reply

    faults[0].alter_read = close_elsewhere
    reader = await cluster.client(2).open_ledger(ledger_id, recovery=True)
    await asyncio.gather(*closing)

    metadata = await client.ledger_metadata(ledger_id)
    assert reader.last_add_confirmed == metadata.last_entry


@pytest.mark.conformance("F9")
async def test_a_fence_survives_the_bookies_restart(tmp_path: Path) -> None:
    """F9, BOOKKEEPER-500, I8."""

    async with running_cluster(tmp_path) as cluster:
        client = cluster.client()
        writer = await client.create_ledger()
        await writer.append(b"0")
        fencing = client.cluster.client
        for bookie_id in writer.metadata.last_fragment.ensemble:
            fence = ReadLacRequest(writer.ledger_id, is_fencing=True, master_key=master_key(b""))
            reply = await fencing(bookie_id).read_lac(fence)
            assert reply.status is Status.OK
        for bookie_id in list(cluster.bookies):
            await cluster.bookies[bookie_id].stop()
            place = cluster.bookies.pop(bookie_id)
            assert place.storage.contents.ledgers[writer.ledger_id].is_fenced
            await cluster.restart_bookie(bookie_id)

        stale = cluster.client(9)
        section = cluster.faults[writer.metadata.last_fragment.ensemble[0]].writes_seen[-1]
        answers: list[Status] = []
        for bookie_id in writer.metadata.last_fragment.ensemble:
            stale.cluster.client(bookie_id).write(section, answers.append)
        await settle_adds(cluster)

        assert answers == [Status.FENCED] * 3


async def test_a_bookie_in_limbo_is_no_witness(
    cluster: InProcessCluster, client: LedgerClient
) -> None:
    """I12: two bookies that may have lost entries cannot truncate a ledger."""
    ledger_id, faults = await open_ledger_with_tail(cluster, client, tail_on={0})
    faults[0].is_dead = True
    ensemble = (await client.ledger_metadata(ledger_id)).last_fragment.ensemble
    cluster.bookies[ensemble[1]].storage.contents.set_limbo([ledger_id], [ledger_id])

    with pytest.raises(BookKeeperError) as caught:
        await cluster.client(2).open_ledger(ledger_id, recovery=True)

    assert isinstance(caught.value, LedgerRecoveryError | NotEnoughBookiesError)
    assert not (await client.ledger_metadata(ledger_id)).is_closed


@pytest.mark.parametrize("quorums", [(3, 2, 2), (5, 3, 2), (4, 3, 3)])
@pytest.mark.cluster(bookies=5, recovery_window_entries=7)
async def test_striped_ledgers_recover_to_their_last_acknowledged_entry(
    cluster: InProcessCluster, client: LedgerClient, quorums: tuple[int, int, int]
) -> None:
    e, w, a = quorums
    writer = await client.create_ledger(ensemble_size=e, write_quorum=w, ack_quorum=a)
    payloads = [b"%d" % i for i in range(50)]
    await writer.append_many(payloads)

    reader = await cluster.client(2).open_ledger(writer.ledger_id, recovery=True)

    assert await read_all(reader) == payloads
    assert reader.length == sum(map(len, payloads))
