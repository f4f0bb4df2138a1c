"""Histories of disks whose bookie drops copies too many, and gets some of them again."""

from __future__ import annotations

from random import Random

import pytest

from bookie_server.core.records import Add, Drop, Tombstone
from bookie_server.storage.index import directory as index_directory
from bookie_server.storage.logs.entry_log import log_ids
from tests.bookie_server.storage.crash_histories import LEDGERS, SIZES, a_group, lived
from tests.bookie_server.storage.crash_judge import CrashJudge
from tests.simulation.kit.crash_states import CrashStates
from tests.simulation.kit.storage_model import Model, run_of, tiny


def dropping(states: CrashStates, random: Random) -> None:
    """Ledgers at rest are dropped, some come again, some are deleted; checkpoints and rewriting go on."""
    model = lived(tiny(1, random.choice((1, 1, 2))), random, 2)
    model.checkpoint()
    with pytest.MonkeyPatch.context() as patch, CrashJudge(states, model).watching():
        if not random.randrange(3):
            patch.setattr(index_directory, "_SNAPSHOT_AT_BYTES", 0)
        for number in range(3):
            _drop_one(model, random)
            match random.randrange(5):
                case 0:
                    _compact_all(model)
                case 1:
                    model.write(a_group(model, random, number))
                case 2:
                    model.bury()
                case 3:
                    model.write([Tombstone(random.choice(LEDGERS), 3)])
                case _:
                    pass
            if random.randrange(2):
                model.checkpoint()
            if random.randrange(2):
                model.bury()
        model.restart()


def _drop_one(model: Model, random: Random) -> None:
    contents = model.storage.contents
    resting = [id for id in LEDGERS if id in contents.ledgers and contents.may_drop(id)]
    if not resting:
        model.checkpoint()
        return
    ledger_id = random.choice(resting)
    before = sorted(model.entries.get(ledger_id, {}))
    model.write([Drop(ledger_id)])
    if before and random.randrange(2):
        again = random.sample(before, random.randrange(1, len(before) + 1))
        model.write([Add(run_of(ledger_id, sorted(again), size=random.choice(SIZES), salt=5))])


def _compact_all(model: Model) -> None:
    for number, directory in enumerate(model.layout.ledger_directories):
        if logs := log_ids(model.files, directory):
            model.compact(number, logs)
