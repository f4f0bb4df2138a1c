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
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import MemoryStore
from tests.doubles.storage import small_settings
from tests.doubles.waits import until

ROOT = "/ledgers"
PATHS = Paths(ROOT)
BOOKIE = "b0:1"
OURS = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, (BOOKIE,)),)
)


def on_disk(place: Path, settings: BookieSettings, cluster_id: str) -> Storage:
    """What a start would find if the process died now."""
    copy = place.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place, copy)
    files, there = RealFileSystem(), small_settings(copy).storage
    return open_storage(
        files,
        there,
        lock_directories(files, there.directories),
        instance_id=instance_id_of(cluster_id, settings.bookie_id),
        clock_ms=lambda: 1,
    )


async def test_each_step_of_a_start_rests_on_what_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disks before metadata, the verdict on what was lost before the cookie, that before all else.

    A cookie says that empty directories are a lost disk, and a registration: write to me.
    """
    place = tmp_path / "disk"
    settings = replace(small_settings(place), bookie_id=BOOKIE, port=0)
    found = MemoryStore()
    await initialize(found, ROOT, random=Random(0))
    cluster_id = await instance_id(found, ROOT)
    assert cluster_id is not None
    ledger_id, _ = await LedgerStore(found, ROOT, random=Random(0)).create(OURS)
    steps: list[str] = []
    stopping: list[asyncio.Event] = []

    def on_counted() -> None:
        for directory in settings.storage.directories:
            assert read_cookie(RealFileSystem(), directory).bookie_id == BOOKIE
            assert read_start(RealFileSystem(), directory).number == 1

    def on_judged() -> None:
        storage = on_disk(place, settings, cluster_id)
        assert not storage.contents.is_damaged
        assert storage.contents.ledgers[ledger_id].is_limbo
        storage.close()

    expected: dict[tuple[str, str], Callable[[], None]] = {
        ("create", PATHS.start_counter(BOOKIE)): on_counted,
        ("create", PATHS.cookie(BOOKIE)): on_judged,
        ("ephemeral", PATHS.bookie(BOOKIE)): on_judged,
    }

    def look(operation: str, path: str) -> None:
        if (check := expected.get((operation, path))) is not None:
            check()
            steps.append(path)

    async def connect(_: str) -> tuple[MemoryStore, str]:
        return MemoryStore(found.tree, fault=look), ROOT

    monkeypatch.setattr(server, "connect", connect)
    monkeypatch.setattr(server, "_on_signals", stopping.append)
    serving = asyncio.create_task(server._serve(settings, may_replace=False, is_sealed=False))
    await until(lambda: serving.done() or len(steps) == len(expected))
    for event in stopping:
        event.set()

    assert await serving == 0
    assert steps == [path for _, path in expected]
