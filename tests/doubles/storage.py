"""Storage of a bookie without a cluster, on real files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bookie_server.bookie import Bookie
from bookie_server.settings import BookieSettings
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.engine import Storage
from bookie_server.storage.opening import open_storage


def answer_new(storage: Storage) -> Storage:
    """Say what the metadata would of a new bookie: no ledger names it, so nothing was lost."""
    if storage.recovery.is_new:
        storage.contents.set_limbo([])
        storage.checkpoint_now()
    return storage


def small_settings(place: Path, **changes: int) -> BookieSettings:
    """Directories ``j`` and ``l`` of ``place``, with small journal files."""
    return BookieSettings(
        journal_directories=(str(place / "j"),),
        ledger_directories=(str(place / "l"),),
        journal_zero_chunk_bytes=64 * 1024,
        **changes,  # type: ignore[arg-type]
    )


def open_files(place: Path, **changes: int) -> Storage:
    """What is on disk at ``place``, the metadata not asked yet."""
    settings = small_settings(place, **changes).storage
    files = RealFileSystem()
    locks = lock_directories(files, settings.directories)
    return open_storage(files, settings, locks, instance_id=bytes(16), clock_ms=lambda: 1)


async def start_bookie(place: Path, **changes: int) -> Bookie:
    """A bookie on the files at ``place``, serving."""
    bookie = Bookie(answer_new(open_files(place, **changes)), small_settings(place, **changes))
    await bookie.start()
    return bookie


@asynccontextmanager
async def running_bookie(place: Path, **changes: int) -> AsyncIterator[Bookie]:
    """A bookie that is stopped afterwards."""
    bookie = await start_bookie(place, **changes)
    try:
        yield bookie
    finally:
        await bookie.stop()


async def crash(bookie: Bookie) -> None:
    """As SIGKILL: nothing is written out."""
    for journal in bookie._journals:
        await journal.stop()
    await bookie._checkpoints.stop()
    bookie.storage.close()
