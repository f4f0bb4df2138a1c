"""Ledgers are created once, found again and listed in order, whatever gets lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.errors import (
    ClusterNotInitializedError,
    LedgerExistsError,
    MetadataConflictError,
    MetadataCorruptError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerMetadata, LedgerState, Stop, Versioned
from bookkeeper_metadata.paths import LedgerLayout, Paths
from bookkeeper_metadata.serde import encode_metadata
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.store.operations import (
    BadVersionError,
    Check,
    Create,
    NodeExistsError,
    Operation,
)
from tests.doubles.stores import Script, ScriptedStore
from tests.metadata.samples import open_ledger

ROOT = "/ledgers"
PATHS = Paths(ROOT)
FOREIGN = open_ledger(writer_token=77)


class Scene:
    """An initialized cluster and a script of what happens at which operation."""

    def __init__(self) -> None:
        self.script = Script()
        self.store = MemoryStore()
        self.ledgers = LedgerStore(self.store, ROOT, random=Random(1))

    def write_foreign(self, ledger_id: int) -> None:
        """Another client's ledger stands there."""
        path = PATHS.ledger(ledger_id)
        self.store.tree.make_parents(path)
        self.store.tree.create(path, encode_metadata(FOREIGN))

    def lose_and_overwrite(self, ledger_id: int, *, is_chosen: bool = True) -> None:
        """The reply to a creation is lost, and another client changes the ledger at once."""
        path = PATHS.ledger(ledger_id)
        self.store.tree.make_parents(path)
        self.script.lose("create" if is_chosen else "multi", 1, Fault.LOST_REPLY)

        def overwrite() -> None:
            self.store.tree.put(path, encode_metadata(FOREIGN), 0)

        self.script.at("sync", 1, overwrite)

    async def create(self, ledger_id: int | None = None) -> int:
        return (await self.ledgers.create(open_ledger(), ledger_id=ledger_id))[0]

    async def ids(self) -> list[int]:
        self.store.fault = None
        return [ledger_id async for ledger_id in self.ledgers.list_ids()]


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    await initialize(scene.store, ROOT, random=Random(0))
    # Layout and folders are known before the script begins to count.
    await scene.ledgers.delete(await scene.create())
    scene.store.tree.set_counter(PATHS.idgen, 0)
    scene.write_foreign(99)
    scene.store.fault = scene.script
    return scene


def mark(name: str) -> Callable[[int], list[Operation]]:
    return lambda ledger_id: [Check(ROOT, None), Create(f"{ROOT}/{name}-{ledger_id}", b"")]


async def test_a_created_ledger_is_read_back_as_it_was_returned(scene: Scene) -> None:
    ledger_id, created = await scene.ledgers.create(open_ledger(created_ms=5))
    assert (ledger_id, created.version) == (0, 0)
    assert created.metadata.writer_token > 0
    assert await scene.ledgers.read(ledger_id) == created
    assert await scene.store.children(PATHS.idgen) == []


async def test_a_chosen_id_is_used_or_refused(scene: Scene) -> None:
    assert await scene.create(2**63 - 1) == 2**63 - 1
    with pytest.raises(LedgerExistsError):
        await scene.create(99)
    for impossible in (-1, 2**63):
        with pytest.raises(ValueError, match="a ledger id is"):
            await scene.create(impossible)
    assert await scene.ids() == [99, 2**63 - 1]


async def test_an_allocated_id_that_is_taken_is_passed_over(scene: Scene) -> None:
    scene.write_foreign(0)
    scene.write_foreign(1)
    assert await scene.create() == 2


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("accompanied", [False, True])
@pytest.mark.parametrize("ledger_id", [None, 5])
async def test_a_creation_whose_message_is_lost_happens_once(
    scene: Scene, fault: Fault, accompanied: bool, ledger_id: int | None
) -> None:
    scene.script.lose("multi" if accompanied else "create", 1, fault)
    made, created = await scene.ledgers.create(
        open_ledger(), ledger_id=ledger_id, extra_operations=mark("mark") if accompanied else None
    )
    assert made == (ledger_id or 0)
    assert created.version == 0
    assert await scene.ids() == [made, 99]
    marks = [n for n in await scene.store.children(ROOT) or [] if n.startswith("mark")]
    assert marks == ([f"mark-{made}"] if accompanied else [])


@pytest.mark.parametrize("fault", list(Fault))
async def test_an_id_whose_reply_is_lost_is_drawn_anew(scene: Scene, fault: Fault) -> None:
    scene.script.lose("sequence", 1, fault)
    scene.script.lose("delete", 1, fault)
    assert await scene.create() == (1 if fault is Fault.LOST_REPLY else 0)


@pytest.mark.parametrize("fault", list(Fault))
async def test_parents_whose_creation_is_lost_are_made_all_the_same(
    scene: Scene, fault: Fault
) -> None:
    scene.script.lose("create", 2, fault)  # the first finds no parent
    assert await scene.create(2**40) == 2**40


