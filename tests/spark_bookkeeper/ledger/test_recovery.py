"""Fencing and recovery through real bookies (rules R*, F*; invariants I1-I13)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bookie_server.wire.digest import master_key
from bookie_server.wire.messages import IdRange, ReadLacRequest, ReadReply, Status
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
from tests.spark_bookkeeper.ledger.scene import Scene, numbers, read_all


def window_of(entries: int) -> pytest.MarkDecorator:
    return pytest.mark.cluster(recovery_window_entries=entries)


@pytest.mark.parametrize(
    ("quorums", "count"),
    [
        *(((3, 3, 2), count) for count in (0, 1, 2, 2500)),
        *(pytest.param((3, 3, 2), 40, marks=window_of(n)) for n in (1, 3, 13)),
        *(pytest.param(q, 50, marks=window_of(7)) for q in ((3, 2, 2), (5, 3, 2), (4, 3, 3))),
    ],
)
@pytest.mark.conformance("R1", "R2", "R8")
@pytest.mark.cluster(bookies=5)
async def test_recovery_closes_a_ledger_at_its_last_acknowledged_entry(
    scene: Scene, count: int
) -> None:
    payloads = numbers(count)
    await scene.writer.append_many(payloads)

    reader = await scene.recover()

    assert reader.is_closed
    assert reader.last_add_confirmed == count - 1
    assert await read_all(reader) == payloads
    assert reader.length == sum(map(len, payloads))


@pytest.mark.conformance("F1")
async def test_a_fenced_writer_is_told_and_never_acknowledges_again(scene: Scene) -> None:
    """F1, I20."""
    await scene.writer.append(b"0")
    reader = await scene.recover()

    with pytest.raises(LedgerFencedError):
        await scene.writer.append(b"1")
    with pytest.raises(LedgerFencedError):
        await scene.writer.append(b"2")

    assert reader.last_add_confirmed == 0
    await scene.writer.close()  # finds it closed at exactly its last entry


@pytest.mark.conformance("F5")
async def test_opening_without_recovery_does_not_disturb_the_writer(scene: Scene) -> None:
    """F5: the reader sees what is confirmed, which lags the writer by what carries the LAC."""
    for payload in (b"0", b"1", b"2"):
        await scene.writer.append(payload)
    reader = await scene.open()

    assert not reader.is_closed
    assert reader.last_add_confirmed == 1
    assert await scene.writer.append(b"3") == 3
    assert await reader.read_last_add_confirmed() == 2
    await scene.writer.close()
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
    scene: Scene, tail_on: set[int]
) -> None:
    """Positive is generous: one copy suffices, and recovery writes it back byte for byte."""
    faults = await scene.leave_tail(on=tail_on)
    for position in {0, 1, 2} - tail_on:
        faults[position].alter_read = unsure_about_two

    reader = await scene.recover()

    assert await read_all(reader) == [b"0", b"1", b"tail"]
    assert reader.length == 6
    await scene.settle_adds()
    copies = list(scene.cluster.copies(scene.ledger_id, 2).values())
    assert len(set(copies)) == 1
    assert len(copies) >= 2


@pytest.mark.conformance("R23")
async def test_an_entry_nobody_reachable_has_is_absent_only_with_a_coverage(scene: Scene) -> None:
    """R23, I11: with the one holder away, two explicit negatives close before the tail."""
    await scene.leave_tail(on={0})
    scene.fail(0)

    reader = await scene.recover()

    assert await read_all(reader) == [b"0", b"1"]


DEAD, READ_ONLY = {"is_dead": True}, {"write_status": Status.READ_ONLY}
UNSURE = "neither readable nor provably absent"


@pytest.mark.parametrize(
    ("tail_on", "how", "complaint"),
    [
        ({0, 1}, {0: DEAD, 1: {"read_status": Status.UNKNOWN}}, UNSURE),
        ({0, 1}, {0: DEAD, 1: {"read_status": Status.UNREACHABLE}}, UNSURE),
        ({0, 1}, {0: DEAD, 1: {"read_status": Status.BUSY}}, UNSURE),
        ({0, 1, 2}, {0: DEAD, 1: DEAD}, "too few bookies could be fenced"),
        ({0}, {1: READ_ONLY, 2: READ_ONLY}, "could not be written back to an ack quorum"),
    ],
)
@pytest.mark.conformance("R4", "R9", "R10")
async def test_what_cannot_be_known_or_done_aborts_the_recovery_and_closes_nothing(
    scene: Scene, tail_on: set[int], how: dict[int, dict[str, object]], complaint: str
) -> None:
    """I13: "don't know" is never "no". R9: all down is an error, not a ledger closed at -1."""
    await scene.leave_tail(on=tail_on)
    for position, fault in how.items():
        scene.fail(position, **fault)

    with pytest.raises(LedgerRecoveryError, match=complaint):
        await scene.recover()
    assert (await scene.metadata()).state is LedgerState.IN_RECOVERY

    scene.cluster.set_faults(is_dead=False, read_status=None, write_status=None)
    recovered = await read_all(await scene.recover(3))
    # What one bookie has was never acknowledged: the other two may answer before it does.
    assert recovered == [b"0", b"1", b"tail"] or (len(tail_on) == 1 and recovered == [b"0", b"1"])


@pytest.mark.conformance("R21")
async def test_what_lies_behind_a_gap_is_cut_off(scene: Scene) -> None:
    """R21: entry 3 reached a bookie, entry 2 nobody: the ledger ends at 1."""
    faults = await scene.leave_tail(on={0})

    def hide_two(reply: ReadReply) -> ReadReply:
        if not any(2 in run.entry_ids for run in reply.runs):
            return reply
        missing = IdRange(2, 10**6, Status.NO_ENTRY)
        return ReadReply((), (missing,), reply.last_add_confirmed)

    faults[0].alter_read = hide_two
    reader = await scene.recover()

    assert await read_all(reader) == [b"0", b"1"]


@pytest.mark.conformance("ClientStartsRecovery", "ClientSendsRecoveryReadRequests")
@pytest.mark.cluster(bookies=5)
async def test_every_recovery_read_fences_and_asks_the_snapshot_ensemble(scene: Scene) -> None:
    """#2614, BOOKKEEPER-581."""
    await scene.leave_tail(on={0, 1})
    for fault in scene.cluster.faults.values():
        fault.reads_seen.clear()
    metadata = await scene.metadata()

    await scene.recover()

    for bookie_id, fault in scene.cluster.faults.items():
        beyond = [r for r in fault.reads_seen if r.first_entry > 1]
        assert all(request.is_fencing for request in beyond)
        assert bool(beyond) == (bookie_id in metadata.last_fragment.ensemble)


