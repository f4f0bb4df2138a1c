"""A start is counted on the disks, then in the metadata, whatever is lost on the way."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from bookie_server.identity import Identity, claim_identity
from bookie_server.integrity.limbo import wait_until_unregistered
from bookie_server.settings import BookieSettings
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.identity.cookie_file import read_start
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.cookies import CookieStore, RecordedIdentity, StartCounter
from bookkeeper_metadata.endpoints import BookieServiceInfo
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from tests.doubles.stores import LoseNth
from tests.doubles.waits import pass_turns
from tests.simulation.kit.files import SimFileSystem

ROOT = "/ledgers"
CLUSTER = "d2c6a1e0-0000-4000-8000-000000000000"
SETTINGS = BookieSettings(bookie_id="b0:1", journal_directories=("/j",), ledger_directories=("/l",))


async def made() -> MemoryStore:
    store = MemoryStore()
    await initialize(store, ROOT, random=Random(0))
    return store


async def start(
    store: MetadataStore, files: SimFileSystem, settings: BookieSettings = SETTINGS
) -> Identity:
    """A whole start, but for the storage."""
    identity = await claim_identity(
        store, ROOT, files, settings, cluster_id=CLUSTER, random=Random(files.steps)
    )
    identity.locks.close()
    await identity.write_cookie()
    return identity


async def recorded(store: MetadataStore) -> RecordedIdentity:
    return await CookieStore(store, ROOT).read("b0:1")


async def starts_of(store: MetadataStore) -> int:
    counter = (await recorded(store)).counter
    assert counter is not None
    return counter.starts


async def test_every_start_counts_on_disk_and_in_the_metadata() -> None:
    store, files = await made(), SimFileSystem()
    for number in (1, 2, 3):
        identity = await start(store, files)

        found = await recorded(store)
        assert found.counter is not None
        assert found.counter.starts == number
        assert found.cookie == identity.cookie
        assert {read_start(files, path).number for path in ("/j", "/l")} == {number}


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("nth", [0, 1])
async def test_a_start_whose_word_to_the_metadata_was_lost_is_finished_by_the_next(
    nth: int, fault: Fault
) -> None:
    store, files = await made(), SimFileSystem()
    unlucky = MemoryStore(store.tree, fault=LoseNth(nth, fault))
    with pytest.raises(MetadataUnavailableError):
        await start(unlucky, files)

    await start(store, files)

    found = await recorded(store)
    assert found.cookie is not None
    assert found.counter is not None
    assert {read_start(files, path).number for path in ("/j", "/l")} == {found.counter.starts}


async def test_a_start_that_began_before_another_one_ended_does_not_make_the_disks_strangers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It wrote its own start over the other's, which was counted since: refused then, and by every start from then on."""
    store, files = await made(), SimFileSystem()
    await start(store, files)
    read, found = CookieStore.read, list[RecordedIdentity]()

    async def read_and_wait(self: CookieStore, bookie_id: str) -> RecordedIdentity:
        now = await read(self, bookie_id)
        found.append(now)
        if len(found) == 1:
            await start(store, files)
        return now

    monkeypatch.setattr(CookieStore, "read", read_and_wait)
    with suppress(StorageRefusedError):
        (
            await claim_identity(
                store, ROOT, files, SETTINGS, cluster_id=CLUSTER, random=Random(77)
            )
        ).locks.close()
    monkeypatch.undo()

    await start(store, files)
    assert await starts_of(store) >= 3


@pytest.mark.conformance("S5")
async def test_emptied_directories_under_a_known_id_are_refused() -> None:
    store = await made()
    await start(store, SimFileSystem())

    with pytest.raises(StorageRefusedError, match="--replace-lost-directories"):
        await start(store, SimFileSystem())
    assert await starts_of(store) == 1


async def test_a_forgotten_bookie_may_begin_anew() -> None:
    store = await made()
    old = SimFileSystem()
    await start(store, old)
    await CookieStore(store, ROOT).delete("b0:1")

    await start(store, SimFileSystem())

    assert await starts_of(store) == 3
    # Its old disks do not know what it has acknowledged since.
    with pytest.raises(StorageRefusedError, match="old copy"):
        await start(store, old)


async def test_a_bookie_that_is_forgotten_while_it_runs_ends() -> None:
    store = await made()
    reasons: list[Exception] = []
    running = await start(store, SimFileSystem())
    await running.watch(reasons.append)

    await CookieStore(store, ROOT).delete("b0:1")
    await pass_turns(5)

    assert [type(reason) for reason in reasons] == [StorageRefusedError]


