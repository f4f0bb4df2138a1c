"""The end of a writer: what close waits for, what races with it, and that every add is told once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from functools import partial

import pytest

from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import MetadataConflictError, NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.ledger.errors import (
    LedgerClosedError,
    LedgerFencedError,
    LedgerRecoveryError,
    NotEnoughBookiesError,
)
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.doubles.waits import pass_turns, until
from tests.patience import seconds
from tests.spark_bookkeeper.ledger.scene import ACK_BY_ALL, Scene, numbers


def append_counted(writer: WriteHandle, payloads: Iterable[bytes]) -> Counter[int]:
    """Append, and count by entry every time its completion says it is complete."""
    told: Counter[int] = Counter()

    def complete(number: int, acknowledged: int, error: BookKeeperError | None) -> bool:
        is_complete = error is not None or acknowledged >= number
        told[number] += is_complete
        return is_complete

    for payload in payloads:
        writer.push([payload], partial(complete, writer.last_add_pushed + 1))
    return told


@pytest.mark.conformance("W19", "ClientClosesLedgerSuccess")
async def test_a_close_with_adds_in_flight_acknowledges_them_first(scene: Scene) -> None:
    """Every add is told once, and the ledger ends at the last of them."""
    told = append_counted(scene.writer, numbers(300))

    await asyncio.gather(*(scene.writer.close() for _ in range(3)))

    assert told == Counter(range(300))
    assert scene.writer.metadata.last_entry == 299
    with pytest.raises(LedgerClosedError):
        await scene.writer.append(b"late")


@pytest.mark.parametrize("turns", range(0, 24, 3))
@pytest.mark.conformance("W21")
@ACK_BY_ALL
async def test_a_close_that_races_with_the_loss_of_all_bookies_tells_everybody_once(
    scene: Scene, turns: int
) -> None:
    """The length leaves out what was not acknowledged."""
    payloads = [b"first", *numbers(50)]
    first = append_counted(scene.writer, payloads[:1])
    await scene.writer.flush()
    others = append_counted(scene.writer, payloads[1:])
    await pass_turns(turns)
    closing = asyncio.ensure_future(scene.writer.close())
    scene.cluster.set_faults(is_dead=True)
    await asyncio.gather(closing, return_exceptions=True)

    assert first + others == Counter(range(51))
    metadata = await scene.metadata()
    assert metadata.is_closed
    assert metadata.last_entry == scene.writer.last_add_confirmed
    assert metadata.length == sum(map(len, payloads[: metadata.last_entry + 1]))


async def test_an_abandoned_writer_tells_everybody_once_and_closes_nothing(scene: Scene) -> None:
    scene.cluster.set_faults(drops_writes=True)
    told = append_counted(scene.writer, numbers(20))

    scene.writer.abandon(LedgerClosedError(scene.ledger_id))
    scene.writer.abandon(LedgerClosedError(scene.ledger_id))

    assert told == Counter(range(20))
    assert not (await scene.metadata()).is_closed


@pytest.mark.conformance("W18", "W22")
@pytest.mark.cluster(bookies=4)
@ACK_BY_ALL
async def test_a_closed_ledger_with_an_empty_last_fragment_reads_to_its_end(scene: Scene) -> None:
    """An ensemble changed for entries that never came (#3917 asks for the LAC of such a one)."""
    await scene.writer.append_many([b"0", b"1", b"2"])
    dead = scene.ensemble[0]
    scene.cluster.faults[dead].is_dead = True
    waiting = scene.writer.append_async(b"3")
    scene.cluster.set_faults(drops_writes=True)
    await until(lambda: len(scene.writer.metadata.fragments) == 2)
    scene.writer.abandon(LedgerClosedError(scene.ledger_id))
    await asyncio.gather(waiting, return_exceptions=True)
    await scene.writer.close()
    scene.cluster.faults[dead].is_dead = False

    metadata = await scene.metadata()
    assert metadata.last_fragment.first_entry == metadata.last_entry + 1
    assert await scene.read() == [b"0", b"1", b"2"]


@pytest.mark.conformance("W23")
@pytest.mark.cluster(max_in_flight_bytes=1_000)
async def test_a_bookie_that_never_answers_stops_nobody_but_fills_the_window(scene: Scene) -> None:
    """Appends go on at the ack quorum; what the slow bookie still has to store bounds them."""
    scene.fail(0, drops_writes=True)
    for _ in range(4):
        await scene.writer.append(bytes(300))
    waiting = asyncio.ensure_future(scene.writer.append(bytes(300)))
    await asyncio.wait([waiting], timeout=0.02)
    assert (scene.writer.last_add_confirmed, scene.writer.last_add_pushed) == (3, 3)

    scene.writer.abandon(LedgerClosedError(scene.ledger_id))
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.cluster(max_in_flight_entries=2)
async def test_entries_acknowledged_make_room_whoever_has_not_answered(scene: Scene) -> None:
    """The count of entries in flight is of those not acknowledged; only bytes are still held."""
    scene.fail(0, drops_writes=True)

    async with asyncio.timeout(seconds(5)):
        await asyncio.gather(*map(scene.writer.append, numbers(20)))

    scene.writer.abandon(LedgerClosedError(scene.ledger_id))


@pytest.mark.conformance("F3")
async def test_fencing_and_deleting_at_once_leave_no_ledger_and_no_writer(scene: Scene) -> None:
    await scene.writer.append(b"0")

    outcomes = await asyncio.gather(
        scene.recover(),
        scene.cluster.client(3).delete_ledger(scene.ledger_id),
        return_exceptions=True,
    )

    assert outcomes[1] is None
    assert isinstance(outcomes[0], NoSuchLedgerError) or not isinstance(outcomes[0], BaseException)
    with pytest.raises(BookKeeperError) as caught:
        await scene.writer.append(b"1")
    assert not isinstance(caught.value, NotEnoughBookiesError)
    with pytest.raises(NoSuchLedgerError):
        await scene.open(4)


async def test_a_forced_deletion_fences_the_writer_all_the_same(scene: Scene) -> None:
    """Before, three more adds were acknowledged, of a ledger that was gone."""
    await scene.writer.append(b"0")

    await scene.cluster.client(3).delete_ledger(scene.ledger_id, force=True)

    with pytest.raises(LedgerFencedError):
        await scene.writer.append(b"1")
    with pytest.raises(NoSuchLedgerError):
        await scene.open(4)


@pytest.mark.cluster(bookies=6)
async def test_a_forced_deletion_stops_ensemble_changes_before_it_fences(scene: Scene) -> None:
    """Else the writer moves to bookies that nobody fences, and is acknowledged there."""
    await scene.writer.append(b"0")
    deleting = scene.cluster.client(3)
    fenced, holds = asyncio.Event(), asyncio.Event()

    async def wait(ledger_id: int, expected_version: int | None = None) -> None:
        fenced.set()
        await holds.wait()

    deleting.cluster.ledgers.delete = wait  # type: ignore[method-assign]
    deletion = asyncio.create_task(deleting.delete_ledger(scene.ledger_id, force=True))
    await fenced.wait()
    scene.fail(0, 1, 2)

    with pytest.raises(LedgerFencedError):
        await scene.writer.append(b"1")
    holds.set()
    await deletion


async def test_a_deletion_deletes_the_ledger_it_fenced_and_no_other(scene: Scene) -> None:
    """A chosen id may be created anew while the deletion is at work."""
    first, second = scene.cluster.client(3), scene.cluster.client(4)
    delete = first.cluster.ledgers.delete
    reached, holds = asyncio.Event(), asyncio.Event()

    async def late(ledger_id: int, expected_version: int | None = None) -> None:
        reached.set()
        await holds.wait()
        await delete(ledger_id, expected_version)

    first.cluster.ledgers.delete = late  # type: ignore[method-assign]
    deletion = asyncio.create_task(first.delete_ledger(scene.ledger_id, force=True))
    await reached.wait()
    await second.delete_ledger(scene.ledger_id, force=True)
    await second.create_ledger(ledger_id=scene.ledger_id)
    holds.set()

    with pytest.raises(MetadataConflictError):
        await deletion
    assert not (await scene.metadata()).is_closed


async def test_a_forced_deletion_that_cannot_fence_deletes_nothing_unless_told_to(
    scene: Scene,
) -> None:
    await scene.writer.append(b"0")
    scene.fail(0, 1)
    client = scene.cluster.client(3)

    with pytest.raises(LedgerRecoveryError, match="too few bookies could be fenced"):
        await client.delete_ledger(scene.ledger_id, force=True)
    assert not (await scene.metadata()).is_closed

    with pytest.raises(ValueError, match="force"):
        await client.delete_ledger(scene.ledger_id, unfenced=True)
    await client.delete_ledger(scene.ledger_id, force=True, unfenced=True)
    with pytest.raises(NoSuchLedgerError):
        await scene.open(4)


@pytest.mark.parametrize("status", [Status.UNREACHABLE, Status.UNKNOWN, Status.READ_ONLY])
async def test_failed_adds_leave_no_trace_in_length_or_last_entry(
    scene: Scene, status: Status
) -> None:
    await scene.writer.append(b"abc")
    scene.cluster.set_faults(write_status=status)
    with pytest.raises(NotEnoughBookiesError, match=status.name):
        await scene.writer.append(b"lost")
    await scene.writer.close()

    metadata = await scene.metadata()
    assert (metadata.last_entry, metadata.length) == (0, 3)
