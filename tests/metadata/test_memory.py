"""The store in memory behaves as a store, and loses messages exactly as it is told to."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import Create
from tests.conformance.metadata_store import MetadataStoreConformance, Service


class MemoryService(Service):
    root = "/test"

    def __init__(self) -> None:
        self._tree = MemoryTree()

    async def connect(self) -> MetadataStore:
        return MemoryStore(self._tree)

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryStore)
        store.expire()


@pytest.fixture
def service() -> Service:
    return MemoryService()


class TestMemoryStore(MetadataStoreConformance):
    pass


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_lost_message_is_an_unknown_outcome_whether_applied_or_not(fault: Fault) -> None:
    store = MemoryStore()
    store.fault = lambda operation, path: fault if path.startswith("/lost") else None

    for change in (
        store.create("/lost", b""),
        store.multi([Create("/lost-too", b"")]),
        store.sequence("/lost-", b""),
    ):
        with pytest.raises(MetadataUnavailableError):
            await change

    was_applied = fault is Fault.LOST_REPLY
    expected = ["/", "/lost", "/lost-0000000002", "/lost-too"] if was_applied else ["/"]
    assert store.tree.paths() == expected


async def test_a_refusal_whose_reply_is_lost_is_as_unknown_as_a_success() -> None:
    store = MemoryStore()
    await store.create("/a", b"")
    store.fault = lambda operation, path: Fault.LOST_REPLY
    with pytest.raises(MetadataUnavailableError):
        await store.create("/a", b"")


def test_equal_programs_see_equal_histories() -> None:
    async def history() -> list[str]:
        tree = MemoryTree()
        seen: list[str] = []
        stores = [MemoryStore(tree) for _ in range(3)]
        for index, store in enumerate(stores):
            await store.watch_children("/", lambda names, i=index: seen.append(f"{i}{names}"))  # type: ignore[misc]
        await asyncio.gather(*(store.sequence("/n-", b"", ephemeral=True) for store in stores))
        stores[1].expire()
        await stores[0].sync("/")
        return [*seen, *tree.paths()]

    assert asyncio.run(history()) == asyncio.run(history())


def test_the_sequence_counter_wraps_to_negative_numbers_as_zookeepers_does() -> None:
    tree = MemoryTree()
    tree.set_counter("/", 2**31 - 1)
    assert tree.create_sequential("/ID-", b"", None) == "/ID-2147483647"
    assert tree.create_sequential("/ID-", b"", None) == "/ID--2147483648"
