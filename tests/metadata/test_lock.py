"""A waiter whose replies get lost neither blocks itself nor holds what it does not know of."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from tests.doubles.waits import until_read
from tests.patience import seconds

PATH = "/locks/x"


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_waiter_finds_its_own_node_again_after_a_lost_message(fault: Fault) -> None:
    store = MemoryStore()
    await store.create(PATH, b"", make_parents=True)
    faults = iter([fault])
    store.fault = lambda operation, path: next(faults, None) if operation == "sequence" else None

    release = await asyncio.wait_for(store.lock(PATH), seconds(5))
    assert len(await store.children(PATH) or []) == 1
    await release()
    assert await store.children(PATH) == []


async def test_a_store_that_stays_silent_gives_no_lock() -> None:
    store = MemoryStore()
    await store.create(PATH, b"", make_parents=True)
    store.fault = lambda operation, path: Fault.LOST_REQUEST if operation == "sequence" else None
    with pytest.raises(MetadataUnavailableError):
        await store.lock(PATH)
    assert await store.children(PATH) == []


async def test_a_waiter_whose_session_is_lost_queues_anew() -> None:
    holder = MemoryStore()
    waiter = MemoryStore(holder.tree)
    release = await holder.lock(PATH)
    waiting = asyncio.create_task(waiter.lock(PATH))
    await until_read(lambda: holder.children(PATH), lambda names: len(names or []) == 2)
    waiter.expire()
    await release()
    release = await asyncio.wait_for(waiting, seconds(5))
    assert len(await holder.children(PATH) or []) == 1
    await release()
