"""A bookie with a planted defect: ``python -m tests.integration.failing_bookie PLANT FILE FLAG…``.

The defect shows itself once FILE exists, so that a test says when.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from bookie_server import ending
from bookie_server.__main__ import main
from bookie_server.collection.counter import CollectionCounter
from bookie_server.core.records import JournalRecord
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.real_files import RealFile
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_file import JournalPosition
from bookkeeper_metadata.store import zookeeper

SLOW_SYNC_S = 0.2
HANGING = "hanging"
"""A file beside the trigger, made once the disk hangs."""


def wait_for(trigger: Path) -> None:
    while not trigger.exists():
        time.sleep(0.01)


def plant_in_journal(trigger: Path) -> None:
    """Groups wait, and fail as they do on a disk that is full."""

    def write_group(journal: Journal, _: Sequence[JournalRecord]) -> NoReturn:
        wait_for(trigger)
        raise StorageFailedError(journal.directory, "journal: planted")

    Journal.write_group = write_group  # type: ignore[assignment, method-assign]


def plant_in_registration(trigger: Path) -> None:
    """The task that keeps the registration ends."""

    async def _keep(_: object) -> NoReturn:
        await asyncio.to_thread(wait_for, trigger)
        raise AssertionError("planted")

    zookeeper._ZooKeeperRegistration._keep = _keep  # type: ignore[assignment, method-assign]


def plant_in_disk(trigger: Path) -> None:
    """Each sync takes :data:`SLOW_SYNC_S` longer, as long as the file exists."""
    sync = RealFile.sync

    def sync_slowly(file: RealFile) -> None:
        if trigger.exists():
            time.sleep(SLOW_SYNC_S)
        sync(file)

    RealFile.sync = sync_slowly  # type: ignore[assignment, method-assign]


def plant_in_upkeep(trigger: Path, stop_within_s: float = 1.0) -> None:
    """The disk hangs under a collection that counts itself, and from then on the journal fails if it is told to."""
    write_group = Journal.write_group

    def hang(_: CollectionCounter) -> None:
        trigger.with_name(HANGING).touch()
        threading.Event().wait()

    def fail_if_told(journal: Journal, records: Sequence[JournalRecord]) -> JournalPosition:
        if trigger.exists():
            raise StorageFailedError(journal.directory, "journal: planted")
        return write_group(journal, records)

    sys.stdout = None  # as where it is closed
    ending._STOP_WITHIN_S = stop_within_s
    CollectionCounter._write_disks = hang  # type: ignore[assignment, method-assign]
    Journal.write_group = fail_if_told  # type: ignore[assignment, method-assign]


PLANTS: dict[str, Callable[[Path], None]] = {
    "journal": plant_in_journal,
    "registration": plant_in_registration,
    "disk": plant_in_disk,
    "upkeep": plant_in_upkeep,
    "upkeep, for ever": partial(plant_in_upkeep, stop_within_s=3_600.0),
}

if __name__ == "__main__":
    name, file, *flags = sys.argv[1:]
    PLANTS[name](Path(file))
    sys.exit(main(flags))
