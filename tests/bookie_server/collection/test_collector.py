"""A collection deletes what is gone for certain, and nothing else, whatever the metadata does meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from bookie_server.bookie import Bookie
from bookie_server.collection import collector as collector_module
from bookie_server.collection.collector import Collector
from bookie_server.collection.counter import CollectionCounter
from bookie_server.collection.rules import ListingOutOfOrderError
from bookie_server.wire.messages import Status
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.errors import (
    ClusterNotInitializedError,
    MetadataAccessError,
    MetadataUnavailableError,
)
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.store.operations import Node
from tests.doubles.records import add, section
from tests.doubles.storage import running_bookie
from tests.doubles.stores import LaggingStore, Script

ROOT = "/ledgers"
OURS = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("b0:1",)),)
)


class Trusting(CollectionCounter):
    """Counts nothing; believes the metadata as long as it is told to."""

    def __init__(self) -> None:
        self.trusts = True

    async def count(self) -> bool:
        return self.trusts


class Scene:
    """A bookie, its collector, and the metadata they look at."""

    def __init__(self, bookie: Bookie) -> None:
        self.bookie = bookie
        self.store = MemoryStore()
        self.ledgers = LedgerStore(self.store, ROOT, random=Random(0))
        self.counter = Trusting()
        self.collector = self.over(self.store)

    def over(self, store: MemoryStore) -> Collector:
        """The collector, with a metadata session of its own."""
        ledgers = LedgerStore(store, ROOT, random=Random(1))
        self.collector = Collector(self.bookie, self.counter, ledgers, interval_ms=100)
        return self.collector

    async def make(self, count: int = 1, ledger_id: int | None = None) -> list[int]:
        """Ledgers with an entry each on the bookie."""
        made = [(await self.ledgers.create(OURS, ledger_id=ledger_id))[0] for _ in range(count)]
        for each in made:
            assert await add(self.bookie, section([b"x"], ledger_id=each)) is Status.OK
        return made

    async def delete(self, *ledger_ids: int) -> None:
        for each in ledger_ids:
            await self.ledgers.delete(each)

    async def collect(self, times: int = 1) -> int:
        return sum([await self.collector.collect() for _ in range(times)])

    @property
    def held(self) -> list[int]:
        return sorted(self.bookie.held_ledgers)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with running_bookie(tmp_path) as bookie:
        made = Scene(bookie)
        await initialize(made.store, ROOT, random=Random(0))
        yield made


async def test_a_deleted_ledger_is_gone_behind_two_collections(scene: Scene) -> None:
    alive, dead = await scene.make(2)
    assert await scene.collect() == 0, "none before it can say since when the ids are drawn"
    await scene.delete(dead)

    assert await scene.collect() == 0
    assert scene.held == [alive, dead]
    assert await scene.collect() == 1
    assert scene.held == [alive]
    assert await scene.collect(3) == 0


async def test_ledgers_go_in_batches_and_their_ids_in_stretches(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "_BATCH", 3)
    made = await scene.make(10)
    await scene.delete(*made[:4], *made[5:])

    assert await scene.collect(3) == 9
    assert scene.held == [made[4]]
    assert len(list(scene.bookie.storage.contents.tombstones)) <= 5


async def test_an_id_above_the_counter_is_left_alone(scene: Scene) -> None:
    """It is still to be given out, and a bookie with a tombstone would refuse the ledger."""
    chosen = 10**6
    await scene.make(1, ledger_id=chosen)
    await scene.delete(chosen)

    assert await scene.collect(4) == 0
    assert scene.held == [chosen]


async def test_a_ledger_is_left_alone_that_came_since_the_collection_before(scene: Scene) -> None:
    """An Apache client shows nobody which id it is about to use."""
    await scene.collect(2)
    young = await scene.ledgers.draw_id()
    assert await add(scene.bookie, section([b"x"], ledger_id=young)) is Status.OK
    assert await scene.collect() == 0
    assert scene.held == [young]


@pytest.mark.conformance("S9")
async def test_an_id_under_which_a_ledger_may_be_created_is_left_alone_for_ever(
    scene: Scene,
) -> None:
    """Its creator stalls; it cannot create the ledger once its session, and the node, are gone."""
    first, last = (await scene.make(1))[0], 0
    async with scene.ledgers._ids.draw() as drawn:
        (last,) = await scene.make(1)
        assert await add(scene.bookie, section([b"x"], ledger_id=drawn.number)) is Status.OK
        await scene.delete(first, last)
        assert await scene.collect(4) == 2
        assert scene.held == [drawn.number]
        assert list(scene.bookie.storage.contents.tombstones) == [(first, first), (last, last)]
    assert await scene.collect(2) == 1


@pytest.mark.conformance("S9")
async def test_a_ledger_that_is_listed_again_counts_as_never_gone(scene: Scene) -> None:
    (ledger_id,) = await scene.make()
    await scene.collect()
    node = await scene.store.get(path := (await scene.ledgers._node(ledger_id)).path)
    assert node is not None
    await scene.delete(ledger_id)
    assert await scene.collect() == 0
    await scene.store.create(path, node.value, make_parents=True)
    assert await scene.collect() == 0
    await scene.delete(ledger_id)
    assert await scene.collect() == 0, "the grace begins anew"
    assert await scene.collect() == 1


async def test_a_follower_that_lags_behind_makes_nothing_gone(scene: Scene) -> None:
    (ledger_id,) = await scene.make()
    unheard = (await scene.ledgers._node(ledger_id)).path.rpartition("/")[2]
    lagging = LaggingStore(scene.store.tree, unheard)
    scene.over(lagging)
    for _ in range(3):
        lagging.unheard = unheard
        assert await scene.collect() == 0
    assert scene.held == [ledger_id]


@pytest.mark.conformance("S9")
@pytest.mark.parametrize("fault", list(Fault))
async def test_no_lost_request_or_reply_makes_anything_gone(scene: Scene, fault: Fault) -> None:
    """Each operation of a collection is lost in turn; what lives stays, what is gone goes at last."""
    alive, dead = await scene.make(2)
    await scene.delete(dead)
    clean = Script()
    scene.over(MemoryStore(scene.store.tree, fault=clean))
    await scene.collector.collect()
    operations = {operation: len(clean.paths(operation)) for operation, _ in clean.seen}
    lost = 0
    for operation, count in operations.items():
        for nth in range(1, count + 1):
            script = Script()
            script.lose(operation, nth, fault)
            scene.over(MemoryStore(scene.store.tree, fault=script))
            try:
                await scene.collect()
            except MetadataUnavailableError:
                lost += 1
            assert alive in scene.held
    assert lost
    scene.over(scene.store)
    await scene.collect(2)
    assert scene.held == [alive]


@pytest.mark.conformance("S9")
@pytest.mark.parametrize("listing", ["unordered", "cut short", "empty"])
async def test_a_listing_that_is_wrong_deletes_nothing_that_lives(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, listing: str
) -> None:
    made = await scene.make(4)
    await scene.collect()
    wrong: dict[str, Sequence[int]] = {
        "unordered": made[::-1],
        "cut short": made[:1],
        "empty": (),
    }

    async def list_ids(_: object, **__: object) -> AsyncIterator[int]:
        for each in wrong[listing]:
            yield each

    monkeypatch.setattr(LedgerStore, "list_ids", list_ids)
    for _ in range(3):
        try:
            assert await scene.collect() == 0
        except ListingOutOfOrderError:
            assert listing == "unordered"
    assert scene.held == made
    assert await add(scene.bookie, section([b"y"], 1, ledger_id=made[0], length_before=1)) is (
        Status.OK
    ), "nothing is suspected any more"


async def test_a_folder_that_is_hidden_keeps_its_ledgers_and_no_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may make folders could stop every bookie's collections, and disks would fill."""
    made = await scene.make(3)
    hidden = [*await scene.make(1, 15_000), *await scene.make(1, 15_001)]
    far = await scene.make(2, None) + await scene.make(1, 29_999)
    await scene.ledgers.skip_ids(40_000)
    await scene.collect()
    folder = Paths(ROOT).ledger(hidden[0]).rpartition("/")[0]
    others = f"{ROOT}/000"
    await scene.store.create(f"{others}/0000", b"", make_parents=True)
    get, children = scene.store.get, scene.store.children

    def refuse(path: str) -> None:
        if path in (folder, others):
            raise MetadataAccessError("not allowed", path, "me", "zk")

    async def guarded_children(path: str) -> list[str] | None:
        refuse(path)
        return await children(path)

    async def guarded_get(path: str) -> Node | None:
        refuse(path.rpartition("/")[0])
        return await get(path)

    monkeypatch.setattr(scene.store, "children", guarded_children)
    monkeypatch.setattr(scene.store, "get", guarded_get)
    await scene.delete(made[1], far[0], far[2])

    assert await scene.collect(3) == 3
    assert scene.held == sorted([made[0], made[2], *hidden, far[1]])
    # An id in the folder that is not held yet is not covered by what was deleted around it.
    assert await add(scene.bookie, section([b"x"], ledger_id=15_002)) is Status.OK


