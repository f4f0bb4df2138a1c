"""The log layer over a real ZooKeeper and the real ledger metadata."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest

from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from spark_bookkeeper.log.errors import NoSuchLogError
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.layer import LogLayer
from tests.spark_bookkeeper.log.world import DAY_MS, LogSession, create_metadata

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

SESSION_MS = 60_000


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as process:
        yield process


class Client(LogSession):
    """One session's log layer, with ledgers that have metadata and no entries."""

    def __init__(self, store: ZooKeeperStore, root: str, seed: int) -> None:
        self.store = store
        self.late_ms = 0
        self.ledgers = LedgerStore(store, root, random=Random(seed))
        super().__init__(
            LogLayer(
                store,
                root,
                clock_ms=lambda: time.time_ns() // 1_000_000 + self.late_ms,
                fence=self.fence,
                delete_ledger=self.ledgers.delete,
            ),
            partial(create_metadata, self.ledgers),
        )

    async def fence(self, ledger_id: int) -> None:
        await self.ledgers.read(ledger_id)

    async def ledger_ids(self) -> set[int]:
        return {ledger_id async for ledger_id in self.ledgers.list_ids()}


@asynccontextmanager
async def client(zookeeper: ZooKeeperProcess, root: str, seed: int = 1) -> AsyncIterator[Client]:
    """A session; the first one's cluster is new and has a log. A slow disk of the machine ends none."""
    store = await ZooKeeperStore.connect([zookeeper.service], session_timeout_ms=SESSION_MS)
    found = Client(store, root, seed)
    try:
        if seed == 1:
            await initialize(store, root, random=Random(1))
            await found.create_log()
        yield found
    finally:
        await end_tasks(found.logs.jobs._background)
        await store.close()


async def test_log_lives_from_creation_to_deletion(zookeeper: ZooKeeperProcess) -> None:
    async with client(zookeeper, "/whole") as one:
        await one.append(Job.of_stream("q", 0))
        await one.append(Job.of_batch("b-1"), is_overwrite=True)
        await one.write(await one.plan(), Job.of_batch("b-2"))
        one.late_ms = 8 * DAY_MS
        await one.collect()

        assert [item.first_row for item in await one.visible()] == [20, 30]
        assert await one.ledger_ids() == await one.visible_ledgers()
        assert await one.nodes().epochs() == []
        assert await one.store.children(one.nodes().tree.jobs) == []

        await one.logs.catalog.delete("orders")
        assert await one.ledger_ids() == set()
        assert await one.store.children("/whole-logs") == ["names"]
        with pytest.raises(NoSuchLogError):
            await one.visible()


async def test_appenders_of_several_sessions_all_succeed(zookeeper: ZooKeeperProcess) -> None:
    async with (
        client(zookeeper, "/several") as one,
        client(zookeeper, "/several", 2) as two,
        client(zookeeper, "/several", 3) as three,
    ):
        two.log_id = three.log_id = one.log_id

        await asyncio.gather(
            *(
                session.append(Job.of_batch(f"{number}-{index}"))
                for number, session in enumerate((one, two, three))
                for index in range(4)
            )
        )

        await one.store.sync("/several-logs")
        assert [item.first_row for item in await one.visible()] == list(range(0, 240, 10))
        assert await one.ledger_ids() == await one.visible_ledgers()


async def test_many_ranges_fit_through_one_session(zookeeper: ZooKeeperProcess) -> None:
    async with client(zookeeper, "/many") as one:
        await one.append_many(100_000)

        assert len(await one.visible()) == 100_000
