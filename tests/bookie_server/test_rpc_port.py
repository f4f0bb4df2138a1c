"""A bookie that Java clients would choose and not reach does not start beside bookies of Apache's."""

from __future__ import annotations

import pytest

from bookie_server.registrar import RpcPortNeededError, require_no_java
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import (
    BOOKIE_ENDPOINT,
    BOOKIE_RPC,
    GRPC,
    BookieServiceInfo,
    Endpoint,
)
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import MemoryStore

ROOT = "/ledgers"
OURS = Endpoint(BOOKIE_ENDPOINT, "h", 1, GRPC)
APACHES = Endpoint(BOOKIE_ENDPOINT, "h", 2, BOOKIE_RPC)


@pytest.mark.parametrize("readonly", [False, True])
async def test_beside_one_of_apaches_it_is_refused(*, readonly: bool) -> None:
    async with MemoryStore() as store:
        await store.create(Paths(ROOT).readonly, b"", make_parents=True)
        registry = BookieRegistry(store, ROOT)
        await registry.register("a:2", BookieServiceInfo((APACHES,)), readonly=readonly)
        with pytest.raises(RpcPortNeededError, match="bookies=a:2"):
            await require_no_java(registry)


async def test_beside_others_that_speak_both_it_is_not() -> None:
    """Who mixes protocols knows what is in the cluster; nothing of Apache's is."""
    async with MemoryStore() as store:
        await store.create(Paths(ROOT).readonly, b"", make_parents=True)
        registry = BookieRegistry(store, ROOT)
        await require_no_java(registry)
        await registry.register("b:1", BookieServiceInfo((OURS, APACHES)))
        await require_no_java(registry)
