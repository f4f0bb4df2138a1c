"""What follows a ledger in the background, and the cluster that tests of it want."""

from __future__ import annotations

import asyncio

import pytest

from bookie_server.bookie import Bookie
from bookie_server.wire.messages import ReadReply
from bookie_server.wire.record import Run, parse_run
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.doubles.cluster import InProcessCluster
from tests.doubles.waits import until
from tests.patience import seconds

QUORUMS = [(3, 3, 2), (5, 3, 2), (4, 2, 2)]
SLOW_POLLS = pytest.mark.cluster(bookies=4, long_poll_timeout_ms=100, explicit_lac_interval_ms=1)


class Follower:
    """A tail in the background, and what it has seen."""

    def __init__(self, reader: ReadHandle, first: int, timeout: float | None = None) -> None:
        self.reader = reader
        self.ids: list[int] = []
        self.payloads: list[bytes] = []
        self.task = asyncio.create_task(self._follow(first, timeout))

    async def _follow(self, first: int, timeout: float | None) -> None:
        async for entry in self.reader.tail(first, timeout=timeout):
            assert entry.entry_id <= self.reader.last_add_confirmed
            self.ids.append(entry.entry_id)
            self.payloads.append(bytes(entry.payload))

    async def seen(self, last_entry: int) -> None:
        await until(lambda: self.task.done() or bool(self.ids and self.ids[-1] >= last_entry))
        if self.task.done():
            await self.task

    async def ended(self) -> list[int]:
        async with asyncio.timeout(seconds(10)):
            await self.task
        return self.ids


async def told(cluster: InProcessCluster, last_add_confirmed: int) -> None:
    """Every bookie has been told by the resting writer."""

    def knows(bookie: Bookie) -> bool:
        facts = bookie.storage.contents.ledgers.get(0)
        return facts is not None and facts.last_add_confirmed >= last_add_confirmed

    await until(lambda: sum(map(knows, cluster.bookies.values())) >= 3)


def damage_reads(reply: ReadReply) -> ReadReply:
    """Flip a payload bit of each run's middle record."""

    def flipped(run: Run) -> Run:
        data = bytearray(run.data)
        data[run.end_of(len(run) // 2) - 1] ^= 1
        return parse_run(bytes(data))

    return ReadReply(tuple(map(flipped, reply.runs)), reply.missing, reply.last_add_confirmed)


def payload(number: int) -> bytes:
    return b"%d" % number * (1 + number % 7)


async def append(writer: WriteHandle, count: int) -> None:
    for _ in range(count):
        await writer.append(payload(writer.last_add_pushed + 1))
