"""Burial of deleted ledgers: their tombstones in every index, then the logs that hold nothing else.

Logs that a compaction has emptied go the same way.

It writes an index delta and nothing more, so it goes on where a disk has no room for a checkpoint,
from the reserve. A reader that planned before meets a log that is gone, and plans anew.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bookie_server.core.ledger_ranges import LedgerRanges
from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.logs.entry_log import file_name, ledgers_in, log_ids

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BurialPlan:
    """What is buried at once, captured on the loop thread."""

    tombstones: tuple[tuple[int, int], ...]
    """Those that no index has yet."""
    dead_logs: tuple[tuple[int, ...], ...]
    """Per directory: logs that no row names any more."""
    emptied_logs: tuple[tuple[int, ...], ...]
    """Per directory: of those, the ones whose living entries a compaction has copied."""


def plan_burial(
    tombstones: Sequence[tuple[int, int]],
    unused: Sequence[Sequence[int]],
    compacted: Sequence[Collection[int]],
) -> BurialPlan | None:
    """Sort unused logs, per directory, by why they are; ``None`` if there is nothing to bury."""
    if not tombstones and not any(unused):
        return None
    dead, emptied = (
        tuple(
            tuple(log_id for log_id in log_ids if (log_id in known) is is_emptied)
            for log_ids, known in zip(unused, compacted, strict=True)
        )
        for is_emptied in (False, True)
    )
    return BurialPlan(tuple(tombstones), dead, emptied)


@dataclass(frozen=True, slots=True)
class BurialResult:
    """What became of a plan's logs."""

    deleted: int
    """Dead logs of deleted ledgers."""
    unread: tuple[tuple[int, ...], ...]
    """Per directory: dead logs that could not be looked at, to be tried again."""


def delete_dead_logs(
    files: FileSystem,
    directory: str,
    dead: Sequence[int],
    buried: LedgerRanges,
    instance_id: bytes,
) -> tuple[int, tuple[int, ...]]:
    """Delete those of the ``dead`` logs that hold ``buried`` ledgers only.

    Returns how many were deleted, and those that could not be read. No row names the others either,
    but a burial is not why: one may hold the last copy of what damage took from an index. A sound
    start deletes them.

    Raises:
        OSError: a log may or may not be deleted.
    """
    stored = set(log_ids(files, directory))
    deleted, unread = 0, list[int]()
    for log_id in dead:
        if log_id not in stored:
            continue
        try:
            ledger_ids = ledgers_in(files, directory, log_id, instance_id)
        except DamagedFileError as damage:
            _LOGGER.warning("a dead log is kept: who is in it is not known. %s", damage)
            continue
        except OSError as error:
            _LOGGER.warning("a dead log is kept until it can be read. detail=%s", error)
            unread.append(log_id)
            continue
        if len(buried.members(ledger_ids)) == len(ledger_ids):
            files.delete(f"{directory}/{file_name(log_id)}")
            deleted += 1
    if deleted:
        files.sync_dir(directory)
    return deleted, tuple(unread)


def delete_logs(files: FileSystem, directory: str, emptied: Sequence[int]) -> None:
    """Delete logs of which everything that lived is elsewhere, by a committed index.

    Raises:
        OSError: a log may or may not be deleted.
    """
    for log_id in emptied:
        files.delete(f"{directory}/{file_name(log_id)}")
    if emptied:
        files.sync_dir(directory)
