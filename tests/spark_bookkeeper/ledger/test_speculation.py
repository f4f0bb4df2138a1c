"""A replica that takes its time is not waited for: the next is asked, and the first copy counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bookie_server.wire.messages import ReadReply, Status
from spark_bookkeeper.ledger.errors import EntryUnreadableError
from spark_bookkeeper.ledger.read_handle import ReadHandle
from tests.doubles.cluster import InProcessCluster, running_cluster
from tests.doubles.waits import until
from tests.patience import seconds

PAYLOADS = [b"%d" % number * 30 for number in range(40)]


@asynccontextmanager
async def written(
    place: Path, quorums: tuple[int, int, int] = (3, 3, 2), **settings: int
) -> AsyncIterator[tuple[InProcessCluster, ReadHandle, tuple[str, ...]]]:
    """A closed ledger, its reader and its ensemble."""
    settings = {"speculative_read_timeout_ms": 10, "reads_in_flight": 1} | settings
    async with running_cluster(place, bookies=5, **settings) as cluster:
        client = cluster.client()
        e, w, a = quorums
        writer = await client.create_ledger(ensemble_size=e, write_quorum=w, ack_quorum=a)
        await writer.append_many(PAYLOADS)
        await writer.close()
        reader = await client.open_ledger(writer.ledger_id)
        for faults in cluster.faults.values():
            faults.reads_seen.clear()
        yield cluster, reader, reader.metadata.last_fragment.ensemble


async def read_all(reader: ReadHandle) -> list[bytes]:
    async with asyncio.timeout(seconds(10)):
        return [bytes(entry.payload) async for entry in reader.read(0, len(PAYLOADS) - 1)]


async def everybody_asked(cluster: InProcessCluster, ensemble: tuple[str, ...]) -> None:
    await until(lambda: all(cluster.faults[each].reads_seen for each in ensemble))


def nothing(reply: ReadReply) -> ReadReply:
    return ReadReply((), (), -1)


@pytest.mark.conformance("D2")
@pytest.mark.parametrize("quorums", [(3, 3, 2), (5, 3, 2), (4, 2, 2)], ids=str)
@pytest.mark.parametrize("slow", [(0,), (1,), (2,), (0, 2)], ids=str)
async def test_replicas_that_never_answer_are_left_behind(
    tmp_path: Path, quorums: tuple[int, int, int], slow: tuple[int, ...]
) -> None:
    async with written(tmp_path, quorums) as (cluster, reader, ensemble):
        before = asyncio.all_tasks()
        cluster.set_faults(*(ensemble[position] for position in slow), hangs=True)

        for _ in range(3):  # whoever's turn it is
            assert await read_all(reader) == PAYLOADS

        assert asyncio.all_tasks() == before


async def test_a_slow_replica_is_asked_last_from_then_on(tmp_path: Path) -> None:
    async with written(tmp_path, read_size_bytes=200) as (cluster, reader, ensemble):
        slow = cluster.faults[ensemble[0]]
        slow.hangs = True

        assert await read_all(reader) == PAYLOADS

        others = [len(cluster.faults[bookie_id].reads_seen) for bookie_id in ensemble[1:]]
        assert len(slow.reads_seen) == 1
        assert min(others) > 3


async def test_an_answer_that_comes_late_still_counts_when_the_others_fail(tmp_path: Path) -> None:
    async with written(tmp_path) as (cluster, reader, ensemble):
        gate = asyncio.Event()
        cluster.set_faults(*ensemble, alter_read=nothing)
        late = cluster.faults[ensemble[1]]
        late.alter_read, late.holds_reads = None, gate
        reading = asyncio.create_task(read_all(reader))
        await everybody_asked(cluster, ensemble)

        gate.set()

        assert await reading == PAYLOADS


async def test_two_answers_to_one_question_are_one_result(tmp_path: Path) -> None:
    async with written(tmp_path) as (cluster, reader, ensemble):
        gate = asyncio.Event()
        cluster.set_faults(*ensemble, holds_reads=gate)
        reading = asyncio.create_task(read_all(reader))
        await everybody_asked(cluster, ensemble)

        gate.set()  # all three at once

        assert await reading == PAYLOADS


async def test_halves_of_two_replicas_make_a_whole(tmp_path: Path) -> None:
    def only(first: int, last: int, reply: ReadReply) -> ReadReply:
        parts = [run.between(first, last) for run in reply.runs]
        return ReadReply(tuple(part for part in parts if part is not None), (), -1)

    async with written(tmp_path) as (cluster, reader, ensemble):
        cluster.faults[ensemble[0]].alter_read = lambda reply: only(0, 25, reply)
        cluster.faults[ensemble[1]].alter_read = lambda reply: only(15, 39, reply)
        cluster.faults[ensemble[2]].hangs = True

        assert await read_all(reader) == PAYLOADS


async def test_without_speculation_a_reader_waits(tmp_path: Path) -> None:
    async with written(tmp_path, speculative_read_timeout_ms=0) as (cluster, reader, ensemble):
        gate = asyncio.Event()
        cluster.set_faults(*ensemble, holds_reads=gate)
        reading = asyncio.create_task(read_all(reader))
        await until(lambda: any(cluster.faults[b].reads_seen for b in ensemble))
        await asyncio.sleep(0.05)

        assert sum(len(cluster.faults[b].reads_seen) for b in ensemble) == 1
        gate.set()
        assert await reading == PAYLOADS


@pytest.mark.parametrize("status", [Status.NO_ENTRY, Status.UNKNOWN])
async def test_the_error_names_what_each_replica_said(tmp_path: Path, status: Status) -> None:
    async with written(tmp_path) as (cluster, reader, ensemble):
        cluster.set_faults(*ensemble, read_status=status)

        with pytest.raises(EntryUnreadableError) as failed:
            await read_all(reader)

        assert set(failed.value.answers) == {f"{each}:{status.name}" for each in ensemble}


async def test_an_interrupted_read_leaves_no_question_behind(tmp_path: Path) -> None:
    async with written(tmp_path) as (cluster, reader, ensemble):
        cluster.set_faults(*ensemble, hangs=True)
        before = asyncio.all_tasks()
        reading = asyncio.create_task(read_all(reader))
        await everybody_asked(cluster, ensemble)

        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

        assert asyncio.all_tasks() == before
