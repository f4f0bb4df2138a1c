"""A replica that takes its time is not waited for: the next is asked, and the first copy counts."""

from __future__ import annotations

import asyncio

import pytest

from bookie_server.wire.messages import ReadReply, Status
from spark_bookkeeper.ledger.errors import EntryUnreadableError
from spark_bookkeeper.ledger.read_handle import ReadHandle
from tests.doubles.waits import until
from tests.patience import seconds
from tests.spark_bookkeeper.ledger.scene import Scene
from tests.spark_bookkeeper.ledger.tails import QUORUMS

pytestmark = pytest.mark.cluster(bookies=5, speculative_read_timeout_ms=10, reads_in_flight=1)

PAYLOADS = [b"%d" % number * 30 for number in range(40)]


@pytest.fixture
async def reader(scene: Scene) -> ReadHandle:
    """Of the ledger, which has all payloads and is closed; no bookie was asked for one yet."""
    await scene.writer.append_many(PAYLOADS)
    await scene.writer.close()
    reader = await scene.client.open_ledger(scene.ledger_id)
    for faults in scene.cluster.faults.values():
        faults.reads_seen.clear()
    return reader


async def read_all(reader: ReadHandle) -> list[bytes]:
    async with asyncio.timeout(seconds(10)):
        return [bytes(entry.payload) async for entry in reader.read(0, len(PAYLOADS) - 1)]


async def everybody_asked(scene: Scene) -> None:
    await until(lambda: all(faults.reads_seen for faults in scene.faults))


def nothing(reply: ReadReply) -> ReadReply:
    return ReadReply((), (), -1)


@pytest.mark.conformance("D2")
@pytest.mark.parametrize("quorums", QUORUMS, ids=str)
@pytest.mark.parametrize("slow", [(0,), (1,), (2,), (0, 2)], ids=str)
async def test_replicas_that_never_answer_are_left_behind(
    scene: Scene, reader: ReadHandle, slow: tuple[int, ...]
) -> None:
    before = asyncio.all_tasks()
    scene.fail(*slow, hangs=True)

    for _ in range(3):  # whoever's turn it is
        assert await read_all(reader) == PAYLOADS

    # Where the silent one is now is still being looked up.
    await until(lambda: asyncio.all_tasks() == before)


@pytest.mark.cluster(read_size_bytes=200)
async def test_a_slow_replica_is_asked_last_from_then_on(scene: Scene, reader: ReadHandle) -> None:
    slow, *others = scene.faults
    slow.hangs = True

    assert await read_all(reader) == PAYLOADS

    assert len(slow.reads_seen) == 1
    assert min(len(faults.reads_seen) for faults in others) > 3


async def test_an_answer_that_comes_late_still_counts_when_the_others_fail(
    scene: Scene, reader: ReadHandle
) -> None:
    gate = asyncio.Event()
    scene.fail(0, 2, alter_read=nothing)
    scene.fail(1, holds_reads=gate)
    reading = asyncio.create_task(read_all(reader))
    await everybody_asked(scene)

    gate.set()

    assert await reading == PAYLOADS


async def test_two_answers_to_one_question_are_one_result(scene: Scene, reader: ReadHandle) -> None:
    gate = asyncio.Event()
    scene.fail(0, 1, 2, holds_reads=gate)
    reading = asyncio.create_task(read_all(reader))
    await everybody_asked(scene)

    gate.set()  # all three at once

    assert await reading == PAYLOADS


async def test_halves_of_two_replicas_make_a_whole(scene: Scene, reader: ReadHandle) -> None:
    def only(first: int, last: int, reply: ReadReply) -> ReadReply:
        parts = [run.between(first, last) for run in reply.runs]
        return ReadReply(tuple(part for part in parts if part is not None), (), -1)

    scene.fail(0, alter_read=lambda reply: only(0, 25, reply))
    scene.fail(1, alter_read=lambda reply: only(15, 39, reply))
    scene.fail(2, hangs=True)

    assert await read_all(reader) == PAYLOADS


@pytest.mark.cluster(speculative_read_timeout_ms=0)
async def test_without_speculation_a_reader_waits(scene: Scene, reader: ReadHandle) -> None:
    gate = asyncio.Event()
    scene.fail(0, 1, 2, holds_reads=gate)
    reading = asyncio.create_task(read_all(reader))
    await until(lambda: any(faults.reads_seen for faults in scene.faults))
    await asyncio.sleep(0.05)

    assert sum(len(faults.reads_seen) for faults in scene.faults) == 1
    gate.set()
    assert await reading == PAYLOADS


@pytest.mark.parametrize("status", [Status.NO_ENTRY, Status.UNKNOWN])
async def test_the_error_names_what_each_replica_said(
    scene: Scene, reader: ReadHandle, status: Status
) -> None:
    scene.fail(0, 1, 2, read_status=status)

    with pytest.raises(EntryUnreadableError) as failed:
        await read_all(reader)

    assert set(failed.value.answers) == {f"{each}:{status.name}" for each in scene.ensemble}


async def test_an_interrupted_read_leaves_no_question_behind(
    scene: Scene, reader: ReadHandle
) -> None:
    scene.fail(0, 1, 2, hangs=True)
    before = asyncio.all_tasks()
    reading = asyncio.create_task(read_all(reader))
    await everybody_asked(scene)

    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

    assert asyncio.all_tasks() == before
