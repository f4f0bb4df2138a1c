"""Entry logs that a crash left: deleted once nothing can be missing, however often the crash comes again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from bookie_server.core.records import Add, MasterKey
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.engine import Storage
from bookie_server.storage.identity.doubt import mark_doubtful
from bookie_server.storage.logs.entry_log import log_ids
from bookie_server.storage.opening import open_storage
from tests.bookie_server.storage.test_damage import open_and_close, path_of
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


def with_leftover_log() -> tuple[Model, SimFileSystem]:
    """Eight entries in a journal, and in a log whose checkpoint a crash ended before its commit."""
    rehearsed = started(directories=1)
    rehearsed.write([Add(run_of(1, range(8), size=900))])
    rehearsed.storage.checkpoint_now()
    log = rehearsed.files.log
    model = started(directories=1)
    model.write([Add(run_of(1, range(8), size=900))])
    model.files.crash_at = max(n for n, (_, path) in enumerate(log) if "/index" in path) - 1
    with suppress(SimulatedCrash):
        model.checkpoint()
    return model, model.files.crash(Random(0), lambda _: "keep")


def test_a_crashs_leftover_log_never_shadows_the_journal() -> None:
    """Rebuilding rows takes uncertain logs only as far as their blocks are sound."""
    # given a log whose checkpoint never completed, one of whose blocks did not reach the disk
    model, image = with_leftover_log()
    image.content(path_of(model, ".log"))[100:600] = bytes(500)

    # when the index is damaged as well, so that rows are rebuilt
    image.content("/ledgers0/index")[20] ^= 1
    storage = open_small(image, directories=1)

    assert storage.contents.is_damaged
    assert read_all(storage, 1) == model.entries[1]


def test_no_later_start_takes_a_leftovers_torn_block_for_stored() -> None:
    """The first rebuild of the rows passed the log's number, so the next one believed all of it."""
    # given a log whose checkpoint never completed, with a block that did not reach the disk
    model, image = with_leftover_log()
    image.content(path_of(model, ".log"))[100:600] = bytes(500)
    # and the journal, which had its entries, is lost
    for name in image.names("/journal0"):
        if name.endswith(".txn"):
            image.delete(f"/journal0/{name}")

    for _ in range(3):
        storage = open_and_close(image)

        assert storage.contents.is_damaged
        assert [each for ids in storage.contents.entry_ids(1) for each in ids] == [*range(2, 8)]


def test_a_leftover_without_a_footer_is_said_to_be_damaged_once() -> None:
    model, image = with_leftover_log()
    del image.content(path_of(model, ".log"))[-10:]
    image.content("/ledgers0/index")[20] ^= 1

    said = [
        ["cannot be listed" in damage.detail for damage in open_and_close(image).recovery.damage]
        for _ in range(3)
    ]

    assert list(map(sum, said)) == [1, 0, 0]
    assert all(said), "the damage itself is not answered yet"


def test_a_leftover_log_that_damage_has_listed_is_on_the_disk() -> None:
    """The checkpoint behind it deleted the journal, and the power cut took the log."""
    for crash_at in range(10):
        model = started(directories=1)
        model.write([MasterKey(1, bytes(20)), Add(run_of(1, range(4)))])
        plan = model.storage.contents.begin_checkpoint()
        assert plan is not None
        model.files.crash_at = model.files.steps + crash_at
        with suppress(SimulatedCrash):
            model.storage.checkpoints.write(plan)
        killed = model.files.after_kill()
        mark_doubtful(killed, "/journal0")
        open_small(killed, directories=1).close()

        storage = open_small(killed.crash(Random(1), lambda _: "drop"), directories=1)

        assert read_all(storage, 1) == model.entries[1], f"crash_at={crash_at}"


@pytest.mark.parametrize(
    "stray", ["bookie-server-01.log", "0x00000000000001.log", "00000000000000AB.log", "1.log"]
)
@pytest.mark.parametrize("directory", ["/ledgers0", "/journal0"])
def test_a_file_that_is_called_otherwise_is_somebody_elses(stray: str, directory: str) -> None:
    """A log of sixteen characters that an operator left there kept the bookie from starting, and from checkpoints."""
    model = started(directories=1)
    model.write([Add(run_of(1, [1], size=100))])
    files = model.files.copy()
    name = stray if directory == "/ledgers0" else stray.replace(".log", ".txn")
    files.create(f"{directory}/{name}").close()

    storage = open_with_small_cache(files)

    model.check(storage, "with a stray file")
    storage.checkpoint_now()
    assert name in files.names(directory)
