"""Entries that replace damaged copies: the new bytes stay, wherever a crash falls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from bookie_server.core.effects import Compare
from bookie_server.core.presence import Presence
from bookie_server.core.records import Add, MasterKey, Replace
from bookie_server.reads.duplicates import compare_with_stored
from bookie_server.storage.logs.id_pattern import patterns_of
from bookie_server.storage.logs.rows import Block, LedgerRows, Row
from bookie_server.storage.read_outcome import ReadOutcome
from bookie_server.storage.read_plan import ReadPlan
from bookie_server.wire.messages import Status
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash
from tests.simulation.kit.storage_model import (
    READ_SIZE,
    Model,
    open_small,
    read_all,
    records_of,
    run_of,
    started,
)

REPLACED = [2, 5, 6, 17]


def damage(model: Model) -> None:
    """Rot in the block of ledger 1 that holds the entries to be replaced; every read of it fails."""
    for path in model.files.names_now:
        if path.endswith(".log"):
            content = model.files.content(path)
            for entry_id in REPLACED:
                at = content.find(f"1/{entry_id}/0:".encode())
                if at >= 0:
                    content[at] ^= 1


def story(model: Model) -> None:
    """Entries rest in logs and rot there; some are replaced, checkpointed, replaced once more."""
    model.write([MasterKey(1, bytes(20)), Add(run_of(1, range(20), size=900))])
    model.write([MasterKey(2, bytes(20)), Add(run_of(2, range(5)))])
    model.checkpoint()
    damage(model)
    for entry_id, content in list(model.entries[1].items()):
        if entry_id not in read_all(model.storage, 1):
            # Not promised any more until it is replaced: nobody can read it.
            del model.entries[1][entry_id]
            model.sent[1][entry_id] = {content}
    broken = sorted(set(range(20)) - model.entries[1].keys())
    model.write([Replace(run_of(1, broken[:3], size=900, salt=1))])
    model.write([Add(run_of(2, range(5, 9)))])
    model.checkpoint()
    model.write([Replace(run_of(1, broken, size=900, salt=2))])
    model.write([Add(run_of(1, range(20, 30), size=900))])
    model.checkpoint()
    model.write([Replace(run_of(1, broken[1:2], size=900, salt=3))])


def run_until_crash(crash_at: int | None) -> Model:
    model = Model(SimFileSystem())
    model.files.crash_at = crash_at
    with suppress(SimulatedCrash):
        model.start()
        story(model)
    return model


def test_what_replaced_a_damaged_entry_is_read_from_then_on() -> None:
    model = run_until_crash(None)
    assert len(model.entries[1]) == 30, "all of it can be read again"
    model.check(model.storage, "in memory")

    for when in ("checkpointed", "restarted", "restarted again"):
        if when == "checkpointed":
            model.checkpoint()
        else:
            model.restart()
        plan = model.storage.contents.plan_read(1, 0, 29, size_bytes_max=READ_SIZE)
        assert model.storage.execute(plan).of(Presence.DAMAGED) == [], when
        model.check(model.storage, when)
    assert model.storage.recovery.groups == 0, "from the index, not from the journal"


@pytest.mark.slow
def test_no_crash_takes_an_acknowledged_replacement_back() -> None:
    rng = Random(8)
    whole = run_until_crash(None)
    begin = next(n for n, (_, path) in enumerate(whole.files.log) if path.endswith(".log"))
    for crash_at in range(begin, whole.files.steps + 1):
        model = run_until_crash(crash_at)
        for image in model.files.crash_images(rng, 1):
            model.check(open_small(image), f"crash_at={crash_at}")


def test_a_replacement_larger_than_the_cache_survives_a_kill_within_its_replay() -> None:
    """One directory has committed the new rows, another one has not: the record is applied again."""
    model = run_until_crash(None)
    for steps in range(0, 60, 6):
        image = model.files.copy()
        image.crash_at = steps
        with suppress(SimulatedCrash):
            open_small(image)
        model.check(open_small(image.copy()), f"killed after {steps}")


def test_a_snapshot_of_the_index_forgets_what_was_replaced() -> None:
    model = run_until_crash(None)
    model.write([Add(run_of(3, [0]))])
    model.checkpoint()
    model.write([Replace(run_of(3, [0], salt=1))])  # no row of the ledger is left for now
    for index in model.storage.checkpoints._indexes:
        index.close()  # the next commit writes a snapshot
    model.checkpoint()
    model.restart()

    model.check(model.storage, "from a snapshot")
    assert model.storage.recovery.damage == []


def test_rows_without_some_entries_still_find_the_others() -> None:
    rng = Random(4)
    for _ in range(300):
        ids = sorted(rng.sample(range(60), rng.randrange(1, 40)))
        cut = rng.randrange(len(ids) + 1)
        rows = LedgerRows()
        for log_id, part in enumerate((ids[:cut], ids[cut:])):
            for pattern in patterns_of(part) if part else ():
                rows.insert(Row(pattern, Block(log_id, 0, 9, 9, len(part))))
        gone = sorted(rng.sample(range(60), rng.randrange(1, 30)))

        rows.remove(gone)

        left = [entry_id for row in rows for entry_id in row.entry_ids]
        assert left == [entry_id for entry_id in ids if entry_id not in gone]
        assert all((row.block.log_id == 0) == (row.pattern.last in ids[:cut]) for row in rows)
        assert set(rows.log_ids()) == {row.block.log_id for row in rows}


def test_only_what_is_damaged_has_other_bytes_than_before() -> None:
    model = started(directories=1)
    model.write([Add(run_of(1, range(4)))])

    model.write([Replace(run_of(1, [1, 2], salt=1))])

    found = read_all(model.storage, 1)
    assert found == records_of(run_of(1, range(4))) | records_of(run_of(1, [1, 2], salt=1))


async def test_a_copy_that_another_recovery_replaced_meanwhile_is_compared_not_replaced() -> None:
    """Both had found the old one damaged before either had replaced it."""
    model = started(directories=1)
    model.write([Add(run_of(1, range(20), size=900))])
    model.checkpoint()
    damage(model)
    first, second = (run_of(1, REPLACED, size=900, salt=salt) for salt in (1, 2))
    looks = 0

    async def fetch(make_plan: Callable[[], ReadPlan]) -> ReadOutcome:
        nonlocal looks
        looks += 1
        outcome = model.storage.execute(make_plan())
        if looks == 1:
            model.write([Replace(first)])
        return outcome

    compare = Compare(second, 4, lambda _: None, b"key")
    found = await compare_with_stored(compare, model.storage.contents.plan_read, fetch)

    assert found is Status.CONFLICT
    assert looks == 2


async def test_what_is_gone_when_it_is_looked_at_vouches_for_nothing() -> None:
    """The same is not said of entries of which there are none."""
    model = started(directories=1)
    run = run_of(1, [1, 4], size=900)
    model.write([Add(run_of(1, [4], size=900))])

    async def fetch(make_plan: Callable[[], ReadPlan]) -> ReadOutcome:
        return model.storage.execute(make_plan())

    compare = Compare(run, 4, lambda _: None, b"key")
    found = await compare_with_stored(compare, model.storage.contents.plan_read, fetch)

    assert found is Status.UNKNOWN
