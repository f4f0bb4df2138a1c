"""How much is asked for at once: no more than there is room for, and less where answers are late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from bookie_server.wire.messages import (
    IdRange,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Status,
)
from spark_bookkeeper.ledger.errors import EntryUnreadableError
from spark_bookkeeper.ledger.fetch import Fetched, FragmentFetcher
from spark_bookkeeper.ledger.read_handle import ReadHandle
from tests.doubles.bookies import FaultyClient
from tests.doubles.waits import until
from tests.patience import seconds
from tests.spark_bookkeeper.ledger.scene import Scene, read_all
from tests.spark_bookkeeper.ledger.tails import SLOW_POLLS, Follower, append

KIB = 1024
UNEVEN = [b"%d" % at * (10 * KIB if at % 20 == 7 else 100) for at in range(400)]
"""Of five write sets one has nearly all the bytes."""
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


def denying(*entry_ids: int) -> Callable[[ReadReply], ReadReply]:
    """What a bookie that lacks these answers."""

    def alter(reply: ReadReply) -> ReadReply:
        runs = [part for run in reply.runs for part in run.without(entry_ids.__contains__)]
        held = {entry_id for run in reply.runs for entry_id in run.entry_ids}
        denied = [IdRange(each, each, Status.NO_ENTRY) for each in entry_ids if each in held]
        return ReadReply(tuple(runs), (*denied, *reply.missing), reply.last_add_confirmed)

    return alter


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

    before = asyncio.all_tasks()

    assert await read_all(reader) == GROWING

    assert max(fetched) <= 3 * 100 * KIB
    assert asyncio.all_tasks() == before, "what was asked for ahead and given up has ended"


@SMALL_REPLIES
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 1, 1)], ids=str)
async def test_so_they_do_where_they_may_be_unconfirmed(scene: Scene, fetched: list[int]) -> None:
    reader = await written(scene, GROWING)

    found = [bytes(e.payload) async for e in reader.read_unconfirmed(0, len(GROWING) - 1)]

    assert found == GROWING
    assert max(fetched) <= 3 * 100 * KIB


@pytest.mark.parametrize("quorums", [(5, 2, 2), (5, 1, 1)], ids=str)
@pytest.mark.cluster(bookies=5, read_size_bytes=100 * KIB)
async def test_write_sets_that_bring_different_amounts_are_read_in_order(scene: Scene) -> None:
    reader = await written(scene, UNEVEN)

    assert await read_all(reader) == UNEVEN
    assert [bytes(e.payload) async for e in reader.read_unconfirmed(0, 399)] == UNEVEN


@pytest.mark.parametrize("quorums", [(5, 2, 2)], ids=str)
@pytest.mark.parametrize("gap", [1, 3_206, 3_208, 3_398])
@pytest.mark.cluster(bookies=5, read_size_bytes=100 * KIB)
async def test_so_they_are_in_front_of_an_entry_that_nobody_has(scene: Scene, gap: int) -> None:
    payloads = [b""] * 3_000 + UNEVEN
    reader = await written(scene, payloads)
    scene.cluster.set_faults(alter_read=denying(gap))

    found: list[bytes] = []

    async def read_on() -> None:
        async for entry in reader.read_unconfirmed(0, len(payloads) - 1):
            found.append(bytes(entry.payload))

    with pytest.raises(EntryUnreadableError, match=rf"\b{gap}\b"):
        await read_on()

    assert found == payloads[:gap]


@SMALL_REPLIES
async def test_what_nobody_was_asked_for_is_not_missing(scene: Scene) -> None:
    """Behind a first entry that nobody has, when there were enough bytes."""
    reader = await written(scene, [bytes(10 * KIB)] * 120)
    scene.cluster.set_faults(alter_read=denying(0))

    fetched = await reader._fetcher.fetch_some(
        reader.metadata.last_fragment, range(120), 0, enough_bytes=100 * KIB
    )

    assert list(fetched.missing) == [0]
    assert 0 < fetched.postponed[0] <= 40
    assert fetched.postponed[-1] == 119


@SMALL_REPLIES
@pytest.mark.parametrize("lacking", [(0,), (0, 1)], ids=str)
@pytest.mark.parametrize("turn", range(3))
async def test_nothing_is_left_out_where_only_the_last_that_is_asked_has_the_first(
    scene: Scene, lacking: tuple[int, ...], turn: int
) -> None:
    """Behind those that had enough without it."""
    reader = await written(scene, [bytes(10 * KIB)] * 120)
    scene.fail(*lacking, alter_read=denying(0))

    fetched = await reader._fetcher.fetch_some(
        reader.metadata.last_fragment, range(120), turn, enough_bytes=50 * KIB
    )

    held = [entry_id for run in fetched.runs for entry_id in run.entry_ids]
    assert held[0] == 0
    assert not fetched.missing
    assert sorted({*held, *fetched.postponed}) == list(range(120))


@pytest.mark.parametrize("quorums", [(2, 2, 2), (3, 2, 2)], ids=str)
@pytest.mark.parametrize("delay_s", [0.0, 0.03], ids=["in-time", "late"])
@pytest.mark.cluster(speculative_read_timeout_ms=10, read_size_bytes=100 * KIB)
async def test_a_replica_that_lacks_an_entry_is_asked_for_those_behind_its_reply(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, delay_s: float
) -> None:
    """Each of two lacks some: who had denied one was not asked for what its reply had no room for."""
    payloads = [bytes(10 * KIB)] * 120
    reader = await written(scene, payloads)
    scene.fail(0, alter_read=denying(0, 30, 90))
    scene.fail(1, alter_read=denying(6, 33, 93))
    read = FaultyClient.read

    async def read_late(client: FaultyClient, request: ReadRequest) -> ReadReply:
        reply = await read(client, request)
        await asyncio.sleep(delay_s)
        return reply

    monkeypatch.setattr(FaultyClient, "read", read_late)

    for turn in range(2):
        fragment = reader.metadata.last_fragment
        runs = await reader._fetcher.fetch(fragment, 0, 119, turn)
        assert [entry_id for run in runs for entry_id in run.entry_ids] == list(range(120))
    assert await read_all(reader) == payloads


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
    scene: Scene, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked for as many again, and the bookies sent them in vain, for ever."""

    is_slow, read_lac = True, FaultyClient.read_lac

    async def over_a_slow_link(client: FaultyClient, request: ReadLacRequest) -> ReadLacReply:
        reply = await read_lac(client, request)
        if is_slow and len(reply.records) > 1_000:
            await asyncio.Event().wait()
        return reply

    monkeypatch.setattr(FaultyClient, "read_lac", over_a_slow_link)
    await append(scene.writer, 2)
    await follower.seen(0)
    await scene.writer.append_many([bytes(2_000)] * 198)
    await follower.seen(198)

    def asked() -> list[int]:
        return [poll.size_bytes_max for faults in scene.faults for poll in faults.polls_seen]

    assert 0 in asked()
    is_slow = False
    await until(lambda: asked().count(2 * KIB * KIB) > 3)
    await scene.writer.close()

    assert await follower.ended() == list(range(200))
    assert {64 * KIB, 128 * KIB, 1024 * KIB} <= set(asked())
    assert max(asked()) == 2 * KIB * KIB


@SMALL_REPLIES
async def test_a_reply_without_a_sound_entry_is_gone_on_behind(scene: Scene) -> None:
    """As of a disk that cannot read so much in a row: each of two has what the other lacks."""

    def damaged(first: int, last: int) -> Callable[[ReadReply], ReadReply]:
        def alter(reply: ReadReply) -> ReadReply:
            runs = tuple(run for run in reply.runs if not first <= run.first_entry <= last)
            bad = (IdRange(run.first_entry, run.last_entry, Status.UNKNOWN) for run in reply.runs)
            return replace(reply, runs=runs, missing=(*(() if runs else bad), *reply.missing))

        return alter

    payloads = [bytes(10 * KIB)] * 60
    reader = await written(scene, payloads)
    scene.fail(2)
    scene.fail(0, alter_read=damaged(0, 8))
    scene.fail(1, alter_read=damaged(20, 60))

    for turn in range(3):
        runs = await reader._fetcher.fetch(reader.metadata.last_fragment, 0, 59, turn)
        assert [entry_id for run in runs for entry_id in run.entry_ids] == list(range(60))
