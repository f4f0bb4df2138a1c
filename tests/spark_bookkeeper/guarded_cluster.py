"""A cluster whose metadata is in a real ZooKeeper with users: bookies of one user, clients of any."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.store.acl import Acl, digest_id, parse_acl
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from bookkeeper_metadata.store.zookeeper_access import load_access
from bookkeeper_metadata.store.zookeeper_settings import ZooKeeperSettings
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.settings import ClientSettings
from tests.doubles.cluster import ROOT, InProcessCluster
from tests.metadata.secure_zookeeper import PASSWORD, as_user
from tests.spark_bookkeeper.log.world import LogSession, create_metadata

SESSION_MS = 20_000
SETTINGS = replace(ClientSettings(), explicit_lac_interval_ms=0, bookie_wait_timeout_ms=0)
NOBODY = ZooKeeperSettings()


def grant(user: str, letters: str) -> str:
    return f"digest:{digest_id(f'{user}:{PASSWORD}')}:{letters}"


class Guarded:
    """Sessions of the users of one cluster; use inside :func:`guarded_cluster`."""

    def __init__(self, process: ZooKeeperProcess, directory: Path, stack: AsyncExitStack) -> None:
        self._process = process
        self._directory = directory
        self._stack = stack
        self._seeds = iter(range(1, 1_000))
        self.bookies = InProcessCluster(directory / "bookies", SETTINGS)

    async def session(self, user: str, acl: str = "") -> ZooKeeperStore:
        """A session of a user, empty: of nobody; ``acl``: for what it creates."""
        settings = as_user(self._directory, user, zookeeper_acl=acl) if user else NOBODY
        store = await ZooKeeperStore.connect(
            [self._process.service], access=load_access(settings), session_timeout_ms=SESSION_MS
        )
        return await self._stack.enter_async_context(store)

    async def start_bookies(self, store: ZooKeeperStore, count: int = 3) -> None:
        """All over one session."""
        self.bookies.store = store  # type: ignore[assignment]
        for number in range(count):
            await self.bookies.start_bookie(f"b{number}:1")
        for bookie in self.bookies.bookies.values():
            self._stack.push_async_callback(bookie.stop)

    def client(self, store: ZooKeeperStore) -> LedgerClient:
        """Of ledgers, over a session of its user's."""
        client = self.bookies.client(next(self._seeds), store)
        self._stack.push_async_callback(client.cluster.close)
        return client

    def log(self, store: ZooKeeperStore, log_id: int = 0) -> LateLog:
        """The log ``orders``, over a session of its user's."""
        log = LateLog(store, self.client(store), next(self._seeds))
        log.log_id = log_id
        self._stack.push_async_callback(partial(end_tasks, log.logs.jobs._background))
        return log


class LateLog(LogSession):
    """Drivers and tasks of a log, with a clock that may be put on; ledgers have metadata and no entries."""

    def __init__(self, store: ZooKeeperStore, client: LedgerClient, seed: int) -> None:
        self.late_ms = 0
        layer = LogLayer(
            store,
            ROOT,
            clock_ms=lambda: time.time_ns() // 1_000_000 + self.late_ms,
            random=Random(seed),
            fence=client.fence_ledger,
            delete_ledger=client.dispose_of_ledger,
        )
        super().__init__(layer, partial(create_metadata, client.cluster.ledgers))


@asynccontextmanager
async def guarded_cluster(process: ZooKeeperProcess, directory: Path) -> AsyncIterator[Guarded]:
    """Nothing of it is there yet."""
    async with AsyncExitStack() as stack:
        yield Guarded(process, directory, stack)


async def initialized(cluster: Guarded, user: str, acl: str = "") -> ZooKeeperStore:
    """The session of who made the cluster's metadata."""
    store = await cluster.session(user, acl)
    await initialize(store, ROOT, random=Random(0))
    return store


async def restrict(store: ZooKeeperStore, path: str, acl: str) -> None:
    """Give one node another ACL, as an administrator does by hand."""
    found = await store.acl(path)
    assert found is not None
    await store.set_acl(path, parse_acl(acl), found.version)


async def all_acls(store: ZooKeeperStore, top: str) -> dict[str, Acl]:
    """Of every node from here down, one after the other."""
    found = await store.acl(top)
    if found is None:
        return {}
    acls = {top: found.acl}
    for name in await store.children(top) or []:
        acls |= await all_acls(store, f"{top}/{name}")
    return acls
