"""Commands that need the cluster's metadata only, no bookie."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from bookkeeper_metadata.store.zookeeper import ZooKeeperStore

T = TypeVar("T")


def run_on_metadata(uri: str, act: Callable[[ZooKeeperStore, str], Awaitable[T]]) -> T:
    """Do one thing with the metadata of the cluster at ``uri``; ``act`` gets the store and the root."""
    from bookkeeper_metadata.cluster import read_layout

    async def run() -> T:
        store, root = await connect_to_metadata(uri)
        async with store:
            await read_layout(store, root)  # raises when there is no cluster here
            return await act(store, root)

    return asyncio.run(run())


async def connect_to_metadata(uri: str) -> tuple[ZooKeeperStore, str]:
    """A store, which the caller closes, and the cluster's root; as the environment says how to get in."""
    from bookkeeper_metadata.store.connect import connect
    from spark_bookkeeper.environment import client_settings_from_environment

    return await connect(uri, security=client_settings_from_environment(os.environ))
