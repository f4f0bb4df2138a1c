"""Recovery's second half: where entries are written back to, and what the metadata says of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.wire.messages import ReadReply, Status
from bookkeeper_metadata.model import Fragment, LedgerMetadata, LedgerState
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.ledger.errors import LedgerClosedError, LedgerFencedError, LedgerRecoveryError
from tests.doubles.cluster import running_cluster
from tests.doubles.stores import Script
from tests.doubles.waits import pass_turns
from tests.patience import seconds
from tests.spark_bookkeeper.ledger.scene import (
    ACK_BY_ALL,
    Scene,
    assert_at_ack_quorum,
    numbers,
    read_all,
)


async def leave_behind(scene: Scene, entries: int) -> LedgerMetadata:
    """The writer goes away after acknowledging ``entries``; all but one are known."""
    for payload in numbers(entries):
        await scene.writer.append(payload)
    return scene.writer.metadata


async def recovered(scene: Scene, seed: int = 2) -> tuple[LedgerMetadata, list[bytes]]:
    entries = await read_all(await scene.recover(seed))
    return await scene.metadata(), entries


@pytest.mark.parametrize("failing", [(1,), (0, 2)])
@pytest.mark.parametrize(("count", "first_entries"), [(1, [0]), (3, [0, 2])])
@pytest.mark.conformance("R7", "R13", "R14", "R15", "RecoveryClientSendsPendingAddOp")
@pytest.mark.cluster(bookies=5)
@ACK_BY_ALL
async def test_bookies_that_take_nothing_back_are_replaced_when_the_ledger_closes(
    scene: Scene, failing: tuple[int, ...], count: int, first_entries: list[int]
) -> None:
    """R7, R13, R14, R15: in place at the fragment's first entry, else as one new fragment."""
    before = (await leave_behind(scene, count)).last_fragment.ensemble
    scene.fail(*failing, write_status=Status.READ_ONLY)

    metadata, entries = await recovered(scene)

    assert entries == numbers(count)
    assert metadata.last_entry == count - 1
    assert [f.first_entry for f in metadata.fragments] == first_entries
    after = metadata.last_fragment.ensemble
    assert len(set(after)) == 3
    assert {p for p in range(3) if after[p] != before[p]} == set(failing)


@pytest.mark.cluster(bookies=5)
async def test_a_bookie_that_takes_nothing_back_stays_while_the_ack_quorum_does_without(
    scene: Scene,
) -> None:
    left = await leave_behind(scene, 3)
    scene.fail(1)

    metadata, entries = await recovered(scene)

    assert entries == numbers(3)
    assert metadata.fragments == left.fragments


@pytest.mark.cluster(bookies=6, recovery_window_entries=1)
@ACK_BY_ALL
async def test_bookies_that_fail_one_after_another_leave_a_fragment_each(scene: Scene) -> None:
    await scene.writer.append_many(numbers(4))
    before = scene.ensemble

    def fail_from(entry_id: int, bookie_id: str) -> None:
        faults = scene.cluster.faults[bookie_id]

        def alter(reply: ReadReply) -> ReadReply:
            if faults.reads_seen[-1].first_entry == entry_id:
                faults.write_status = Status.UNREACHABLE
            return reply

        faults.alter_read = alter

    fail_from(2, before[0])
    fail_from(3, before[2])
    metadata, entries = await recovered(scene)

    assert entries == numbers(4)
    ensembles = [f.ensemble for f in metadata.fragments]
    assert len(ensembles) >= 2
    assert before[0] not in ensembles[-1]
    assert before[2] not in ensembles[-1]
    assert before[1] in ensembles[-1]


@pytest.mark.parametrize("quorums", [(3, 2, 2), (5, 3, 3), (4, 3, 2)])
@pytest.mark.cluster(bookies=8, recovery_window_entries=9)
async def test_striped_ledgers_are_written_back_to_each_write_set(scene: Scene) -> None:
    await scene.writer.append(b"0")
    await scene.writer.append_many(numbers(30)[1:])
    scene.fail(0, 2, write_status=Status.READ_ONLY)

    metadata, entries = await recovered(scene)

    assert entries == numbers(30)
    assert metadata.last_entry == 29
    assert_at_ack_quorum(scene.cluster, scene.ledger_id, metadata)


