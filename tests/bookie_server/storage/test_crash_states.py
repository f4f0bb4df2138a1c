"""Every crash of histories drawn at random: what was acknowledged by then is there, as it was.

The states are counted: each is a disk no other moment of the run left behind.
"""

from __future__ import annotations

import struct
import sys
import time
from random import Random

import pytest

from bookie_server.core.records import Add, ExplicitLac, Fence, JournalRecord, MasterKey, Tombstone
from tests.simulation.kit.crash_states import CrashStates
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.kit.storage_model import Model, open_small, run_of

ACTIONS = 14
"""Of one history; about a hundred changing calls."""
STATES_FULL = 80_000
"""Some 420 histories, ten minutes of one core; six of them, in the short suite, have about 1,150."""


def act(model: Model, random: Random, number: int) -> None:
    """One thing a bookie does: a group, a checkpoint with its journal roll, or a restart."""
    ledger_id = random.randrange(1, 5)
    known = len(model.entries.get(ledger_id, {}))
    ids = range(known, known + random.randrange(1, 12))
    records: list[JournalRecord] = [
        MasterKey(ledger_id, bytes([ledger_id]) * 20),
        Add(run_of(ledger_id, ids, size=random.choice((3, 40, 700, 3000)))),
    ]
    match random.randrange(10):
        case 0:
            records.append(Fence(ledger_id))
        case 1:
            packet = struct.pack(">qq4x", ledger_id, ids[-1])
            records.append(ExplicitLac(ledger_id, packet))
        case 2:
            records.append(Tombstone(100 + number, 101 + number))
        case 3 | 4:
            return model.checkpoint()
        case 5:
            return model.restart()
        case _:
            pass
    return model.write(records)


def explore(seed: int, states: CrashStates) -> None:
    """One history on new disks, from the first start on, with every crash of it."""
    model = Model(SimFileSystem())

    def look() -> None:
        for image in states.of(model.files, (seed, model.promised)):
            model.check(open_small(image), f"seed={seed} steps={model.files.steps}")

    random = Random(seed)
    model.files.before_step = look
    model.start()
    for number in range(ACTIONS):
        act(model, random, number)
    look()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_crash_of_a_history_loses_or_invents_anything(seed: int) -> None:
    states = CrashStates(Random(seed), draws=12)

    explore(seed, states)

    assert len(states) > 100


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_crash_of_many_new_histories_loses_or_invents_anything() -> None:
    seed = time.time_ns() // 1_000_000 % 10**9
    states = CrashStates(Random(seed), draws=12)
    while len(states) < STATES_FULL:
        explore(seed, states)
        seed += 1
    sys.stdout.write(f"{len(states)} crash states\n")
