"""Looks at a bookie's disks all the time, and has its registration say what it takes.

What follows from a look is decided in :mod:`bookie_server.core.space`. A disk that does not answer
holds up the looks, and nothing else: what is promised since the last one counts on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bookie_server.bookie import Bookie
from bookie_server.core.space import Disk, Mode
from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.files import FileSystem

_LOGGER = logging.getLogger(__name__)
LOOK_S = 1.0
"""How often the disks are looked at."""
_LOOK_FOR_START_S = 5.0
"""How often a sealed bookie looks whether it may start. Where a quota is full, a disk says that there
is room; each start that finds none costs a count."""


def look_at_disks(files: FileSystem, settings: StorageSettings) -> tuple[Disk, ...]:
    """The file systems of all directories, each once; blocks meanwhile.

    Raises:
        OSError: a disk does not say.
    """
    found: dict[int, Disk] = {}
    for directory in settings.directories:
        space = files.free_space(directory)
        known = found.get(space.device, Disk(space.free_bytes, False, False, directory))
        found[space.device] = Disk(
            space.free_bytes,
            known.has_journals or directory in settings.journal_directories,
            known.has_ledgers or directory in settings.ledger_directories,
            known.directory,
        )
    return tuple(found.values())


class SpaceWatch:
    """Looks for one bookie; ``on_readonly`` is called with whether it takes new entries no more."""

    def __init__(
        self,
        bookie: Bookie,
        files: FileSystem,
        settings: StorageSettings,
        on_readonly: Callable[[bool], None],
    ) -> None:
        self._bookie = bookie
        self._files = files
        self._settings = settings
        self._on_readonly = on_readonly
        self._logged = Mode.WRITABLE
        self._is_blind = False

    async def look(self) -> Mode:
        """Look once, and act upon it; returns what the bookie takes now."""
        look = self._bookie.begin_look()
        try:
            disks = await asyncio.to_thread(look_at_disks, self._files, self._settings)
        except OSError as error:
            # Reads and writes meet whatever is the matter, and say so.
            if not self._is_blind:
                _LOGGER.warning("free space is not known. detail=%s", error)
            self._is_blind = True
        else:
            self._is_blind = False
            self._bookie.on_look(look, disks)
        self._report()
        space = self._bookie.space
        if space.mode is not Mode.WRITABLE and not space.is_sealed:
            await self._give_back()
        return space.mode

    async def _give_back(self) -> None:
        """Delete what is only there to make writing faster."""
        for journal in self._bookie.storage.journals:
            try:
                await asyncio.to_thread(journal.give_back)
            except StorageFailedError as error:
                self._bookie.fail(error)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def wait_for_start(self) -> None:
        """Return when every disk has room for a start: for what it replays, besides the reserves."""
        replayed_bytes = self._bookie.storage.recovery.bytes_replayed
        while True:
            await asyncio.sleep(_LOOK_FOR_START_S)
            disks = await asyncio.to_thread(look_at_disks, self._files, self._settings)
            least_bytes = min(disk.free_bytes for disk in disks)
            if least_bytes >= self._settings.writable_above_bytes + replayed_bytes:
                return

    def _report(self) -> None:
        space = self._bookie.space
        mode, before, self._logged = space.mode, self._logged, space.mode
        self._on_readonly(mode is not Mode.WRITABLE)
        if mode is not before:
            level = logging.INFO if mode is Mode.WRITABLE else logging.WARNING
            by = "hand" if space.is_readonly_by_hand else "disk"
            disk = space.fullest_disk
            directory = disk.directory if disk is not None else None
            text = "mode changed. mode=%s before=%s by=%s free_bytes=%s directory=%s"
            _LOGGER.log(level, text, mode.name, before.name, by, space.free_bytes, directory)
