"""Entry logs that a crash left: deleted once nothing can be missing, however often the crash comes again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from bookie_server.core.records import Add
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.engine import Storage
from bookie_server.storage.logs.entry_log import log_ids
from bookie_server.storage.opening import open_storage
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash
from tests.simulation.kit.storage_model import (
    INSTANCE,
    Model,
    open_small,
    read_all,
    run_of,
    settings,
    started,
)

SMALL = replace(settings(1), write_cache_size_bytes=4096)
"""The replay below checkpoints several times on its way."""


def open_with_small_cache(files: SimFileSystem) -> Storage:
    locks = lock_directories(files, SMALL.directories)
    return open_storage(files, SMALL, locks, instance_id=INSTANCE, clock_ms=lambda: 1_000_000)


def killed(files: SimFileSystem, after_steps: int) -> SimFileSystem:
    """What a process leaves that is killed so many changing calls after it began to open the files."""
    files = files.copy()
    files.crash_at = files.steps + after_steps
    with suppress(SimulatedCrash):
        open_with_small_cache(files)
    return files.copy()


def unnamed(storage: Storage, files: SimFileSystem) -> set[int]:
    """Logs of which no row speaks."""
    (index,) = storage.checkpoints._indexes
    named = {row.block.log_id for rows in index.rows.values() for row in rows}
    return set(log_ids(files, "/ledgers0")) - named


@pytest.fixture(scope="module")
def written() -> Model:
    """More in the journal than the small cache takes."""
    model = started(directories=1)
    for number in range(12):
        model.write([Add(run_of(number % 3, [number], size=1500))])
    return model


@pytest.mark.slow
def test_two_kills_within_a_replay_leave_no_log_behind_for_ever(written: Model) -> None:
    """Once a checkpoint of the second replay had passed its number, a log stayed for good."""
    rng, leftovers = Random(3), 0
    whole = written.files.copy()
    open_with_small_cache(whole)
    for first in range(whole.steps):
        once = killed(written.files, first)
        for second in rng.sample(range(whole.steps), 6):
            files = killed(once, second)
            before = set(log_ids(files, "/ledgers0"))

            storage = open_with_small_cache(files)

            assert unnamed(storage, files) == set(), f"killed at {first} and {second}"
            leftovers += bool(before - set(log_ids(files, "/ledgers0")))
            written.check(storage, f"killed at {first} and {second}")
    assert leftovers > 20, "there was something to delete"


def test_where_records_were_lost_a_log_without_rows_is_kept() -> None:
    """Its rows may be missing since its footer is damaged: its blocks may be the last copy."""
    model = started(directories=1)
    model.write([Add(run_of(1, range(3)))])
    model.checkpoint()
    model.restart()
    files = model.files.copy()
    (log,) = log_ids(files, "/ledgers0")
    files.content(f"/ledgers0/{log:016x}.log")[-1] ^= 1
    files.delete("/ledgers0/index")

    damaged = open_small(files, directories=1)
    assert read_all(damaged, 1) == {}
    damaged.contents.set_limbo([1])
    damaged.checkpoint_now()
    damaged.close()
    again = open_small(files, directories=1)

    assert not again.contents.is_damaged
    assert unnamed(again, files) == {log}
