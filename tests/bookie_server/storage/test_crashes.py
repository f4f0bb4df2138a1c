"""Every crash of a small workload, and every kind of one: what was acknowledged is there, as it was."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from bookie_server.core.records import Add, ExplicitLac, Fence, JournalRecord, MasterKey, Tombstone
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.opening import open_storage
from tests.bookie_server.storage.crash_judge import facts_of
from tests.doubles.storage import answer_new
from tests.simulation.kit.crash_states import CrashStates
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


def workload(model: Model) -> None:
    """Adds, fences, keys, LACs, a tombstone, two checkpoints, rolls, over two journals and two directories."""
    key = bytes(range(20))
    model.write([MasterKey(1, key), Add(run_of(1, range(3)))])
    model.write([MasterKey(2, key), Add(run_of(2, range(0, 9, 3), size=700))])
    model.write([Fence(3), MasterKey(3, key)])
    model.checkpoint()
    model.write([Add(run_of(1, range(3, 5), size=3000)), Add(run_of(1, range(5, 40), size=1400))])
    model.write([Add(run_of(2, [1, 4], size=20)), ExplicitLac(2, bytes(15) + b"\x04" + bytes(4))])
    model.write([Fence(1)])
    model.checkpoint()
    model.write([Fence(2)])
    model.checkpoint()
    model.write([Tombstone(7, 9), Add(run_of(4, range(6), size=6000))])
    model.write([Add(run_of(1, [40], size=0))])


def run_until_crash(crash_at: int | None) -> Model:
    """The workload's model as it stood when the machine stopped."""
    model = Model(SimFileSystem())
    model.files.crash_at = crash_at
    with suppress(SimulatedCrash):
        model.start()
        workload(model)
    return model


def step_count() -> int:
    return run_until_crash(None).files.steps


@pytest.mark.slow
@pytest.mark.conformance("S3")
def test_a_crash_before_any_operation_loses_and_invents_nothing() -> None:
    states = CrashStates(Random(20260), draws=2)
    for crash_at in range(step_count() + 1):
        model = run_until_crash(crash_at)

        for image in states.of(model.files, model.promised):
            again = image.copy()
            storage = open_small(image)

            # then it knows what was acknowledged, nothing that was never sent, twice the same
            model.check(storage, f"crash_at={crash_at}")
            assert facts_of(open_small(again)) == facts_of(storage), "replay is idempotent"


@pytest.mark.slow
@pytest.mark.conformance("S8")
def test_a_crash_that_tears_no_sector_is_never_taken_for_damage() -> None:
    """A disk writes whole sectors: an ordinary power loss must not send a bookie into limbo."""
    rng = Random(99)
    for crash_at in range(step_count() + 1):
        files = run_until_crash(crash_at).files
        for _ in range(2):
            image = files.crash(rng, lambda rng: rng.choice(("keep", "drop")))

            storage = open_small(image)

            assert storage.recovery.damage == [], f"crash_at={crash_at}"
            assert not any(facts.is_limbo for facts in storage.contents.ledgers.values())


@pytest.mark.conformance("S3", "S7")
def test_marks_never_regress_and_journal_files_below_them_are_gone() -> None:
    model = started()
    marks = [dict(model.storage.contents.applied)]

    for round_number in range(6):
        ids = range(round_number * 10, round_number * 10 + 10)
        model.write([Add(run_of(1, ids, size=9000))])
        model.checkpoint()
        marks.append(dict(model.storage.contents.applied))
        model.restart()
        marks.append(dict(model.storage.contents.applied))

    for before, after in pairwise(marks):
        assert all(before[journal] <= after[journal] for journal in before)
    for directory in settings().journal_directories:
        assert len([name for name in model.files.names(directory) if name.endswith(".txn")]) == 1


