"""A cluster is born once and whole."""

from __future__ import annotations

import asyncio
import uuid
from random import Random

import pytest

from bookkeeper_metadata.cluster import initialize, instance_id, read_layout
from bookkeeper_metadata.errors import (
    ClusterExistsError,
    ClusterNotInitializedError,
    MetadataCorruptError,
    MetadataUnavailableError,
)
from bookkeeper_metadata.paths import LedgerLayout
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from tests.conformance.metadata_store import content

ROOT = "/a/ledgers"


async def test_a_new_cluster_has_every_node_apache_expects() -> None:
    store = MemoryStore()
    made = await initialize(store, ROOT, random=Random(1))
    assert store.tree.paths() == [
        "/",
        "/a",
        ROOT,
        f"{ROOT}/INSTANCEID",
        f"{ROOT}/LAYOUT",
        f"{ROOT}/available",
        f"{ROOT}/available/readonly",
        f"{ROOT}/cookies",
        f"{ROOT}/idgen",
        f"{ROOT}/underreplication",
        f"{ROOT}/underreplication/LAYOUT",
        f"{ROOT}/underreplication/ledgers",
        f"{ROOT}/underreplication/locks",
    ]
    layout = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    assert await content(store, f"{ROOT}/LAYOUT") == (layout, 0)
    assert await read_layout(store, ROOT) is LedgerLayout.HIERARCHICAL
    assert await instance_id(store, ROOT) == made == str(uuid.UUID(made))


async def test_an_existing_cluster_is_left_as_it_is() -> None:
    store = MemoryStore()
    made = await initialize(store, ROOT)
    with pytest.raises(ClusterExistsError):
        await initialize(store, ROOT)
    assert await instance_id(store, ROOT) == made


async def test_of_two_who_initialize_at_once_one_wins() -> None:
    store = MemoryStore()
    clients = [MemoryStore(store.tree) for _ in range(2)]
    results = await asyncio.gather(
        *(initialize(client, ROOT) for client in clients), return_exceptions=True
    )
    winner = [result for result in results if isinstance(result, str)]
    assert winner == [await instance_id(store, ROOT)]
    assert [type(r) for r in results if not isinstance(r, str)] == [ClusterExistsError]


@pytest.mark.parametrize("fault", list(Fault))
async def test_an_interrupted_birth_is_no_cluster_or_a_whole_one(fault: Fault) -> None:
    store = MemoryStore()
    store.fault = lambda operation, path: fault if operation == "multi" else None
    if fault is Fault.LOST_REPLY:
        made = await initialize(store, ROOT, random=Random(1))
        assert await instance_id(store, ROOT) == made
        return
    with pytest.raises(MetadataUnavailableError):
        await initialize(store, ROOT, random=Random(1))
    with pytest.raises(ClusterNotInitializedError):
        await instance_id(store, ROOT)
    store.fault = None
    await initialize(store, ROOT, random=Random(1))


async def test_a_birth_lost_on_the_way_behind_which_another_won_is_not_claimed() -> None:
    store = MemoryStore()

    def fault(operation: str, path: str) -> Fault | None:
        if operation != "multi":
            return None
        store.tree.create(f"{ROOT}/LAYOUT", b"theirs")
        store.tree.create(f"{ROOT}/INSTANCEID", b"theirs")
        return Fault.LOST_REQUEST

    store.fault = fault

    with pytest.raises(ClusterExistsError):
        await initialize(store, ROOT, random=Random(1))
    assert await instance_id(MemoryStore(store.tree), ROOT) == "theirs"


@pytest.mark.parametrize("layout", list(LedgerLayout))
async def test_a_layout_is_read_as_it_was_chosen(layout: LedgerLayout) -> None:
    store = MemoryStore()
    await initialize(store, ROOT, layout=layout)
    assert await read_layout(store, ROOT) is layout


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"1\nhierarchical:1", b"2\norg.example.FlatLedgerManagerFactory:1"]
)
async def test_a_layout_we_do_not_know_is_never_guessed(value: bytes) -> None:
    store = MemoryStore()
    await store.create(f"{ROOT}/LAYOUT", value, make_parents=True)
    with pytest.raises(MetadataCorruptError, match="unsupported ledger layout"):
        await read_layout(store, ROOT)


async def test_a_cluster_without_instance_id_has_none() -> None:
    store = MemoryStore()
    await initialize(store, ROOT)
    await store.delete(f"{ROOT}/INSTANCEID")
    assert await instance_id(store, ROOT) is None