async def test_metadata_whose_root_is_gone_deletes_nothing(scene: Scene) -> None:
    (ledger_id,) = await scene.make()
    await scene.collect()
    scene.over(MemoryStore())
    for _ in range(3):
        with pytest.raises(ClusterNotInitializedError):
            await scene.collect()
    assert scene.held == [ledger_id]


async def test_a_ledger_created_at_the_last_moment_is_kept(scene: Scene) -> None:
    """Its creator stalled for two collections: neither the entry before the last look at the metadata
    nor one behind it may be acknowledged and lost."""
    late = await scene.ledgers.draw_id()
    await scene.collect(2)
    assert await add(scene.bookie, section([b"x"], ledger_id=late)) is Status.OK
    await scene.collect()
    is_gone: Callable[[LedgerStore, int], Awaitable[bool]] = LedgerStore.is_gone
    answers: list[Status] = []

    async def created_just_before(ledgers: LedgerStore, ledger_id: int) -> bool:
        answers.append(await add(scene.bookie, section([b"x"], 1, ledger_id=late)))
        await scene.ledgers.create(OURS, ledger_id=late)
        return await is_gone(ledgers, ledger_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerStore, "is_gone", created_just_before)
        assert await scene.collect() == 0

    assert answers == [Status.LIMBO]
    assert scene.held == [late]
    again = section([b"x"], 1, ledger_id=late, length_before=1)
    assert await add(scene.bookie, again) is Status.OK


