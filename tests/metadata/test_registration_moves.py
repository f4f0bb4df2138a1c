"""A bookie that moves between writable and read-only while a real ZooKeeper ends its session, or while it stops."""

from __future__ import annotations

import asyncio

import pytest

from bookie_server.registrar import Registrar
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import BookieServiceInfo
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.memory import MemoryStore
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from tests.conformance.metadata_store import Service
from tests.doubles.waits import pass_turns, until_read
from tests.metadata.test_zookeeper import ZooKeeperService


@pytest.fixture
def service(zookeeper: ZooKeeperProcess) -> Service:
    return ZooKeeperService(zookeeper)


@pytest.mark.parametrize("turns", [0, 2, 20])
async def test_a_session_that_ends_within_a_move_leaves_the_wanted_registration(
    service: Service, store: MetadataStore, other: MetadataStore, root: str, turns: int
) -> None:
    paths = Paths(root)
    await store.create(paths.readonly, b"", make_parents=True)
    registrar = Registrar(BookieRegistry(store, root), "b:1", BookieServiceInfo())
    await registrar.start()

    async def registered() -> tuple[bool, bool]:
        """Whether as writable, and whether as read-only, as others see it."""
        await other.sync(root)
        writable = await other.get(paths.bookie("b:1"))
        readonly = await other.get(paths.bookie("b:1", readonly=True))
        return writable is not None, readonly is not None

    for is_readonly in (True, False):
        registrar.set_readonly(is_readonly)
        await pass_turns(turns)
        await service.expire(store)
        await until_read(registered, (not is_readonly, is_readonly).__eq__)

    await registrar.stop()
    assert await registered() == (False, False)


async def give_up(store: MetadataStore, other: MetadataStore, root: str) -> None:
    """A registration that is not waited for, at whatever moment, leaves no node behind."""
    for turn in range(6):
        path = f"{root}/e{turn}"
        registering = asyncio.create_task(store.ephemeral(path, b"me"))
        await pass_turns(turn)
        if registering.cancel():
            with pytest.raises(asyncio.CancelledError):
                await registering
        else:
            await (await registering).withdraw()
        await other.sync(path)
        assert await other.get(path) is None


async def test_a_registration_that_is_given_up_leaves_no_node(
    store: MetadataStore, other: MetadataStore, root: str
) -> None:
    """A bookie that stopped while it became writable again stayed listed until its session ended."""
    await give_up(store, other, root)


async def test_nor_does_it_in_the_store_that_tests_use() -> None:
    store = MemoryStore()
    await store.create("/r", b"")
    await give_up(store, store, "/r")