async def test_a_lost_creation_that_somebody_changed_since_is_neither_made_nor_taken(
    scene: Scene,
) -> None:
    scene.lose_and_overwrite(5)
    with pytest.raises(MetadataUnavailableError):
        await scene.create(5)


async def test_an_allocated_id_in_doubt_is_left_alone_and_the_next_one_used(scene: Scene) -> None:
    scene.lose_and_overwrite(0, is_chosen=False)
    assert await scene.create() == 1


async def test_a_drawn_id_is_shown_until_its_ledger_is_created_and_not_beyond_its_session(
    scene: Scene,
) -> None:
    """What garbage collection relies on: an id that is neither listed nor shown becomes no ledger."""
    shown: list[tuple[list[int], list[int]]] = []

    async def look() -> None:
        listed = [ledger_id async for ledger_id in scene.ledgers.list_ids()]
        shown.append((await scene.ledgers.ids_being_created(), listed))

    async with scene.ledgers._ids.draw() as drawn:
        await look()
        stalled = LedgerStore(scene.store, ROOT, random=Random(9))
        # given a creator whose session ends between the id and the ledger
        scene.store.tree.delete(drawn.node, None)
        ledger = await stalled._node(drawn.number)
        assert await stalled._create_at(ledger, open_ledger(), [], drawn) is None
        await look()
    made = await scene.create()
    await look()

    there = shown[0][1]
    assert shown == [([drawn.number], there), ([], there), ([], sorted([*there, made]))]
    assert made > drawn.number


async def test_ids_of_both_counters_are_shown(scene: Scene) -> None:
    tree = scene.store.tree
    for path in (
        f"{PATHS.idgen}/ID-0000000007",
        f"{PATHS.idgen_long}/HOB-0000000002/ID-0000000003",
    ):
        tree.make_parents(path)
        tree.create(path, b"")
    assert await scene.ledgers.ids_being_created() == [7, 2 << 32 | 3]


async def test_a_lost_creation_behind_which_another_took_the_id_is_refused(scene: Scene) -> None:
    def taken() -> Fault:
        scene.write_foreign(5)
        return Fault.LOST_REPLY

    scene.script.at("create", 1, taken)
    with pytest.raises(LedgerExistsError):
        await scene.create(5)


@pytest.mark.parametrize("accompanied", [False, True])
@pytest.mark.parametrize("ledger_id", [None, 5])
async def test_a_creation_that_arrives_behind_the_look_for_it_is_still_its_callers(
    accompanied: bool, ledger_id: int | None
) -> None:
    """Sent again, it met itself: the id was called taken, or another ledger was made beside it."""
    store = ScriptedStore()
    await initialize(store, ROOT, random=Random(0))
    ledgers = LedgerStore(store, ROOT, random=Random(1))
    before_it, _ = await ledgers.create(open_ledger())  # the folders are there
    creations: list[str] = []

    def is_late(operation: str, path: str) -> bool:
        if operation not in ("create", "multi"):
            return False
        creations.append(path)
        return len(creations) == 1

    async def before(operation: str, path: str) -> None:
        if operation in ("create", "multi"):
            store.arrive()

    store.is_late, store.before = is_late, before
    made, _ = await ledgers.create(
        open_ledger(),
        ledger_id=ledger_id,
        extra_operations=mark("mark") if accompanied else None,
    )

    assert [found async for found in ledgers.list_ids()] == [before_it, made]
    marks = [name for name in await store.children(ROOT) or [] if name.startswith("mark")]
    assert marks == ([f"mark-{made}"] if accompanied else [])


async def test_a_creation_nobody_answers_is_unknown(scene: Scene) -> None:
    scene.script.lose("create", 1, Fault.LOST_REPLY)
    for nth in range(1, 100):
        scene.script.lose("sync", nth, Fault.LOST_REQUEST)
    with pytest.raises(MetadataUnavailableError):
        await scene.create(5)


async def test_a_refused_companion_prevents_the_ledger_and_names_itself(scene: Scene) -> None:
    for companion, error in (
        (Check(PATHS.layout, 3), BadVersionError),
        (Create(PATHS.layout, b""), NodeExistsError),
    ):
        with pytest.raises(error) as refused:
            await scene.ledgers.create(open_ledger(), extra_operations=lambda _, c=companion: [c])  # type: ignore[misc]
        assert getattr(refused.value, "path", None) == PATHS.layout
    assert await scene.ids() == [99]


async def test_reading_what_is_not_there_or_not_metadata_says_which(scene: Scene) -> None:
    with pytest.raises(NoSuchLedgerError):
        await scene.ledgers.read(5)
    scene.store.tree.put(PATHS.ledger(99), b"garbage", 0)
    with pytest.raises(MetadataCorruptError, match=PATHS.ledger(99)):
        await scene.ledgers.read(99)


