"""Burial of deleted ledgers: their tombstones in every index, then the logs that hold nothing else.

Logs that a compaction has emptied go the same way.

It writes an index delta and nothing more, so it goes on where a disk has no room for a checkpoint,
from the reserve. A reader that planned before meets a log that is gone, and plans anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.index.handle_state import says_dropped
from bookie_server.storage.logs.entry_log import file_name, ledgers_in, log_ids

_LOGGER = logging.getLogger(__name__)
_UNREAD_MAX = 8
"""Logs that one burial cannot look at; of a sick disk each may take seconds, and a checkpoint waits."""


class LedgerSet(Protocol):
    """Ledgers that can be asked for, such as ``LedgerRanges``."""

    def __contains__(self, ledger_id: int, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class BurialPlan:
    """What is buried at once, captured on the loop thread."""

    tombstones: tuple[tuple[int, int], ...]
    """Those that no index has yet."""
    dead_logs: tuple[tuple[int, ...], ...]
    """Per directory: logs that no row names any more."""
    emptied_logs: tuple[tuple[int, ...], ...]
    """Per directory: of those, the ones whose living entries a compaction has copied."""
    drops: Mapping[int, LedgerHandleState] = field(default_factory=dict)
    """Dropped ledgers of which no index has that yet, and what is known of them."""


@dataclass(frozen=True, slots=True)
class BurialResult:
    """What became of a plan's logs, per directory."""

    deleted: tuple[tuple[int, ...], ...]
    """Dead logs of deleted ledgers."""
    emptied: tuple[tuple[int, ...], ...]
    """Logs that were rewritten."""
    unread: tuple[tuple[int, ...], ...]
    """Could not be looked at: to be tried again."""
    kept: tuple[tuple[int, ...], ...]
    """Hold ledgers that are not deleted: to be tried again when more are."""
    left: tuple[tuple[int, ...], ...]
    """For the next burial: these were enough."""


class UnusedLogs:
    """What is known of the logs that no row names, in each directory; for the loop thread."""

    def __init__(self, indexes: Sequence[DirectoryIndex]) -> None:
        self._indexes = indexes
        self._compacted: list[set[int]] = [set() for _ in indexes]
        """Those whose living entries were copied elsewhere."""
        self._kept: list[set[int]] = [set() for _ in indexes]
        """Those that hold ledgers which are not deleted yet."""
        self._unread: list[set[int]] = [set() for _ in indexes]
        """Those that could not be looked at."""

    def on_compacted(self, directory_index: int, log_ids: Collection[int]) -> None:
        """What could be read of these logs lies elsewhere now: they may go once no row names them."""
        self._compacted[directory_index].update(log_ids)

    def plan_burial(
        self, tombstones: Sequence[tuple[int, int]], drops: Mapping[int, LedgerHandleState]
    ) -> BurialPlan | None:
        """What there is to bury; ``None`` if that is nothing."""
        if tombstones or drops:
            self._note(self._kept)
        unused = [index.log_use.take_unused() for index in self._indexes]
        if not (tombstones or drops or any(unused)):
            return None
        dead, emptied = (
            tuple(
                tuple(log_id for log_id in log_ids if (log_id in known) is is_emptied)
                for log_ids, known in zip(unused, self._compacted, strict=True)
            )
            for is_emptied in (False, True)
        )
        return BurialPlan(tuple(tombstones), dead, emptied, drops)

    def finish_burial(self, result: BurialResult) -> None:
        """Keep what is to be tried again."""
        self._note(result.left)
        for number in range(len(self._indexes)):
            self._unread[number].update(result.unread[number])
            self._kept[number].update(result.kept[number])
            self._kept[number].difference_update(result.deleted[number])
            self._compacted[number].difference_update(result.emptied[number])

    def on_checkpoint(self, *, has_buried: bool) -> None:
        """Look again at what could not be looked at: now and then, for a disk that fails fails again.

        A checkpoint that ``has_buried`` ledgers, or dropped some, has them in every index now: what was kept may hold
        no others.
        """
        self._note(self._unread)
        self._unread = [set() for _ in self._indexes]
        if has_buried:
            self._note(self._kept)

    def return_burial(self, plan: BurialPlan) -> None:
        """Nothing of it was done."""
        self._note(plan.dead_logs)
        self._note(plan.emptied_logs)

    def _note(self, by_directory: Iterable[Collection[int]]) -> None:
        for index, noted in zip(self._indexes, by_directory, strict=True):
            for log_id in noted:
                index.log_use.note(log_id)


def delete_unused(
    files: FileSystem,
    directory: str,
    dead: Sequence[int],
    emptied: Sequence[int],
    *,
    buried: LedgerSet,
    handles: Mapping[int, bytes],
    instance_id: bytes,
    most: int | None = None,
    pause: Callable[[], None] | None = None,
) -> dict[str, tuple[int, ...]]:
    """Delete those of the ``dead`` logs that hold ``buried`` ledgers only, and such as ``handles`` say were dropped,
    and the ``emptied`` logs: ``most`` of them, and with ``pause``, which is called in between, little by little.

    Returns logs by what became of them, as the fields of a :class:`BurialResult`. No row names the others
    either, but a burial is not why: one may hold the last copy of what damage took from an index; so
    may any whose footer is damaged. A sound start deletes them.

    Raises:
        OSError: a log may or may not be deleted.
    """
    stored = set(log_ids(files, directory))
    copied = stored.intersection(emptied)
    unused = sorted(copied.union(stored.intersection(dead)))
    became: dict[str, list[int]] = {
        "deleted": [],
        "emptied": [],
        "unread": [],
        "kept": [],
        "left": [],
    }
    doomed: list[int] = []
    for place, log_id in enumerate(unused):
        if len(doomed) == most or len(became["unread"]) == _UNREAD_MAX:
            # Not even looked at: of thousands each burial would read every footer again.
            became["left"] = unused[place:]
            break
        try:
            ledger_ids = ledgers_in(files, directory, log_id, instance_id)
        except DamagedFileError as damage:
            _LOGGER.warning("an unused log is kept: who is in it is not known. %s", damage)
            continue
        except OSError as error:
            _LOGGER.warning("an unused log is kept until it can be read. detail=%s", error)
            became["unread"].append(log_id)
            continue
        if log_id in copied:
            became["emptied"].append(log_id)
        elif all(id in buried or says_dropped(handles.get(id, b"\0")) for id in ledger_ids):
            became["deleted"].append(log_id)
        else:
            became["kept"].append(log_id)
            continue
        doomed.append(log_id)
    for log_id in doomed:
        path = f"{directory}/{file_name(log_id)}"
        if pause is None:
            files.delete(path)
        else:
            files.delete_gently(path, pause)
    if doomed:
        files.sync_dir(directory)
    return {name: tuple(found) for name, found in became.items()}