@pytest.mark.conformance("S7")
def test_a_fence_without_entries_survives_a_checkpoint_with_an_empty_cache() -> None:
    """Apache #4843: the mark advanced past a fence that the index never got."""
    model = started()
    model.write([Add(run_of(1, range(2)))])
    model.checkpoint()

    model.write([Fence(1), ExplicitLac(1, bytes(15) + b"\x01" + bytes(4))])
    model.checkpoint()
    model.restart()

    assert model.storage.recovery.groups == 0, "nothing was left to replay"
    assert model.storage.contents.ledgers[1].is_fenced
    assert model.storage.contents.ledgers[1].explicit_lac is not None


def crash_between_directories(write: Callable[[Model], None]) -> tuple[SimFileSystem, Model]:
    """A checkpoint cut off when the first of two directories has committed, the second not begun."""

    def checkpointed(crash_at: int | None) -> tuple[Model, int]:
        model = started()
        write(model)
        begin = model.files.steps
        model.files.crash_at = crash_at
        with suppress(SimulatedCrash):
            model.checkpoint()
        return model, begin

    rehearsed, begin = checkpointed(None)
    in_second = settings().ledger_directories[1]
    steps = enumerate(rehearsed.files.log[begin:], begin)
    model, _ = checkpointed(next(n for n, (_, path) in steps if path.startswith(in_second)))
    return model.files.crash(Random(0), lambda _: "drop"), model


@pytest.mark.conformance("S7")
def test_no_directory_advances_the_mark_for_another() -> None:
    """Apache #3329: one directory's flush let the journal of the other's entries go."""

    def write(model: Model) -> None:
        model.write([Add(run_of(1, range(5)))])
        model.write([Add(run_of(2, range(5)))])

    image, model = crash_between_directories(write)

    storage = open_small(image)
    model.check(storage, "one directory committed")
    assert storage.contents.last_entry(1) == storage.contents.last_entry(2) == 4


def test_limbo_that_only_one_directory_heard_of_is_kept_for_good() -> None:
    """The first start behind the crash knew of it, the second one denied what was lost."""

    def write(model: Model) -> None:
        model.write([MasterKey(1, b"old"), Add(run_of(1, range(5)))])
        model.write([MasterKey(2, b"old"), Add(run_of(2, range(5)))])
        model.checkpoint()
        model.storage.contents.set_limbo([1, 3])
        model.storage.contents.bind_key(1, b"new")
        model.keys[1] = b"new"

    image, _ = crash_between_directories(write)

    for start in range(4):
        storage = open_small(image)
        facts = storage.contents.ledgers
        assert [facts[ledger_id].is_limbo for ledger_id in (1, 2, 3)] == [True, False, True], start
        assert facts[1].master_key == b"new", start
        storage.close()


def test_a_crash_within_the_start_behind_a_lost_index_costs_nothing_more() -> None:
    """The other directory's marks had moved by then, and the journal was not read again."""
    model = started()
    model.write([Add(run_of(1, range(5)))])
    model.checkpoint()
    model.write([Add(run_of(2, range(5)))])
    lost = f"{settings().ledger_directories[1]}/index"
    files = model.files.copy()
    files.delete(lost)
    rehearsed = files.copy()
    open_small(rehearsed)
    for crash_at in range(rehearsed.steps):
        image = files.copy()
        image.crash_at = crash_at
        with suppress(SimulatedCrash):
            open_small(image)

        storage = open_small(image.crash(Random(0), lambda _: "drop"))

        assert storage.contents.is_damaged, f"crash_at={crash_at}"
        model.check(storage, f"crash_at={crash_at}")


def test_rows_are_rebuilt_at_once_for_an_index_as_old_as_the_first_start() -> None:
    """The second start only did so; answered in between, it deleted the logs as leftovers."""
    blank = SimFileSystem()
    open_small(blank, directories=1)
    model = started(directories=1)
    model.write([Add(run_of(1, range(5)))])
    model.checkpoint()
    files = model.files.copy()
    files.content("/ledgers0/index")[:] = blank.content("/ledgers0/index")

    storage = open_small(files, directories=1)

    assert storage.contents.is_damaged
    assert read_all(storage, 1) == model.entries[1]