@pytest.mark.conformance("R6", "RecoveryClientChangesEnsemble")
@pytest.mark.cluster(bookies=5, recovery_window_entries=1)
@ACK_BY_ALL
async def test_an_attempt_that_failed_after_replacing_a_bookie_leaves_no_trace(
    scene: Scene,
) -> None:
    """R6, BOOKKEEPER-355: the next attempt asks the bookies the writer wrote to."""
    left = await leave_behind(scene, 3)
    scene.fail(1, write_status=Status.READ_ONLY)

    def unsure_about_the_end(reply: ReadReply) -> ReadReply:
        missing = tuple(replace(part, status=Status.UNKNOWN) for part in reply.missing)
        return replace(reply, missing=missing)

    scene.fail(0, 1, 2, alter_read=unsure_about_the_end)
    with pytest.raises(LedgerRecoveryError):
        await recovered(scene)

    metadata = await scene.metadata()
    assert metadata.state is LedgerState.IN_RECOVERY
    assert metadata.fragments == left.fragments
    scene.cluster.set_faults(alter_read=None, write_status=None)
    metadata, entries = await recovered(scene, 3)
    assert entries == numbers(3)
    assert metadata.fragments == left.fragments


def move_position(metadata: LedgerMetadata, number: int, spare: str) -> LedgerMetadata:
    """The metadata after re-replication moved the first position of a fragment."""
    old = metadata.fragments[number]
    fragments = list(metadata.fragments)
    fragments[number] = Fragment(old.first_entry, (spare, *old.ensemble[1:]))
    return replace(metadata, fragments=tuple(fragments))


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.conformance("R12", "R19")
@pytest.mark.cluster(bookies=6)
async def test_fragments_moved_while_a_ledger_is_recovered_are_kept(
    scene: Scene, number: int
) -> None:
    """R12, R19: an older one is merged; if it is the last, the recovery starts over."""
    await scene.writer.append(b"0")
    scene.faults[0].is_dead = True
    for n in (1, 2, 3):
        await scene.writer.append(b"%d" % n)
        await asyncio.sleep(0.05)
    left = scene.writer.metadata
    assert len(left.fragments) == 2
    members = {b for f in left.fragments for b in f.ensemble}
    spare = next(b for b in scene.cluster.bookies if b not in members)
    moving: list[asyncio.Future[None]] = []

    async def move() -> None:
        await scene.change(lambda metadata: move_position(metadata, number, spare))

    def move_meanwhile(reply: ReadReply) -> ReadReply:
        if not moving:
            moving.append(asyncio.ensure_future(move()))
        return reply

    scene.fail(0, 1, 2, alter_read=move_meanwhile)
    metadata, entries = await recovered(scene)

    assert entries == numbers(4)
    assert spare in metadata.fragments[number].ensemble
    assert [f.first_entry for f in metadata.fragments] == [f.first_entry for f in left.fragments]


@pytest.mark.conformance("R18")
@pytest.mark.cluster(bookies=5)
@ACK_BY_ALL
async def test_a_recovery_that_overtakes_an_ensemble_change_ends_the_writer(scene: Scene) -> None:
    """R18: the change had not reached the metadata; nothing it would have covered is acked."""
    await scene.writer.append(b"0")
    scene.cluster.store.fault = script = Script()
    script.lose("put", 1, Fault.LOST_REQUEST)
    scene.faults[2].write_status = Status.UNKNOWN
    late = scene.writer.append_async(b"1")
    while not script.paths("put"):
        await pass_turns(1)
    recovering = asyncio.ensure_future(recovered(scene))

    with pytest.raises((LedgerFencedError, LedgerClosedError)):
        await late
    metadata, entries = await recovering

    assert entries in (numbers(1), numbers(2))  # never acknowledged, so either is right
    assert metadata.last_entry == len(entries) - 1


