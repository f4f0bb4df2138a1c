"""How much is asked for at once: no more than there is room for, and less where answers are late."""

from __future__ import annotations

import asyncio

import pytest

from bookie_server.wire.messages import ReadLacReply, ReadReply, Status
from spark_bookkeeper.ledger.errors import EntryUnreadableError
from spark_bookkeeper.ledger.fetch import Fetched, FragmentFetcher
from spark_bookkeeper.ledger.read_handle import ReadHandle
from tests.doubles.waits import until
from tests.patience import seconds
from tests.spark_bookkeeper.ledger.scene import Scene, read_all
from tests.spark_bookkeeper.ledger.tails import SLOW_POLLS, Follower, append

KIB = 1024
GROWING = [b""] * 3_000 + [bytes(20 * KIB)] * 60
"""A megabyte of large entries behind so many without a byte that all of them are asked for together."""
SMALL_REPLIES = pytest.mark.cluster(read_size_bytes=100 * KIB)


async def written(scene: Scene, payloads: list[bytes]) -> ReadHandle:
    """A reader of the closed ledger; no bookie was asked for an entry yet."""
    await scene.writer.append_many(payloads)
    await scene.writer.close()
    reader = await scene.client.open_ledger(scene.ledger_id)
    for faults in scene.faults:
        faults.reads_seen.clear()
    return reader


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each fetch."""
    sizes: list[int] = []
    fetch_some = FragmentFetcher.fetch_some

    async def noted(*asked: object, **how: object) -> Fetched:
        found = await fetch_some(*asked, **how)  # type: ignore[arg-type]
        sizes.append(sum(run.size_bytes for run in found.runs))
        return found

    monkeypatch.setattr(FragmentFetcher, "fetch_some", noted)
    return sizes


@SMALL_REPLIES
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2), (3, 1, 1)], ids=str)
async def test_entries_that_become_larger_come_in_parts(scene: Scene, fetched: list[int]) -> None:
    reader = await written(scene, GROWING)

    assert await read_all(reader) == GROWING

    assert max(fetched) <= 2 * 100 * KIB, (
        "each of the requests brings no more than it was asked for"
    )


@SMALL_REPLIES
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 1, 1)], ids=str)
async def test_so_they_do_where_they_may_be_unconfirmed(scene: Scene, fetched: list[int]) -> None:
    reader = await written(scene, GROWING)

    found = [bytes(e.payload) async for e in reader.read_unconfirmed(0, len(GROWING) - 1)]

    assert found == GROWING
    assert max(fetched) <= 3 * 100 * KIB


@SMALL_REPLIES
async def test_enough_bytes_without_the_first_entry_are_not_enough(scene: Scene) -> None:
    """A reader would ask for that one again and again, of bookies that all leave it out."""
    reader = await written(scene, GROWING)
    held = [run async for run in reader.read_runs(3_001, 3_040)]
    scene.fail(0, 1, 2, alter_read=lambda _: ReadReply(tuple(held), (), -1))
    other = await scene.open()

    async with asyncio.timeout(seconds(20)):
        with pytest.raises(EntryUnreadableError, match="3000"):
            _ = [run async for run in other.read_runs(3_000, len(GROWING) - 1)]


@pytest.mark.cluster(speculative_read_timeout_ms=10, reads_in_flight=1, read_size_bytes=1024 * KIB)
async def test_less_is_asked_for_while_answers_are_late(scene: Scene) -> None:
    gate = asyncio.Event()
    reader = await written(scene, [bytes(20 * KIB)] * 200)
    for faults in scene.faults:
        faults.holds_reads = gate

    reading = asyncio.create_task(read_all(reader))
    await until(lambda: all(faults.reads_seen for faults in scene.faults))
    sizes = [faults.reads_seen[0].size_bytes_max for faults in scene.faults]
    gate.set()
    await reading

    assert sorted(sizes) == [256 * KIB, 512 * KIB, 1024 * KIB]
    later = [read.size_bytes_max for faults in scene.faults for read in faults.reads_seen[1:]]
    assert 1024 * KIB in later


@pytest.mark.cluster(speculative_read_timeout_ms=10, read_size_bytes=1000)
async def test_never_more_than_the_setting_nor_less_than_it_where_that_is_little(
    scene: Scene,
) -> None:
    reader = await written(scene, [bytes(100)] * 50)
    scene.faults[0].hangs = True

    await read_all(reader)

    asked = {read.size_bytes_max for faults in scene.faults for read in faults.reads_seen}
    assert max(asked) == 1000
    assert min(asked) > 300, "a write set's part of what is enough"


@SLOW_POLLS
async def test_a_tail_over_a_link_that_brings_no_entries_in_time_learns_that_there_are_some(
    scene: Scene, follower: Follower
) -> None:
    """It asked for as many again, and the bookies sent them in vain, for ever."""

    def too_slow(reply: ReadLacReply) -> ReadLacReply:
        return ReadLacReply(Status.UNREACHABLE) if len(reply.records) > 1_000 else reply

    scene.cluster.set_faults(alter_lac=too_slow)
    await append(scene.writer, 2)
    await follower.seen(0)
    await scene.writer.append_many([bytes(2_000)] * 198)
    await follower.seen(198)

    def asked() -> list[int]:
        return [poll.size_bytes_max for faults in scene.faults for poll in faults.polls_seen]

    assert 0 in asked()
    scene.cluster.set_faults(alter_lac=None)
    await until(lambda: asked().count(2 * KIB * KIB) > 3)
    await scene.writer.close()

    assert await follower.ended() == list(range(200))
    assert {64 * KIB, 128 * KIB, 1024 * KIB} <= set(asked())
    assert max(asked()) == 2 * KIB * KIB
