"""Stores in a real ZooKeeper, with a short session."""

from __future__ import annotations

import asyncio

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from tests.conformance.metadata_store import content
from tests.patience import seconds

SESSION_TIMEOUT_MS = 2_000


async def open_store(process: ZooKeeperProcess) -> ZooKeeperStore:
    return await ZooKeeperStore.connect([process.service], session_timeout_ms=SESSION_TIMEOUT_MS)


async def answered(store: MetadataStore, path: str) -> tuple[bytes, int] | None:
    """One read gives up after a session timeout; a server's restart may take longer."""
    async with asyncio.timeout(seconds(30)):
        while True:
            try:
                return await content(store, path)
            except MetadataUnavailableError:
                continue
