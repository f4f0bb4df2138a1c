"""The log layer over a real ZooKeeper and the real ledger metadata."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.ledgers import ExtraOperations, LedgerStore
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from spark_bookkeeper.log.commits.jobs import Claim
from spark_bookkeeper.log.errors import NoSuchLogError
from spark_bookkeeper.log.format.epoch import Job, LedgerWritten
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.nodes.paths import LogPaths
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.spark_bookkeeper.log.world import DAY_MS, SparkPart, create_under, message_of

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as process:
        yield process


class Client:
    """One session's log layer, with ledgers that have metadata and no entries."""

    def __init__(self, store: ZooKeeperStore, root: str, seed: int) -> None:
        self.store = store
        self.late_ms = 0
        self.ledgers = LedgerStore(store, root, random=Random(seed))
        self.logs = LogLayer(
            store,
            root,
            clock_ms=lambda: time.time_ns() // 1_000_000 + self.late_ms,
            fence=self.fence,
            delete_ledger=self.ledgers.delete,
        )
        self.spark = SparkPart(self.logs, self.create_ledger)

    async def fence(self, ledger_id: int) -> None:
        await self.ledgers.read(ledger_id)

    async def create_ledger(self, claim: Claim) -> int:
        metadata = LedgerMetadata(
            ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("b1:1",)),)
        )

        async def create(extra_operations: ExtraOperations) -> int:
            return (await self.ledgers.create(metadata, extra_operations=extra_operations))[0]

        return await create_under(claim, create)

    async def ledger_ids(self) -> set[int]:
        return {ledger_id async for ledger_id in self.ledgers.list_ids()}


@asynccontextmanager
async def client(zookeeper: ZooKeeperProcess, root: str, seed: int) -> AsyncIterator[Client]:
    store = await ZooKeeperStore.connect([zookeeper.service])
    found = Client(store, root, seed)
    try:
        yield found
    finally:
        await end_tasks(found.logs.jobs._background)
        await store.close()


async def test_log_lives_from_creation_to_deletion(zookeeper: ZooKeeperProcess) -> None:
    async with client(zookeeper, "/whole", 1) as one:
        await initialize(one.store, "/whole", random=Random(1))
        log_id = await one.logs.catalog.create("orders", LogSettings(), b"schema")
        view = one.logs.view(log_id, log="orders")

        await one.spark.append(log_id, Job.of_stream("q", 0))
        await one.spark.append(log_id, Job.of_batch("b-1"), is_overwrite=True)
        late = await one.logs.jobs.plan(log_id, "orders")
        await one.spark.write(late, Job.of_batch("b-2"))
        one.late_ms = 8 * DAY_MS
        await one.logs.collector.collect(log_id)

        ranges = (await view.ranges()).ranges
        assert [item.first_row for item in ranges] == [20, 30]
        assert await one.ledger_ids() == {item.ledger_id for item in ranges}
        nodes = LogNodes(one.store, LogPaths("/whole"), log_id)
        assert await nodes.epochs() == []
        assert await one.store.children(nodes.tree.jobs) == []

        await one.logs.catalog.delete("orders")
        assert await one.ledger_ids() == set()
        assert await one.store.children("/whole-logs") == ["names"]
        with pytest.raises(NoSuchLogError):
            await view.ranges()


async def test_appenders_of_several_sessions_all_succeed(zookeeper: ZooKeeperProcess) -> None:
    async with (
        client(zookeeper, "/several", 1) as one,
        client(zookeeper, "/several", 2) as two,
        client(zookeeper, "/several", 3) as three,
    ):
        await initialize(one.store, "/several", random=Random(1))
        log_id = await one.logs.catalog.create("orders", LogSettings(), b"")

        await asyncio.gather(
            *(
                session.spark.append(log_id, Job.of_batch(f"{number}-{index}"))
                for number, session in enumerate((one, two, three))
                for index in range(4)
            )
        )

        await one.store.sync("/several-logs")
        found = await one.logs.view(log_id, log="orders").ranges()
        assert [item.first_row for item in found.ranges] == list(range(0, 240, 10))
        assert await one.ledger_ids() == {item.ledger_id for item in found.ranges}


async def test_many_ranges_fit_through_one_session(zookeeper: ZooKeeperProcess) -> None:
    async with client(zookeeper, "/many", 1) as one:
        await initialize(one.store, "/many", random=Random(1))
        log_id = await one.logs.catalog.create("orders", LogSettings(), b"")
        job = Job.of_batch("many")
        epoch = await one.logs.jobs.plan(log_id, "orders", job=job)
        messages = [
            message_of(
                epoch, job, index, attempt=index, written=LedgerWritten(10**9 + index, 3, 10, 1_000)
            )
            for index in range(100_000)
        ]

        await one.logs.committer.commit(messages, log="orders")
        found = await one.logs.view(log_id, log="orders").ranges()

        assert len(found.ranges) == 100_000
