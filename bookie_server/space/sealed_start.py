"""A start on a full disk: the bookie serves what it has from its disks and memory, and writes nothing.

It is *sealed*: recovered above an overlay, not counted as a start, registered as read-only, and it
refuses every add and every fence that is not durable already. What a damaged disk may have lost is
suspected in memory, as it is at any start. When there is room for an ordinary start - for what was
replayed, besides the reserves - it ends its service and starts again, in the same process.
"""

from __future__ import annotations

import asyncio
import logging

from bookie_server.core.space import Disk
from bookie_server.settings import BookieSettings
from bookie_server.space.watch import look_at_disks
from bookie_server.storage.disk.errors import NoRoomError, is_no_room
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.disk.overlay import OverlayFileSystem
from bookie_server.storage.journal.journal_files import delete_prepared

_LOGGER = logging.getLogger(__name__)
_CACHES_MAX = 8
"""Memory for a replay, in write caches: a bookie has at most two of them in its journal only, but
settings may have been smaller since."""
_BLOCKS_BYTES = 64 * 1024 * 1024
"""For files of which a sealed start changes a few bytes, each in a block of its own."""


async def is_full(files: FileSystem, settings: BookieSettings) -> bool:
    """Whether a disk has no room for what a start writes, also when what a start deletes is deleted.

    Raises:
        OSError: a disk does not say, or something cannot be deleted.
    """
    full = await asyncio.to_thread(_full_disks, files, settings)
    if full:
        has_deleted = await asyncio.to_thread(_delete_prepared, files, settings)
        full = await asyncio.to_thread(_full_disks, files, settings) if has_deleted else full
    for disk in full:
        _LOGGER.warning(
            "a disk is full. directory=%s free_bytes=%d", disk.directory, disk.free_bytes
        )
    return bool(full)


def _full_disks(files: FileSystem, settings: BookieSettings) -> list[Disk]:
    try:
        disks = look_at_disks(files, settings.storage)
    except FileNotFoundError:
        return []  # the start is the first one, and makes its directories
    return [disk for disk in disks if disk.free_bytes < settings.full_below_bytes]


def _delete_prepared(files: FileSystem, settings: BookieSettings) -> bool:
    """Whether there was a journal file that a process had ready for later: an ordinary start finds no use for it."""
    try:
        locks = lock_directories(files, settings.storage.directories)
    except BlockingIOError:
        return False  # somebody uses them, and this start will be refused
    with locks:
        deleted = [delete_prepared(files, each) for each in settings.storage.journal_directories]
    return any(deleted)


def overlay(files: FileSystem, settings: BookieSettings) -> OverlayFileSystem:
    """What a sealed bookie's storage is opened on."""
    return OverlayFileSystem(files, _CACHES_MAX * settings.write_cache_size_bytes + _BLOCKS_BYTES)


def is_for_want_of_room(error: BaseException | None) -> bool:
    """Whether a start failed because a disk is full."""
    while error is not None:
        if isinstance(error, NoRoomError) or (isinstance(error, OSError) and is_no_room(error)):
            return True
        error = error.__cause__
    return False
