"""Writing through real bookies: acknowledgement, failures, back-pressure, close."""

from __future__ import annotations

import asyncio

import pytest

from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.errors import LedgerExistsError, MetadataConflictError, NoSuchLedgerError
from bookkeeper_metadata.model import LedgerMetadata, LedgerState
from spark_bookkeeper.ledger import write_handle
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.errors import (
    EntryTooLargeError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerInUseError,
    NotEnoughBookiesError,
)
from tests.doubles.cluster import InProcessCluster
from tests.doubles.waits import pass_turns
from tests.spark_bookkeeper.ledger.scene import Scene


async def test_what_is_appended_is_read_back_in_order(scene: Scene) -> None:
    ids = [await scene.writer.append(b"0"), await scene.writer.append_async(b"1")]
    ids += await scene.writer.append_many([b"2", b"3", b"4"])
    await scene.writer.close()

    assert ids == [0, 1, 2, 3, 4]
    assert await scene.read() == [b"0", b"1", b"2", b"3", b"4"]
    metadata = await scene.metadata()
    assert (metadata.state, metadata.last_entry, metadata.length) == (LedgerState.CLOSED, 4, 5)


@pytest.mark.parametrize("quorums", [(1, 1, 1), (3, 2, 2), (5, 3, 2), (4, 4, 3)])
@pytest.mark.cluster(bookies=5)
async def test_all_shapes_of_quorums_round_trip(scene: Scene) -> None:
    payloads = [bytes([i]) * (i % 7) for i in range(100)]
    await scene.writer.append_many(payloads)
    await scene.writer.close()

    assert await scene.read() == payloads


@pytest.mark.parametrize("digest_type", ["CRC32", "CRC32C", "HMAC", "DUMMY"])
@pytest.mark.conformance("W17")
async def test_all_digest_types_round_trip(client: LedgerClient, digest_type: str) -> None:
    writer = await client.create_ledger(digest_type=digest_type, password=b"secret")
    await writer.append_many([b"a", b"b"])
    await writer.close()
    reader = await client.open_ledger(writer.ledger_id, password=b"secret")

    assert [bytes(e.payload) async for e in reader.read(0, 1)] == [b"a", b"b"]


@pytest.mark.cluster(max_in_flight_bytes=1000)
async def test_appends_wait_when_the_bytes_in_flight_reach_their_bound(scene: Scene) -> None:
    scene.cluster.set_faults(drops_writes=True)
    futures = [asyncio.ensure_future(scene.writer.append(bytes(400))) for _ in range(10)]
    await pass_turns(20)

    assert scene.writer.last_add_pushed == 2
    scene.writer.abandon(LedgerClosedError(scene.ledger_id))
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(outcome, LedgerClosedError) for outcome in outcomes)


DEPTHS = ConnectionSettings(
    frame_size_bytes_target=500, frame_size_bytes_max=1_000, full_frames_in_flight_max=5
)


@pytest.mark.parametrize(("is_prompt", "runs"), [(True, 5), (False, 3)])
@pytest.mark.cluster(connection=DEPTHS)
async def test_more_whole_runs_are_sent_where_the_last_one_was_acknowledged_soon(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_prompt: bool, runs: int
) -> None:
    if not is_prompt:
        monkeypatch.setattr(write_handle, "PROMPT_S", -1.0)
    await scene.writer.append(b"first")
    scene.cluster.set_faults(drops_writes=True)
    futures = [asyncio.ensure_future(scene.writer.append(bytes(1_000))) for _ in range(10)]
    await pass_turns(20)

    assert scene.writer._state._unacknowledged_runs == runs
    scene.writer.abandon(LedgerClosedError(scene.ledger_id))
    await asyncio.gather(*futures, return_exceptions=True)


@pytest.mark.conformance("D9")
async def test_an_entry_over_the_limit_is_refused_and_the_writer_goes_on(scene: Scene) -> None:
    largest = scene.writer.payload_size_max
    with pytest.raises(EntryTooLargeError, match=f"size_bytes_max={largest}"):
        await scene.writer.append(bytes(largest + 1))

    assert await scene.writer.append(bytes(largest)) == 0
    await scene.writer.close()
    (entry,) = await scene.read()
    assert len(entry) == largest


async def test_a_given_id_can_be_taken_once(client: LedgerClient) -> None:
    writer = await client.create_ledger(ledger_id=2**40)
    assert writer.ledger_id == 2**40
    with pytest.raises(LedgerExistsError):
        await client.create_ledger(ledger_id=2**40)


@pytest.mark.cluster(bookies=2)
async def test_too_few_bookies_leave_no_ledger_behind(client: LedgerClient) -> None:
    with pytest.raises(NotEnoughBookiesError, match="needed=3"):
        await client.create_ledger()
    assert [i async for i in client.list_ledgers()] == []


@pytest.mark.parametrize("wrong", [{"ack_quorum": 4}, {"ensemble_size": 2}, {"digest_type": "MD5"}])
@pytest.mark.cluster(bookies=0)
async def test_impossible_arguments_are_named(
    cluster: InProcessCluster, wrong: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=r"quorum|digest type"):
        await cluster.client().create_ledger(**wrong)  # type: ignore[arg-type]


@pytest.mark.conformance("ClientClosesLedgerFail")
async def test_closing_a_ledger_in_recovery_is_refused(scene: Scene) -> None:
    """The protocol page's rule; Apache's writer overrides the recovery (W20, third case)."""
    await scene.writer.append(b"x")
    await scene.client.cluster.ledgers.update(scene.ledger_id, LedgerMetadata.in_recovery)

    with pytest.raises(LedgerFencedError):
        await scene.writer.close()
    assert not (await scene.metadata()).is_closed


@pytest.mark.parametrize(("closed_at", "succeeds"), [(0, True), (-1, False)])
@pytest.mark.conformance("W20")
async def test_a_close_that_finds_the_ledger_closed_succeeds_only_at_its_own_end(
    scene: Scene, closed_at: int, succeeds: bool
) -> None:
    """W20: same end is success whatever the length says, another end is a conflict."""
    await scene.writer.append(b"x")
    await scene.client.cluster.ledgers.update(
        scene.ledger_id, lambda metadata: metadata.closed(closed_at, 99)
    )

    if succeeds:
        await scene.writer.close()
    else:
        with pytest.raises(MetadataConflictError, match="closed at -1, written to 0"):
            await scene.writer.close()


async def test_deleting_an_open_ledger_recovers_it_first(scene: Scene) -> None:
    await scene.writer.append(b"x")

    await scene.client.delete_ledger(scene.ledger_id)

    with pytest.raises(LedgerFencedError):
        await scene.writer.append(b"y")
    with pytest.raises(NoSuchLedgerError):
        await scene.client.open_ledger(scene.ledger_id)


async def test_a_ledger_of_a_log_is_not_deleted_under_it(client: LedgerClient) -> None:
    writer = await client.create_ledger(custom_metadata={"log": b"orders"})
    await writer.close()

    with pytest.raises(LedgerInUseError, match="log=orders"):
        await client.delete_ledger(writer.ledger_id)
    await client.dispose_of_ledger(writer.ledger_id)
