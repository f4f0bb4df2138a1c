"""Histories of disks whose bookie deletes ledgers: at rest, within checkpoints, without room."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

from bookie_server.core.records import Tombstone
from bookie_server.storage.disk.errors import NoRoomError, StorageFailedError
from tests.bookie_server.storage.crash_histories import LEDGERS, a_group, lived
from tests.bookie_server.storage.crash_judge import CrashJudge
from tests.simulation.kit.crash_states import CrashStates
from tests.simulation.kit.storage_model import tiny


def burial(states: CrashStates, random: Random) -> None:
    """Ledgers are deleted before, within and behind checkpoints, with adds that come too late."""
    _BURIALS[random.randrange(len(_BURIALS))](states, random)


def _burial_at_rest(states: CrashStates, random: Random) -> None:
    """Deleted between checkpoints, all at once or one by one, until a directory holds nothing."""
    model = lived(tiny(1, random.choice((1, 2))), random, 2)
    with CrashJudge(states, model).watching():
        for ledger_id in random.sample(LEDGERS, 3):
            model.write([Tombstone(ledger_id, ledger_id)])
            if random.randrange(3):
                model.bury()
            model.write(a_group(model, random, 9))
            if random.randrange(2):
                model.checkpoint()
        model.bury()
        model.restart()


def _burial_within_checkpoint(states: CrashStates, random: Random) -> None:
    """Deleted while a checkpoint writes entries of the same ledger."""
    model = lived(tiny(1, random.choice((1, 2))), random, random.randrange(2))
    with CrashJudge(states, model).watching():
        plan = model.storage.contents.begin_checkpoint()
        assert plan is not None
        model.write([Tombstone(1, 2)])
        model.storage.contents.finish_checkpoint(model.storage.checkpoints.write(plan))
        model.check(model.storage, "checkpoint with a deleted ledger")
        model.bury()
        model.checkpoint()


def burial_without_room(states: CrashStates, random: Random) -> None:
    """A checkpoint finds no room in its second directory; a burial, a snapshot at that, goes between."""
    model = lived(tiny(1, 2), random, 1)
    files, contents = model.files, model.storage.contents
    with CrashJudge(states, model).watching():
        plan = contents.begin_checkpoint()
        assert plan is not None
        files.fail_at = {files.steps + random.randrange(4, 14): errno.ENOSPC}
        result = None
        try:
            with suppress(NoRoomError):
                result = model.storage.checkpoints.write(plan)
            if random.randrange(2):
                for index in model.storage.checkpoints._indexes:
                    index.close()  # as if it had outgrown its last snapshot
            model.write([Tombstone(random.choice(LEDGERS), 3)])
            files.fail_at = {files.steps + random.randrange(3): errno.ENOSPC}
            with suppress(NoRoomError):
                model.bury()
            files.fail_at = {}
            model.bury()
            contents.finish_checkpoint(result or model.storage.checkpoints.write(plan))
        except StorageFailedError:
            return  # a sync of a file that stays failed: the bookie ends
        finally:
            files.fail_at = {}
        model.check(model.storage, "written behind a burial")
        model.bury()
        model.write(a_group(model, random, 9))
        model.checkpoint()
        model.restart()


def _burial_of_two_journals(states: CrashStates, random: Random) -> None:
    """The tombstone is in one journal, the ledger's adds, too late, in another one."""
    model = lived(tiny(2, random.choice((1, 2))), random, random.randrange(2))
    with CrashJudge(states, model).watching():
        for number in range(3):
            model.write([Tombstone(number + 1, number + 1)])
            model.write(a_group(model, random, number))
        model.restart()
        model.checkpoint()


def _burial_beside_limbo(states: CrashStates, random: Random) -> None:
    """What a crash kept a burial from is found by the next start, though logs may lack their rows."""
    model = lived(tiny(1, random.choice((1, 2))), random, 2)
    model.storage.contents.set_limbo([1])
    model.limbo = {1}
    model.checkpoint()
    with CrashJudge(states, model).watching():
        model.write([Tombstone(2, 3)])
        model.bury()
        model.write([Tombstone(1, 1)])
        model.checkpoint()
        model.restart()


_BURIALS = (
    _burial_at_rest,
    _burial_within_checkpoint,
    _burial_of_two_journals,
    _burial_beside_limbo,
)
