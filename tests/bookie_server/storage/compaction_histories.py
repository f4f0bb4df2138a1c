"""Histories of disks whose bookie rewrites its entry logs: small ones, sparse ones, damaged ones, without room."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest

from bookie_server.core.records import Add, Fence, Replace, Tombstone
from bookie_server.storage.disk.errors import NoRoomError, StorageFailedError
from bookie_server.storage.index import directory as index_directory
from bookie_server.storage.logs.entry_log import log_ids
from tests.bookie_server.storage.crash_histories import LEDGERS, a_group, lived
from tests.bookie_server.storage.crash_judge import CrashJudge
from tests.simulation.kit.crash_states import CrashStates
from tests.simulation.kit.storage_model import Model, run_of, tiny


def compaction(states: CrashStates, random: Random) -> None:
    """Some or all logs are rewritten between checkpoints, again and again, sometimes by a snapshot."""
    model = lived(tiny(1, random.choice((1, 1, 2))), random, 3)
    with pytest.MonkeyPatch.context() as patch, CrashJudge(states, model).watching():
        if not random.randrange(3):
            patch.setattr(index_directory, "_SNAPSHOT_AT_BYTES", 0)
        for number in range(3):
            _compact_some(model, random)
            model.write(a_group(model, random, number))
            if random.randrange(2):
                model.write([Tombstone(random.choice(LEDGERS), 3)])
            if random.randrange(2):
                model.checkpoint()
        model.restart()


def compaction_overtaken(states: CrashStates, random: Random) -> None:
    """Entries are replaced and ledgers deleted while their copies are written, or just behind that."""
    model = lived(tiny(1, random.choice((1, 2))), random, 2)
    checkpoints = model.storage.checkpoints
    with CrashJudge(states, model).watching():
        known = sorted(model.entries)
        victim = random.choice(known)
        replaced = sorted(random.sample(sorted(model.entries[victim]), 1))
        number = random.randrange(len(model.layout.ledger_directories))
        chosen = log_ids(model.files, model.layout.ledger_directories[number])
        result = checkpoints.compact(number, chosen)
        model.write([Replace(run_of(victim, replaced, size=90, salt=7))])
        if random.randrange(2):
            model.write([Tombstone(known[0], known[0])])
        model.show(result)
        model.check(model.storage, "overtaken")
        if random.randrange(2):
            model.bury()
        model.checkpoint()
        model.bury()
        model.restart()


def compaction_without_room(states: CrashStates, random: Random) -> None:
    """The disk is full at one of its calls; it is given up, and made again when there is room."""
    model = lived(tiny(1, 1), random, 3)
    with CrashJudge(states, model).watching():
        chosen = log_ids(model.files, "/ledgers0")
        model.files.fail_at = {model.files.steps + random.randrange(8): errno.ENOSPC}
        try:
            with suppress(NoRoomError):
                model.compact(0, chosen)
            model.files.fail_at = {}
            model.write([Fence(1), Add(run_of(1, [50 + random.randrange(5)]))])
            model.checkpoint()
            model.compact(0, log_ids(model.files, "/ledgers0"))
        except StorageFailedError:
            return  # a sync of a file that stays failed: the bookie ends
        finally:
            model.files.fail_at = {}
        model.restart()


def _compact_some(model: Model, random: Random) -> None:
    for number, directory in enumerate(model.layout.ledger_directories):
        logs = log_ids(model.files, directory)
        if logs:
            model.compact(number, random.sample(logs, random.randrange(1, len(logs) + 1)))
