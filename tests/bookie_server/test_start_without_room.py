"""A start that finds no room half-way gives its directories up, for the sealed start behind it."""

from __future__ import annotations

import asyncio
import errno
from contextlib import ExitStack
from dataclasses import replace

import pytest

from bookie_server import server
from bookie_server.settings import BookieSettings
from bookie_server.space.sealed_start import is_for_want_of_room, is_full
from bookie_server.storage.disk.errors import NoRoomError
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.engine import Storage
from bookie_server.storage.journal.journal_files import PREPARED
from bookkeeper_metadata.store.memory import MemoryStore
from tests.simulation.kit.files import SimFileSystem

SETTINGS = BookieSettings(bookie_id="b", journal_directories=("/j",), ledger_directories=("/l",))
CLUSTER_ID = "12345678-1234-1234-1234-123456789abc"


class AnyIdentity:
    """Takes the directories whatever is in them."""

    def __init__(self, files: SimFileSystem) -> None:
        self.locks: ExitStack = lock_directories(files, SETTINGS.storage.directories)

    async def write_cookie(self) -> None: ...

    async def watch(self, fail: object) -> None: ...

    def collection_counter(self, *_: object) -> None:
        """Collects nothing."""


async def test_a_start_without_room_for_its_limbo_leaves_the_directories_to_a_sealed_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It kept their locks: the sealed start was refused, and the bookie ended at each start."""
    files = SimFileSystem()

    async def claim(*_: object, **__: object) -> AnyIdentity:
        return AnyIdentity(files)

    async def be_alone(*_: object) -> None: ...

    async def limbo(storage: Storage, *_: object) -> None:
        storage.contents.set_limbo([])
        if not is_sealed:
            files.fail_at = dict.fromkeys(range(files.steps, files.steps + 50), errno.ENOSPC)
        await asyncio.to_thread(storage.checkpoint_now)

    async def prepare() -> None:
        ready = await server._prepare(
            MemoryStore(), "/", SETTINGS, CLUSTER_ID, False, is_sealed=is_sealed
        )
        await ready.bookie.stop()

    for name, double in {
        "RealFileSystem": lambda: files,
        "claim_identity": claim,
        "wait_until_unregistered": be_alone,
        "put_ledgers_in_limbo": limbo,
    }.items():
        monkeypatch.setattr(server, name, double)
    is_sealed = False
    with pytest.raises(NoRoomError) as refused:
        await prepare()
    assert is_for_want_of_room(refused.value)
    assert files.locked == set()

    files.fail_at, is_sealed = {}, True
    await prepare()


@pytest.mark.parametrize("is_used", [False, True])
async def test_a_start_on_a_full_disk_deletes_first_what_it_finds_no_use_for(
    is_used: bool,
) -> None:
    """A bookie was sealed for want of room that a journal file took which any other start deletes."""
    files = SimFileSystem()
    settings = replace(SETTINGS, journal_file_size_bytes=1024 * 1024)
    for directory in settings.storage.directories:
        files.make_directory(directory)
    with files.create(f"/j/{PREPARED}") as file:
        file.write_at(0, [bytes(settings.journal_file_size_bytes)])
        file.sync()
    files.capacity_bytes = settings.full_below_bytes + 512 * 1024
    locks = lock_directories(files, settings.storage.directories) if is_used else ExitStack()

    with locks:
        assert await is_full(files, settings) is is_used

    assert (PREPARED in files.names("/j")) is is_used
