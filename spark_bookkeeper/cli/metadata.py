"""Commands that need the cluster's metadata only, no bookie."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from bookkeeper_metadata.store.interface import MetadataStore

T = TypeVar("T")


def run_on_metadata(uri: str, act: Callable[[MetadataStore, str], Awaitable[T]]) -> T:
    """Do one thing with the metadata of the cluster at ``uri``; ``act`` gets the store and the root."""
    from bookkeeper_metadata.cluster import read_layout
    from bookkeeper_metadata.store.connect import connect

    async def run() -> T:
        store, root = await connect(uri)
        async with store:
            await read_layout(store, root)  # raises when there is no cluster here
            return await act(store, root)

    return asyncio.run(run())