@pytest.mark.parametrize("hanging", [0, 1, 2])
@pytest.mark.conformance("R5", "R24", "F7")
@pytest.mark.cluster(bookies=4)
async def test_a_bookie_that_never_answers_delays_no_recovery(scene: Scene, hanging: int) -> None:
    """R5, R24, F7: enough copies or enough negatives end the wait."""
    await leave_behind(scene, 3)
    scene.fail(hanging, hangs=True)

    async with asyncio.timeout(seconds(5)):
        reader = await scene.recover()

    assert reader.last_add_confirmed == 2


async def test_a_thousand_entries_in_flight_are_read_and_written_back_in_one_round_each(
    scene: Scene,
) -> None:
    await scene.writer.append_many(numbers(1_000))
    for fault in scene.cluster.faults.values():
        fault.writes_seen.clear()

    metadata, _ = await recovered(scene)

    assert metadata.last_entry == 999
    for fault in scene.cluster.faults.values():
        assert len([r for r in fault.reads_seen if r.is_fencing]) == 1
        assert len(fault.writes_seen) == 1


async def test_a_recovery_that_dies_anywhere_is_simply_repeated(tmp_path: Path) -> None:
    """I4, I13: whatever it had fenced, read, written back or put into the metadata."""

    async def attempt(place: Path, turns: int) -> bool:
        async with running_cluster(place, bookies=5, recovery_window_entries=2) as cluster:
            client = cluster.client()
            scene = Scene(cluster, client, await client.create_ledger(ack_quorum=3))
            await leave_behind(scene, 5)
            scene.fail(1, write_status=Status.READ_ONLY)
            dying = asyncio.ensure_future(recovered(scene))
            await pass_turns(turns)
            had_ended = dying.done()
            dying.cancel()
            await asyncio.gather(dying, return_exceptions=True)

            metadata, entries = await recovered(scene, 3)

            assert entries == numbers(5)
            assert metadata.last_entry == 4
            return had_ended

    turns = 0
    while not await attempt(tmp_path / str(turns), turns) and turns < 400:
        turns += 7
    assert turns > 14


@pytest.mark.parametrize(
    ("status", "avoided_ms"),
    [
        (Status.UNKNOWN, {"bookie_quarantine_ms"}),
        (Status.READ_ONLY, {"ensemble_change_retry_ms"}),
        (Status.LIMBO, set()),
    ],
    ids=["broken", "full", "limbo"],
)
@pytest.mark.cluster(bookies=5, bookie_quarantine_ms=1 << 30, ensemble_change_retry_ms=1 << 20)
@ACK_BY_ALL
async def test_a_bookie_that_takes_nothing_back_is_avoided_as_its_answer_says(
    scene: Scene, status: Status, avoided_ms: set[str]
) -> None:
    """All were quarantined like a broken one, for half a minute after they had room again."""
    await leave_behind(scene, 2)
    (refusing,) = scene.fail(1, write_status=status)
    recovering = scene.cluster.client(2)

    await recovering.open_ledger(scene.ledger_id, recovery=True)

    context = recovering.cluster
    until_s = context._quarantined_until_s.get(refusing, 0.0) - asyncio.get_running_loop().time()
    found = {
        name
        for name in ("bookie_quarantine_ms", "ensemble_change_retry_ms")
        if 0 < getattr(context.settings, name) / 1000 - until_s < 1000
    }
    assert found == avoided_ms
    assert refusing not in (await scene.metadata()).last_fragment.ensemble


@pytest.mark.parametrize("status", [Status.CONFLICT, Status.LIMBO, Status.READ_ONLY])
@pytest.mark.cluster(bookies=4)
@ACK_BY_ALL
async def test_a_recovery_asks_nobody_again_who_refused_the_same_entries(
    scene: Scene, status: Status
) -> None:
    """Two that refuse, of four: each was put in the other's place for ever."""
    left = await leave_behind(scene, 2)
    outside = set(scene.cluster.bookies) - set(left.last_fragment.ensemble)
    scene.cluster.set_faults(*outside, scene.ensemble[1], write_status=status)

    with pytest.raises(LedgerRecoveryError, match="no other bookie"):
        async with asyncio.timeout(seconds(5)):
            await scene.recover()

    assert (await scene.metadata()).state is LedgerState.IN_RECOVERY
    assert [len(scene.cluster.faults[each].writes_seen) for each in outside] == [1]
