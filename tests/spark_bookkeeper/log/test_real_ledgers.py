"""Writers and readers of a log over the real ledger protocol: bookies in this process, real files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest

from spark_bookkeeper.ledger.errors import LedgerRecoveryError, NotEnoughBookiesError
from spark_bookkeeper.log.errors import LogFencedError
from spark_bookkeeper.log.format.raw import settings_and_schema
from spark_bookkeeper.log.handle import Log
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.ledgers import ClusterLedgers
from spark_bookkeeper.log.settings import LogWriterSettings
from tests.doubles.cluster import ROOT, InProcessCluster, running_cluster
from tests.spark_bookkeeper.log.tail_world import Following

NAME = "events"
ROLLS = LogWriterSettings(roll_entries=5)
OpenLog = Callable[[], Log]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    # A follower waits for what is confirmed, and the last entry is confirmed by nothing else.
    async with running_cluster(tmp_path, explicit_lac_interval_ms=1) as cluster:
        yield cluster


@pytest.fixture
async def open_log(cluster: InProcessCluster) -> OpenLog:
    """Opens the one log there is, each time as another client."""
    seeds = iter(range(1, 100))

    def layer() -> tuple[LogLayer, ClusterLedgers]:
        client = cluster.client(next(seeds))
        made = LogLayer(
            client.cluster.store,
            ROOT,
            fence=client.fence_ledger,
            delete_ledger=client.dispose_of_ledger,
            random=Random(next(seeds)),
        )
        return made, ClusterLedgers(client)

    created = await layer()[0].catalog.create(NAME, *settings_and_schema(None, b""))

    def open_log() -> Log:
        made, ledgers = layer()
        return Log(made, ledgers, NAME, created)

    return open_log


async def rows(log: Log) -> list[bytes]:
    return [bytes(entry.payload) async for _, entry in log.reader()]


async def test_rows_of_three_writers_come_in_order_and_a_follower_sees_them_all(
    open_log: OpenLog,
) -> None:
    following = Following(open_log().tail("earliest"))
    expected: list[bytes] = []

    for number in range(3):
        # Never closed: each is taken over by the next.
        writer = await open_log().writer(settings=ROLLS)
        expected.extend(b"%d-%d" % (number, entry) for entry in range(12))
        positions = await writer.append_many(expected[-12:])
        assert [position.row for position in positions] == list(range(len(expected)))[-12:]
        await following.has(len(expected))

    assert following.rows == expected
    await open_log().recover()
    assert await rows(open_log()) == expected
    await following.stop()


async def test_a_tail_whose_bookies_are_away_is_not_taken_for_empty(
    cluster: InProcessCluster, open_log: OpenLog
) -> None:
    writer = await open_log().writer()
    await writer.append_many([b"1", b"2"])
    for bookie_id in ("b1:1", "b2:1"):
        cluster.faults[bookie_id].is_dead = True

    with pytest.raises(LedgerRecoveryError):
        await open_log().writer()
    with pytest.raises(LedgerRecoveryError):
        await open_log().recover()

    cluster.set_faults(is_dead=False)
    async with await open_log().writer() as second:
        assert (await second.append(b"3")).row == 2
    with pytest.raises(LogFencedError):
        await writer.append(b"lost")
    assert await rows(open_log()) == [b"1", b"2", b"3"]


async def test_a_take_over_that_finds_too_few_bookies_for_a_ledger_is_repaired_by_the_next(
    cluster: InProcessCluster, open_log: OpenLog
) -> None:
    writer = await open_log().writer()
    await writer.append(b"1")
    available = [f"{ROOT}/available/b{number}:1" for number in (1, 2)]
    nodes = [await cluster.store.get(path) for path in available]
    for path in available:
        await cluster.store.delete(path)

    with pytest.raises(NotEnoughBookiesError):
        await open_log().writer()

    # It had fenced the old writer by then, and recorded nothing.
    assert await open_log().ledgers() == []
    for path, node in zip(available, nodes, strict=True):
        assert node is not None
        await cluster.store.create(path, node.value)
    async with await open_log().writer() as second:
        await second.append(b"2")
    assert await rows(open_log()) == [b"1", b"2"]


async def test_a_roll_that_finds_too_few_bookies_ends_the_writer_who_still_leaves_the_log_in_order(
    cluster: InProcessCluster, open_log: OpenLog
) -> None:
    writer = await open_log().writer(settings=ROLLS)
    for bookie_id in ("b1:1", "b2:1"):
        await cluster.store.delete(f"{ROOT}/available/{bookie_id}")

    results = await asyncio.gather(
        *(writer.append_async(b"%d" % number) for number in range(7)), return_exceptions=True
    )
    with pytest.raises(NotEnoughBookiesError):
        await writer.append(b"after")
    await writer.close()

    assert [isinstance(each, NotEnoughBookiesError) for each in results] == [False] * 5 + [True] * 2
    assert [item.rows for item in await open_log().ledgers()] == [5]
    assert await rows(open_log()) == [b"0", b"1", b"2", b"3", b"4"]