async def test_an_update_goes_through_the_loop(scene: Scene) -> None:
    result: Versioned | Stop[object] = await scene.ledgers.update(99, LedgerMetadata.in_recovery)
    assert isinstance(result, Versioned)
    assert result.metadata.state is LedgerState.IN_RECOVERY
    assert (await scene.ledgers.read(99)).version == 1


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_a_deleted_ledger_is_gone_with_the_folders_it_leaves_empty(
    scene: Scene, fault: Fault | None
) -> None:
    await scene.create(2**40)
    scene.script.seen.clear()
    if fault is not None:
        scene.script.lose("delete", 1, fault)
    await scene.ledgers.delete(2**40, 0)
    assert await scene.ids() == [99]
    assert "000" not in (await scene.store.children(ROOT) or [])


async def test_deleting_asks_for_the_version_and_for_the_ledger(scene: Scene) -> None:
    with pytest.raises(MetadataConflictError):
        await scene.ledgers.delete(99, 1)
    await scene.ledgers.delete(99)
    with pytest.raises(NoSuchLedgerError):
        await scene.ledgers.delete(99)


@pytest.mark.conformance("M2")
async def test_ids_are_listed_in_order_across_short_and_long_paths(scene: Scene) -> None:
    ids = [2**62, 0, 12_3456_7890, 2**31 - 1, 2**31 - 2, 7]
    for ledger_id in ids:
        await scene.create(ledger_id)
    scene.store.tree.create(f"{ROOT}/00/other", b"")
    assert await scene.ids() == sorted([*ids, 99])


@pytest.mark.parametrize(
    "node", ["000/0000/0000/0000/L0000", "21/4748/L3648", "٠٠/0000/L0000", "00/0000/L٠٠٠٠"]
)
async def test_a_node_at_a_place_that_is_no_ledgers_is_none(scene: Scene, node: str) -> None:
    """One of those, which whoever may create ledgers may create, came out of order and stopped all garbage collection."""
    await scene.store.create(f"{ROOT}/{node}", b"", make_parents=True)
    assert await scene.ids() == [99]


@pytest.mark.conformance("M2")
async def test_a_folder_that_vanishes_during_the_walk_is_skipped_but_silence_is_an_error(
    scene: Scene,
) -> None:
    await scene.create(2**40)
    scene.script.seen.clear()

    def prune() -> None:
        path = PATHS.ledger(2**40)
        for _ in range(5):
            scene.store.tree.delete(path, None)
            path = path.rpartition("/")[0]

    scene.script.at("children", 4, prune)
    assert [ledger_id async for ledger_id in scene.ledgers.list_ids()] == [99]
    scene.script.seen.clear()
    scene.script.lose("children", 3, Fault.LOST_REQUEST)
    with pytest.raises(MetadataUnavailableError):
        [ledger_id async for ledger_id in scene.ledgers.list_ids()]


@pytest.mark.conformance("M2")
async def test_beyond_31_bits_ids_come_from_the_long_counter(scene: Scene) -> None:
    tree = scene.store.tree
    tree.set_counter(PATHS.idgen, 2**31 - 2)
    ids = [await scene.create() for _ in range(3)]
    assert ids == [2**31 - 2, 1 << 32, (1 << 32) + 1]
    # and once a folder's counter is used up, the next folder begins; three are kept
    for high in range(1, 5):
        tree.set_counter(f"{PATHS.idgen_long}/HOB-{high:010d}", 2**31 - 1)
        assert await scene.create() == (high + 1) << 32
    assert tree.children(PATHS.idgen_long) == ["HOB-0000000003", "HOB-0000000004", "HOB-0000000005"]


@pytest.mark.conformance("M2")
async def test_ids_of_concurrent_clients_are_all_different(scene: Scene) -> None:
    clients = [LedgerStore(MemoryStore(scene.store.tree), ROOT, random=Random(i)) for i in range(4)]
    made = await asyncio.gather(*(c.create(open_ledger()) for c in clients for _ in range(5)))
    assert sorted(ledger_id for ledger_id, _ in made) == list(range(20))


async def test_a_watch_reports_metadata_and_deletion_and_survives_garbage(scene: Scene) -> None:
    seen: list[Versioned | None] = []
    stop = await scene.ledgers.watch(99, seen.append)
    scene.store.tree.put(PATHS.ledger(99), b"garbage", 0)
    await scene.store.sync("/")
    await scene.ledgers.delete(99)
    await scene.store.sync("/")
    assert [versioned and versioned.version for versioned in seen] == [0, None]
    stop()


async def test_without_a_cluster_nothing_is_created_and_the_remedy_is_named() -> None:
    store = MemoryStore()
    ledgers = LedgerStore(store, ROOT, random=Random(1))
    with pytest.raises(ClusterNotInitializedError, match="cluster init"):
        await ledgers.create(open_ledger())
    assert store.tree.paths() == ["/"]


async def test_the_clusters_own_layout_decides_where_ledgers_lie() -> None:
    store = MemoryStore()
    await initialize(store, ROOT, layout=LedgerLayout.LONG_HIERARCHICAL, random=Random(1))
    ledgers = LedgerStore(store, ROOT, random=Random(1))
    ledger_id, _ = await ledgers.create(open_ledger())
    assert f"{ROOT}/000/0000/0000/0000/L0000" in store.tree.paths()
    assert [found async for found in ledgers.list_ids()] == [ledger_id]