@pytest.mark.conformance("R16")
async def test_a_writer_that_lost_the_race_for_its_ack_quorum_stays_without(scene: Scene) -> None:
    """R16 (#2614): an add delayed until after a recovery read cannot reach its quorum."""
    faults = scene.faults
    await scene.writer.append(b"0")
    scene.fail(1, 2, drops_writes=True)
    late = scene.writer.append_async(b"late")
    await scene.settle_adds()
    held = faults[1].writes_seen[-1]
    scene.fail(1, 2, drops_writes=False)
    faults[0].is_dead = True
    reader = await scene.recover()
    assert reader.last_add_confirmed == 0
    faults[0].is_dead = False

    answers = await scene.answers_to(held)

    assert answers[1:] == [Status.FENCED, Status.FENCED]
    assert not late.done()


@pytest.mark.parametrize("recovery", [False, True])
@pytest.mark.conformance("R25")
async def test_one_that_never_saw_the_ledger_decides_nothing_when_the_others_are_away(
    scene: Scene, recovery: bool
) -> None:
    """R25: a NO_LEDGER and then failures are an error, reported once, never "empty" (#2612)."""
    scene.fail(0, drops_writes=True)
    await scene.writer.append(b"0")
    scene.fail(1, 2)

    with pytest.raises((LedgerRecoveryError, EntryUnreadableError)):
        await scene.open(recovery=recovery)


