"""Reading: complete or an error, whatever single replicas do (D1-D3, I5, S5)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bookie_server.wire.messages import ReadReply, Status
from bookie_server.wire.record import Run
from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import Fragment
from spark_bookkeeper.ledger.errors import (
    DigestMismatchError,
    EntryUnreadableError,
    NoSuchEntryError,
    UnauthorizedError,
)
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.replication.verify import DIFFERENT, verify_ledger
from tests.doubles.records import encode_copy, write
from tests.doubles.stores import LaggingStore, StandingStill
from tests.spark_bookkeeper.ledger.scene import ACK_BY_ALL, Scene, read_all
from tests.spark_bookkeeper.ledger.tails import damage_reads

PAYLOADS = [b"%d" % i * 50 for i in range(200)]


async def written(scene: Scene) -> ReadHandle:
    """A reader of the ledger, which now has all payloads and is closed."""
    await scene.writer.append_many(PAYLOADS)
    await scene.writer.close()
    return await scene.client.open_ledger(scene.ledger_id)


def withhold(reply: ReadReply) -> ReadReply:
    """Say nothing about the second half of what was asked."""
    kept = tuple(run.slice(0, (len(run) + 1) // 2) for run in reply.runs)
    return ReadReply(kept, (), reply.last_add_confirmed)


def foreign(reply: ReadReply) -> ReadReply:
    """Answer with entries of another ledger."""
    runs = tuple(Run(run.ledger_id + 1, run.entry_ids, run.offsets, run.data) for run in reply.runs)
    return ReadReply(runs, reply.missing, reply.last_add_confirmed)


@pytest.mark.cluster(read_size_bytes=700, reads_in_flight=3)
async def test_sizes_limits_and_prefetch_do_not_change_what_is_read(scene: Scene) -> None:
    reader = await written(scene)

    assert await read_all(reader) == PAYLOADS
    middle = [e.entry_id async for e in reader.read(50, 60)]
    assert middle == list(range(50, 61))


@pytest.mark.parametrize("quorums", [(3, 3, 2), (5, 3, 2), (4, 2, 2)])
@pytest.mark.parametrize(
    "fault",
    [*({"alter_read": each} for each in (damage_reads, withhold, foreign)), {"is_dead": True}],
    ids=["damage", "withhold", "foreign", "dead"],
)
@pytest.mark.conformance("D1", "D3", "D4")
@pytest.mark.cluster(bookies=5)
async def test_what_one_replica_spoils_another_returns(
    scene: Scene, fault: dict[str, object]
) -> None:
    reader = await written(scene)
    scene.fail(0, **fault)

    for _ in range(3):
        assert await read_all(reader) == PAYLOADS


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        ({"alter_read": damage_reads}, DigestMismatchError, "DIGEST_MISMATCH"),
        ({"read_status": Status.NO_ENTRY}, EntryUnreadableError, "NO_ENTRY"),
        ({"read_status": Status.NO_LEDGER}, EntryUnreadableError, "NO_LEDGER"),
        ({"read_status": Status.UNKNOWN}, EntryUnreadableError, "UNKNOWN"),
    ],
)
@pytest.mark.conformance("D3", "D9")
async def test_a_confirmed_entry_nobody_returns_is_an_error_never_a_shorter_result(
    scene: Scene, fault: dict[str, object], error: type[BookKeeperError], said: str
) -> None:
    reader = await written(scene)
    scene.cluster.set_faults(**fault)

    with pytest.raises(error, match=said):
        await read_all(reader)


@pytest.mark.cluster(bookies=6)
@ACK_BY_ALL
async def test_a_reader_that_finds_the_ledger_closed_while_it_reads_knows_its_end(
    scene: Scene,
) -> None:
    """It looked at the metadata for moved replicas, and then ended at the LAC it had before."""
    for payload in PAYLOADS[:3]:
        await scene.writer.append(payload)
    reader = await scene.client.open_ledger(scene.ledger_id)
    old = scene.ensemble
    scene.cluster.faults[old[0]].is_dead = True
    for payload in PAYLOADS[3:6]:
        await scene.writer.append(payload)
    await scene.writer.close()
    scene.cluster.set_faults(*old, read_status=Status.UNKNOWN)

    with pytest.raises(EntryUnreadableError):
        await read_all(reader)
    assert reader.is_closed
    assert await reader.read_last_add_confirmed() == 5


async def test_a_read_beyond_the_last_entry_reads_nothing(scene: Scene) -> None:
    reader = await written(scene)
    for first, last in ((0, 200), (-1, 5)):
        with pytest.raises(NoSuchEntryError):
            await anext(reader.read(first, last))
    with pytest.raises(NoSuchLedgerError, match="ledger_id=999"):
        await scene.client.open_ledger(999)


async def reports(scene: Scene) -> tuple[set[tuple[int, str, str]], int]:
    defects: set[tuple[int, str, str]] = set()
    checked = 0
    async for report in verify_ledger(scene.cluster.client(3), scene.ledger_id):
        checked += report.replicas_checked
        defects |= {(d.entry_id, d.bookie_id, d.what) for d in report.defects}
    return defects, checked


@pytest.mark.parametrize("quorums", [(3, 3, 2), (5, 2, 2)])
@pytest.mark.cluster(bookies=5)
async def test_verify_finds_nothing_wrong_with_a_sound_ledger(
    scene: Scene, quorums: tuple[int, int, int]
) -> None:
    await written(scene)
    await asyncio.sleep(0.2)  # the slowest replica may still be syncing

    assert await reports(scene) == (set(), len(PAYLOADS) * quorums[1])


async def test_verify_names_the_replica_that_is_wrong(scene: Scene) -> None:
    await written(scene)
    scene.fail(0, alter_read=damage_reads)
    scene.fail(1, read_status=Status.NO_ENTRY)

    defects, _ = await reports(scene)

    whats = {(bookie, what) for _, bookie, what in defects}
    assert whats == {(scene.ensemble[0], "DIGEST_MISMATCH"), (scene.ensemble[1], "NO_ENTRY")}
    assert DIFFERENT not in {what for _, what in whats}


async def test_verify_tells_entries_without_any_copy_from_those_with_too_few(scene: Scene) -> None:
    await written(scene)
    scene.fail(0, read_status=Status.UNKNOWN)
    scene.fail(1, read_status=Status.NO_ENTRY)
    few = [each async for each in verify_ledger(scene.cluster.client(3), scene.ledger_id)]
    scene.fail(2, read_status=Status.UNKNOWN)
    none = [each async for each in verify_ledger(scene.cluster.client(3), scene.ledger_id)]

    assert {each.without_copy for each in few} == {()}
    for found in (few, none):
        below = [entry_id for each in found for entry_id in each.below_ack_quorum]
        assert below == list(range(len(PAYLOADS)))
    assert [each.without_copy for each in none] == [each.below_ack_quorum for each in none]


@pytest.mark.parametrize("asks_for", ["open", "take over", "metadata", "list", "delete"])
async def test_a_session_that_lags_behind_the_creation_finds_the_ledger_and_its_end(
    scene: Scene, asks_for: str
) -> None:
    await scene.writer.append(b"0")
    await scene.writer.close()
    lagging = LaggingStore(scene.cluster.store.tree, "/00/0000")
    behind, ledger_id = scene.cluster.client(2, lagging), scene.ledger_id

    match asks_for:
        case "open":
            assert (await behind.open_ledger(ledger_id)).last_add_confirmed == 0
        case "take over":
            assert (await behind.open_ledger(ledger_id, recovery=True)).last_add_confirmed == 0
        case "metadata":
            assert (await behind.ledger_metadata(ledger_id)).last_entry == 0
        case "list":
            assert [found async for found in behind.list_ledgers()] == [ledger_id]
        case _:
            await behind.delete_ledger(ledger_id)
            assert [found async for found in behind.list_ledgers()] == []


async def test_a_session_that_lags_behind_their_registration_lists_the_bookies(
    scene: Scene,
) -> None:
    lagging = LaggingStore(scene.cluster.store.tree, "/available")

    found = await scene.cluster.client(2, lagging).bookies()

    assert [each.bookie_id for each in found] == sorted(scene.cluster.bookies)


@pytest.mark.cluster(bookies=4)
@pytest.mark.parametrize("status", [Status.NO_LEDGER, Status.UNKNOWN])
async def test_a_session_that_lags_behind_a_replication_reads_where_the_entries_are_now(
    scene: Scene, status: Status
) -> None:
    """The bookies its metadata names were emptied once their entries were elsewhere."""
    session = StandingStill(scene.cluster.store.tree)
    await scene.writer.append_many(PAYLOADS[:5])
    await scene.writer.close()
    await scene.settle_adds()
    reader = await scene.cluster.client(2, session).open_ledger(scene.ledger_id)
    await session.stop()
    (spare,) = set(scene.cluster.bookies) - set(scene.ensemble)
    moved = Fragment(0, (*scene.ensemble[:2], spare))
    for record in (scene.cluster.copies(scene.ledger_id, each) for each in range(5)):
        sent = encode_copy(scene.ledger_id, record[scene.ensemble[0]])
        assert await write(scene.cluster.client(3).cluster.client(spare), sent) is Status.OK
    await scene.change(lambda metadata: replace(metadata, fragments=(moved,)))
    scene.cluster.set_faults(*scene.ensemble, read_status=status)

    assert await read_all(reader) == PAYLOADS[:5]


async def test_a_password_is_checked_without_a_read(scene: Scene) -> None:
    """For a log, each ledger of which has the log's."""
    writer = await scene.client.create_ledger(password=b"secret")
    await scene.client.check_password(writer.ledger_id, b"secret")
    for wrong in (b"", b"Secret"):
        with pytest.raises(UnauthorizedError):
            await scene.client.check_password(writer.ledger_id, wrong)
    with pytest.raises(NoSuchLedgerError):
        await scene.client.check_password(writer.ledger_id + 1_000, b"secret")

    behind = scene.cluster.client(2, LaggingStore(scene.cluster.store.tree, "/00/0000"))
    with pytest.raises(UnauthorizedError):
        await behind.check_password(writer.ledger_id, b"")