def test_a_replay_that_fills_the_cache_goes_on_where_one_directory_is_ahead() -> None:
    """The bookie would not start, ever: a mark was to move backwards."""

    def write(model: Model) -> None:
        for number in range(6):
            model.write([Add(run_of(1, [number], size=1500))])
            model.write([Add(run_of(2, [number], size=1500))])

    image, model = crash_between_directories(write)

    small = replace(settings(), write_cache_size_bytes=4096)
    storage = open_storage(
        image,
        small,
        lock_directories(image, small.directories),
        instance_id=INSTANCE,
        clock_ms=lambda: 1_000_000,
    )

    model.check(storage, "replayed through a small cache")


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.conformance("S2")
def test_a_failed_journal_write_or_sync_poisons_the_journal_for_good(operation: str) -> None:
    model = started()
    files = model.files
    model.write([Add(run_of(1, range(2)))])
    files.fail_at = {files.steps + (0 if operation == "write" else 1): errno.EIO}
    records: list[JournalRecord] = [Add(run_of(1, range(2, 4)))]
    journal = model.storage.journals[model.storage.contents.journal_of(1)]

    with pytest.raises(StorageFailedError):
        journal.write_group(records)

    # then nothing is ever tried again, though the disk would take it
    steps = files.steps
    with pytest.raises(StorageFailedError):
        journal.write_group(records)
    with pytest.raises(StorageFailedError):
        journal.prepare()
    assert files.steps == steps
    model.attempted_only(records)
    model.check(open_small(files.crash(Random(1))), "after EIO")


@pytest.mark.conformance("S7")
def test_a_checkpoint_failing_anywhere_poisons_storage_and_loses_nothing() -> None:
    """But for a full disk, which is waited out; see test_full_disk.py."""
    rehearsed = started()
    rehearsed.write([Add(run_of(1, range(5), size=600))])
    begin = rehearsed.files.steps
    rehearsed.checkpoint()
    for number in range(begin, rehearsed.files.steps):
        model = started()
        model.write([Add(run_of(1, range(5), size=600))])
        model.files.fail_at = {number: errno.EIO}

        plan = model.storage.contents.begin_checkpoint()
        assert plan is not None
        with pytest.raises(StorageFailedError):
            model.storage.checkpoints.write(plan)

        # then it is not tried again and no other is begun, readers still find everything, and so
        # does the next process
        with pytest.raises(StorageFailedError):
            model.storage.checkpoints.write(plan)
        assert model.storage.contents.begin_checkpoint() is None
        model.check(model.storage, "poisoned")
        model.check(open_small(model.files.crash(Random(number))), f"failed at {number}")


@pytest.mark.conformance("S8")
def test_a_new_directory_denies_nothing_until_it_is_answered_wherever_a_crash_falls() -> None:
    """An emptied disk looks new: only the metadata tells them apart (Apache's cookies, S rows)."""
    rng = Random(11)
    states = CrashStates(rng, draws=12)
    counted = SimFileSystem()
    open_small(counted)
    for crash_at in range(counted.steps + 1):
        # given a first start that stops somewhere, before anybody said what is missing
        files = SimFileSystem()
        files.crash_at = crash_at
        with suppress(SimulatedCrash):
            open_small(files)

        # when the next process opens what is left, then absence is still no evidence
        for image in states.of(files):
            assert open_small(image).contents.is_damaged, f"crash_at={crash_at}"

        # and whole sectors are called new, not damaged
        storage = open_small(files.crash(rng, lambda rng: rng.choice(("keep", "drop"))))
        assert storage.contents.is_damaged, f"crash_at={crash_at}"
        assert storage.recovery.is_new, f"crash_at={crash_at}"
        assert storage.recovery.damage == [], f"crash_at={crash_at}"


def test_the_answer_for_a_new_directory_is_durable() -> None:
    files = SimFileSystem()
    answer_new(open_small(files))

    storage = open_small(files.crash(Random(1), lambda rng: "drop"))

    assert not storage.contents.is_damaged