@pytest.mark.conformance("R3", "F8")
async def test_the_wrong_password_neither_opens_nor_fences(client: LedgerClient) -> None:
    writer = await client.create_ledger(password=b"right")
    await writer.append(b"0")

    for recovery in (False, True):
        with pytest.raises(UnauthorizedError):
            await client.open_ledger(writer.ledger_id, password=b"wrong", recovery=recovery)

    assert await writer.append(b"1") == 1


@pytest.mark.conformance("R20", "F4")
async def test_concurrent_recoveries_come_to_one_end(scene: Scene) -> None:
    """R20, F4, I4."""
    await scene.leave_tail(on={1})

    readers = await asyncio.gather(*(scene.recover(n) for n in range(2, 8)))

    metadata = await scene.metadata()
    assert {reader.last_add_confirmed for reader in readers} == {metadata.last_entry}
    assert metadata.last_entry in {1, 2}  # the tail was never acknowledged


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.conformance("R22")
async def test_a_writers_close_and_a_recovery_agree(scene: Scene, seed: int) -> None:
    """R22: whoever wins, both know the same last entry, or one is told it lost."""
    await scene.writer.append_many([b"0", b"1", b"2"])

    closed, reader = await asyncio.gather(
        scene.writer.close(), scene.recover(seed), return_exceptions=True
    )

    metadata = await scene.metadata()
    assert (metadata.is_closed, metadata.last_entry) == (True, 2)
    assert closed is None or isinstance(closed, LedgerFencedError)
    assert isinstance(reader, ReadHandle)
    assert reader.last_add_confirmed == 2


@pytest.mark.conformance("R11", "RecoveryClientClosesLedger")
async def test_a_ledger_closed_meanwhile_is_adopted(scene: Scene) -> None:
    faults = await scene.leave_tail(on={0, 1, 2})
    closing: list[asyncio.Future[Versioned | Stop[object]]] = []

    def close_elsewhere(reply: ReadReply) -> ReadReply:
        def end(metadata: LedgerMetadata) -> LedgerMetadata:
            return metadata if metadata.is_closed else metadata.closed(1, 2)

        known = scene.client.cluster.ledgers
        closing.append(asyncio.ensure_future(known.update(scene.ledger_id, end)))
        return reply

    faults[0].alter_read = close_elsewhere
    reader = await scene.recover()
    await asyncio.gather(*closing)

    metadata = await scene.metadata()
    assert reader.last_add_confirmed == metadata.last_entry


@pytest.mark.conformance("F9")
async def test_a_fence_survives_the_bookies_restart(scene: Scene) -> None:
    """F9, BOOKKEEPER-500, I8."""
    cluster, ledger_id = scene.cluster, scene.ledger_id
    await scene.writer.append(b"0")
    fence = ReadLacRequest(ledger_id, is_fencing=True, master_key=master_key(b""))
    for bookie_id in scene.ensemble:
        reply = await scene.client.cluster.client(bookie_id).read_lac(fence)
        assert reply.status is Status.OK
        bookie = cluster.bookies.pop(bookie_id)
        await bookie.stop()
        assert bookie.storage.contents.ledgers[ledger_id].is_fenced
        await cluster.restart_bookie(bookie_id)

    assert await scene.answers_to(scene.faults[0].writes_seen[-1]) == [Status.FENCED] * 3


async def test_a_bookie_in_limbo_is_no_witness(scene: Scene) -> None:
    """I12: two bookies that may have lost entries cannot truncate a ledger."""
    await scene.leave_tail(on={0})
    scene.fail(0)
    witness = scene.cluster.bookies[scene.ensemble[1]]
    witness.storage.contents.set_limbo([scene.ledger_id])

    with pytest.raises((LedgerRecoveryError, NotEnoughBookiesError)):
        await scene.recover()

    assert not (await scene.metadata()).is_closed