async def test_older_metadata_stays_marked_until_it_is_accepted() -> None:
    store, files = await made(), SimFileSystem()
    for _ in range(3):
        await start(store, files)
    restored = await made()

    await start(restored, files)
    await start(restored, files)

    counter = (await recorded(restored)).counter
    assert counter is not None
    assert (counter.starts, counter.is_metadata_older) == (5, True)
    await CookieStore(restored, ROOT).accept_metadata("b0:1")
    await start(restored, files)
    counter = (await recorded(restored)).counter
    assert counter is not None
    assert (counter.starts, counter.is_metadata_older) == (6, False)


async def test_a_later_start_on_other_directories_ends_the_earlier_process() -> None:
    """What the first went on to acknowledge the second would deny."""
    store, files = await made(), SimFileSystem()
    reasons: list[Exception] = []
    first = await start(store, files)
    await first.watch(reasons.append)
    await CookieStore(store, ROOT).accept_metadata("b0:1")  # a change that is no start
    await pass_turns(5)
    assert reasons == []

    second = await claim_identity(
        store,
        ROOT,
        SimFileSystem(),
        SETTINGS,
        cluster_id=CLUSTER,
        random=Random(9),
        may_replace=True,
    )
    await pass_turns(5)

    assert [type(reason) for reason in reasons] == [StorageRefusedError]
    second.locks.close()


@pytest.mark.conformance("S4")
async def test_two_that_start_at_once_on_other_directories_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = await made()
    count, both = CookieStore.count_start, asyncio.Barrier(2)

    async def count_beside_the_other(
        self: CookieStore, bookie_id: str, counter: StartCounter, found: RecordedIdentity
    ) -> None:
        await both.wait()
        await count(self, bookie_id, counter, found)

    monkeypatch.setattr(CookieStore, "count_start", count_beside_the_other)
    disks = [SimFileSystem(), SimFileSystem()]
    starts = [
        claim_identity(
            MemoryStore(store.tree), ROOT, files, SETTINGS, cluster_id=CLUSTER, random=Random(n)
        )
        for n, files in enumerate(disks)
    ]

    outcomes = await asyncio.gather(*starts, return_exceptions=True)

    monkeypatch.undo()
    kinds = sorted(type(outcome).__name__ for outcome in outcomes)
    assert kinds == ["Identity", "StorageRefusedError"]
    # and the one that lost does not win at its next start
    loser = disks[[type(outcome).__name__ for outcome in outcomes].index("StorageRefusedError")]
    with pytest.raises(StorageRefusedError, match=r"other directories|--replace-lost-directories"):
        await start(store, loser)


async def test_directories_are_added_when_the_settings_allow_it() -> None:
    store, files = await made(), SimFileSystem()
    await start(store, files)
    larger = replace(SETTINGS, ledger_directories=("/l", "/m"))

    with pytest.raises(StorageRefusedError, match="allow_storage_expansion"):
        await start(store, files, larger)
    identity = await start(store, files, replace(larger, allow_storage_expansion=True))

    assert identity.cookie.ledger_directories == ("/l", "/m")


async def test_paths_that_changed_are_written_into_the_cookie() -> None:
    store, files = await made(), SimFileSystem()
    await start(store, files)
    for name in files.names("/l"):
        with files.open(f"/l/{name}") as file, files.create(f"/m/{name}") as copy:
            copy.write_at(0, [file.read_at(0, file.size())])

    await start(store, files, replace(SETTINGS, ledger_directories=("/m",)))

    cookie = (await recorded(store)).cookie
    assert cookie is not None
    assert cookie.ledger_directories == ("/m",)


@pytest.mark.conformance("S4")
async def test_a_look_at_the_metadata_waits_for_the_registration_of_a_killed_predecessor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until that is gone, writers may choose this id for ledgers that are not there yet."""
    monkeypatch.setattr("bookie_server.integrity.limbo._LOOK_AGAIN_S", 0.001)
    store = await made()
    predecessor = await BookieRegistry(store, ROOT).register("b0:1", BookieServiceInfo())
    waiting = asyncio.create_task(wait_until_unregistered(store, ROOT, "b0:1"))
    await asyncio.sleep(0.02)
    assert not waiting.done()

    await predecessor.withdraw()

    await waiting


@pytest.mark.conformance("S4")
async def test_a_registration_that_stays_is_another_bookie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bookie_server.integrity.limbo._LOOK_AGAIN_S", 0.001)
    monkeypatch.setattr("bookie_server.integrity.limbo._UNREGISTERED_AFTER_S", 0.01)
    store = await made()
    await BookieRegistry(store, ROOT).register("b0:1", BookieServiceInfo(), readonly=True)

    with pytest.raises(StorageRefusedError, match="another live process"):
        await wait_until_unregistered(store, ROOT, "b0:1")