async def test_an_entry_that_comes_to_a_stretch_of_ids_is_not_covered_by_it(scene: Scene) -> None:
    """The bookie held nothing of the ledger when the ids were compared."""
    first, middle, last = await scene.make(3)
    # given a bookie that holds the outer two, and they are gone
    await scene.collect()
    assert await scene.bookie.delete([(middle, middle)]) is Status.OK
    scene.bookie.storage.contents.tombstones = type(scene.bookie.storage.contents.tombstones)()
    await scene.delete(first, last, middle)
    await scene.collect()
    is_gone = LedgerStore.is_gone

    async def entry_comes(ledgers: LedgerStore, ledger_id: int) -> bool:
        if ledger_id == last:
            assert await add(scene.bookie, section([b"z"], ledger_id=middle)) is Status.OK
        return await is_gone(ledgers, ledger_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerStore, "is_gone", entry_comes)
        assert await scene.collect() == 2

    assert scene.held == [middle]


async def test_what_is_not_believed_is_not_asked(scene: Scene) -> None:
    (ledger_id,) = await scene.make()
    await scene.delete(ledger_id)
    await scene.collect()
    scene.counter.trusts = False
    assert await scene.collect(3) == 0
    scene.counter.trusts = True
    assert await scene.collect() == 0, "the grace begins anew"
    assert await scene.collect() == 1
