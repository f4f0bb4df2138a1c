"""A collection counts on all disks, then in the metadata; a restored copy of that is noticed."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from bookie_server.collection.counter import CollectionCounter
from bookie_server.identity import Identity, claim_identity
from bookie_server.settings import BookieSettings
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.identity.cookie_file import read_start, write_start
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.cookies import CookieStore, StartCounter
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from tests.doubles.stores import LoseNth
from tests.simulation.kit.files import SimFileSystem

ROOT = "/ledgers"
PATHS = ("/j", "/l")
SETTINGS = BookieSettings(bookie_id="b0:1", journal_directories=("/j",), ledger_directories=("/l",))


class Scene:
    """One bookie's start counter, on its disks and in the metadata."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.files = SimFileSystem()
        self.cluster = ""

    async def start(self, store: MetadataStore | None = None) -> CollectionCounter:
        identity = await self.claim(store)
        counter = identity.collection_counter(self.files, PATHS)
        assert counter is not None
        return counter

    async def claim(self, store: MetadataStore | None = None) -> Identity:
        if not self.cluster:
            self.cluster = await initialize(self.store, ROOT, random=Random(0))
        identity = await claim_identity(
            store or self.store,
            ROOT,
            self.files,
            SETTINGS,
            cluster_id=self.cluster,
            random=Random(self.files.steps),
        )
        identity.locks.close()
        await identity.write_cookie()
        return identity

    async def counter(self) -> StartCounter:
        found = (await CookieStore(self.store, ROOT).read("b0:1")).counter
        assert found is not None
        return found

    async def set_counter(self, **changes: object) -> None:
        cookies = CookieStore(self.store, ROOT)
        recorded = await cookies.read("b0:1")
        assert recorded.counter is not None
        changed = replace(recorded.counter, **changes)  # type: ignore[arg-type]
        await cookies.count_start("b0:1", changed, recorded)

    @property
    def on_disk(self) -> list[int]:
        return [read_start(self.files, path).collections for path in PATHS]


async def test_each_collection_counts_everywhere_and_a_start_goes_on_counting() -> None:
    scene = Scene()
    counter = await scene.start()
    for number in (1, 2):
        assert await counter.count()
        assert scene.on_disk == [number, number]
        assert (await scene.counter()).collections == number

    counter = await scene.start()
    assert scene.on_disk == [2, 2]
    assert await counter.count()
    assert (await scene.counter()).collections == 3


async def test_disks_count_before_the_metadata() -> None:
    scene = Scene()
    counter = await scene.start()
    scene.files.fail_at = {scene.files.steps + 6: errno.EIO}  # within the second directory
    with pytest.raises(OSError, match="injected"):
        await counter.count()
    assert (await scene.counter()).collections == 0
    scene.files.fail_at = {}

    assert await counter.count()
    assert scene.on_disk == [1, 1]


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_word_to_the_metadata_that_was_lost_makes_it_no_older(fault: Fault) -> None:
    scene = Scene()
    await scene.claim()
    unlucky = MemoryStore(scene.store.tree, fault=LoseNth(1, fault))
    counter = await scene.start(unlucky)
    with pytest.raises(MetadataUnavailableError):
        await counter.count()

    assert await counter.count()
    assert await counter.count()
    assert not (await scene.counter()).is_metadata_older
    await scene.start()
    assert not (await scene.counter()).is_metadata_older


async def test_metadata_of_before_the_last_collection_is_not_believed_until_it_is_accepted() -> (
    None
):
    scene = Scene()
    counter = await scene.start()
    assert await counter.count()
    assert await counter.count()
    await scene.set_counter(collections=1)

    assert not await counter.count()

    assert (await scene.counter()).is_metadata_older
    assert not await counter.count()
    counter = await scene.start()
    assert not await counter.count(), "a new start trusts it no more than the old one"
    assert await CookieStore(scene.store, ROOT).accept_metadata("b0:1")
    assert await counter.count()
    assert await counter.count()


async def test_a_start_finds_metadata_that_counts_two_collections_less_than_the_disks() -> None:
    scene = Scene()
    counter = await scene.start()
    for _ in range(3):
        assert await counter.count()
    await scene.set_counter(collections=1)

    await scene.start()

    assert (await scene.counter()).is_metadata_older
    assert scene.on_disk == [3, 3]


async def test_a_disk_that_missed_a_collection_is_an_old_copy() -> None:
    scene = Scene()
    counter = await scene.start()
    old = read_start(scene.files, "/l")
    assert await counter.count()
    write_start(scene.files, "/l", old)

    with pytest.raises(StorageRefusedError, match=r"has seen 0 collections of garbage.* of 1"):
        await scene.start()


async def test_metadata_of_another_start_or_another_cluster_is_not_believed() -> None:
    scene = Scene()
    counter = await scene.start()
    assert await counter.count()
    await scene.set_counter(start_id="another")
    assert not await counter.count()

    scene = Scene()
    counter = await scene.start()
    path = Paths(ROOT).instance_id
    node = await scene.store.get(path)
    assert node is not None
    await scene.store.put(path, str(UUID(int=7)).encode(), node.version)
    assert not await counter.count()
    assert scene.on_disk == [0, 0]
