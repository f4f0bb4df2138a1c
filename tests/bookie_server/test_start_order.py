"""What a start has made durable before it takes its next step: a crash may come between any two."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bookie_server import server
from bookie_server.settings import BookieSettings
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.engine import Storage
from bookie_server.storage.identity.cookie_file import instance_id_of, read_cookie, read_start
from bookie_server.storage.opening import open_storage
from bookkeeper_metadata.cluster import initialize, instance_id
from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.readonly import ReadonlyWishes
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.memory_tree import parent_of
from bookkeeper_metadata.store.zookeeper_settings import ZooKeeperSettings
from tests.doubles.storage import small_settings
from tests.doubles.waits import until

ROOT = "/ledgers"
PATHS = Paths(ROOT)
BOOKIE = "b0:1"
OURS = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, (BOOKIE,)),)
)


def settings_on(place: Path) -> BookieSettings:
    small = small_settings(place, journal_file_size_bytes=256 * 1024)
    return replace(small, bookie_id=BOOKIE, port=0)


def on_disk(place: Path, cluster_id: str) -> Storage:
    """What a start would find if the process died now."""
    copy = place.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place, copy)
    files, there = RealFileSystem(), settings_on(copy).storage
    return open_storage(
        files,
        there,
        lock_directories(files, there.directories),
        instance_id=instance_id_of(cluster_id, BOOKIE),
        clock_ms=lambda: 1,
    )


@pytest.fixture
async def cluster() -> MemoryStore:
    """A cluster's metadata, which every bookie of this test finds."""
    store = MemoryStore()
    await initialize(store, ROOT, random=Random(0))
    return store


async def serve_until(
    has_come: Callable[[], bool],
    settings: BookieSettings,
    session: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    start: server.Start = server.Start(),  # noqa: B008 - a value
) -> None:
    """Start a bookie whose metadata session this is, and stop it once that has come."""
    stopping = asyncio.Event()

    async def connect(_: str, *, security: ZooKeeperSettings) -> tuple[MemoryStore, str]:
        return session, ROOT

    monkeypatch.setattr(server, "connect", connect)
    serving = asyncio.create_task(server._serve(settings, start, stopping, is_sealed=False))
    await until(lambda: serving.done() or has_come())
    stopping.set()
    assert await serving == 0


@pytest.mark.slow
async def test_each_step_of_a_start_rests_on_what_is_durable(
    cluster: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disks before metadata, the verdict on what was lost before the cookie, that before all else.

    A cookie says that empty directories are a lost disk, and a registration: write to me.
    """
    place = tmp_path / "disk"
    settings = settings_on(place)
    cluster_id = await instance_id(cluster, ROOT)
    assert cluster_id is not None
    ledger_id, _ = await LedgerStore(cluster, ROOT, random=Random(0)).create(OURS)

    def on_counted() -> None:
        for directory in settings.storage.directories:
            assert read_cookie(RealFileSystem(), directory).bookie_id == BOOKIE
            assert read_start(RealFileSystem(), directory).number == 1

    def on_judged() -> None:
        storage = on_disk(place, cluster_id)
        assert not storage.contents.is_damaged
        assert storage.contents.ledgers[ledger_id].is_limbo
        storage.close()

    expected: dict[tuple[str, str], Callable[[], None]] = {
        ("create", PATHS.start_counter(BOOKIE)): on_counted,
        ("create", PATHS.cookie(BOOKIE)): on_judged,
        ("ephemeral", PATHS.bookie(BOOKIE)): on_judged,
    }
    steps: list[tuple[str, str]] = []

    def look(operation: str, path: str) -> None:
        if (check := expected.get((operation, path))) is not None:
            check()
            steps.append((operation, path))

    session = MemoryStore(cluster.tree, fault=look)
    await serve_until(lambda: len(steps) == len(expected), settings, session, monkeypatch)

    assert steps == list(expected)


@pytest.mark.slow
async def test_who_waits_for_the_registration_is_called_behind_it(
    cluster: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Auto-recovery beside a bookie is: before, it would take this bookie for lost."""
    places: list[list[str] | None] = []
    start = server.Start(
        on_registered=lambda: places.append(cluster.tree.children(parent_of(PATHS.bookie(BOOKIE))))
    )
    session = MemoryStore(cluster.tree)

    await serve_until(
        lambda: bool(places), settings_on(tmp_path), session, monkeypatch, start=start
    )

    (registered,) = places
    assert registered is not None
    assert BOOKIE in registered


@pytest.mark.slow
@pytest.mark.conformance("S4")
async def test_a_bookie_made_read_only_by_hand_starts_as_one(
    cluster: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registered as writable for a moment, it would be chosen for ledgers."""
    settings = settings_on(tmp_path)
    registrations: list[str] = []

    def look(operation: str, path: str) -> None:
        if operation == "ephemeral":
            registrations.append(path)

    async def start() -> None:
        session = MemoryStore(cluster.tree, fault=look)
        await serve_until(lambda: bool(registrations), settings, session, monkeypatch)

    await start()
    assert registrations == [PATHS.bookie(BOOKIE)]
    await ReadonlyWishes(cluster, ROOT).make(BOOKIE)
    registrations.clear()

    await start()

    assert registrations == [PATHS.bookie(BOOKIE, readonly=True)]


async def test_a_signal_between_two_starts_is_heard_by_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is room again, or none any more: the first had been told, and the second served on."""
    heard: list[bool] = []

    async def serve(
        _: BookieSettings, __: server.Start, stopping: asyncio.Event, *, is_sealed: bool
    ) -> int | None:
        heard.append(stopping.is_set())
        stopping.set()
        return 0 if len(heard) > 1 else None

    monkeypatch.setattr(server, "_serve", serve)
    monkeypatch.setattr(server, "stop_on_signals", lambda *_: None)
    assert await server._serve_for_good(settings_on(tmp_path), server.Start()) == 0
    assert heard == [False, True]


async def test_a_cluster_with_another_kind_of_id_is_told_by_its_node(
    cluster: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a bare ValueError of Python's."""
    node = await cluster.get(PATHS.instance_id)
    assert node is not None
    await cluster.put(PATHS.instance_id, b"ours", node.version)
    place = tmp_path / "disk"

    with pytest.raises(MetadataCorruptError, match=f"'ours'.*{PATHS.instance_id}"):
        await serve_until(lambda: False, settings_on(place), cluster, monkeypatch)

    assert not place.exists()
