"""Deleted ledgers give their entry logs back, without a start; nobody else's go with them."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from bookie_server.core.ledger_ranges import LedgerRanges, within
from bookie_server.core.records import Add, Replace, Tombstone
from bookie_server.storage import burial
from bookie_server.storage.disk.errors import NoRoomError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.logs.entry_log import ledgers_in, log_ids
from bookie_server.storage.logs.log_use import LogUse
from tests.simulation.kit.storage_model import Model, open_small, run_of, started

_LEDGERS = "/ledgers0"


def filled() -> Model:
    """Ledgers 1 and 2 in one log, ledger 1 by itself in the next."""
    model = started(directories=1)
    model.write([Add(run_of(1, range(3)))])
    model.write([Add(run_of(2, range(3)))])
    model.checkpoint()
    model.write([Add(run_of(1, range(3, 6)))])
    model.checkpoint()
    return model


def logs(model: Model) -> list[int]:
    return log_ids(model.files, _LEDGERS)


def test_a_log_goes_with_the_last_of_its_ledgers() -> None:
    model = filled()
    assert logs(model) == [1, 2]

    model.write([Tombstone(1, 1)])
    model.bury()
    assert logs(model) == [1], "ledger 2 is in the first one"

    model.write([Tombstone(2, 2)])
    model.bury()
    assert logs(model) == []
    assert not model.storage.contents.ledgers


def test_a_burial_of_a_few_logs_leaves_the_others_to_the_next() -> None:
    model = filled()
    model.write([Tombstone(1, 2)])
    contents, checkpoints = model.storage.contents, model.storage.checkpoints
    left = []
    while (plan := contents.begin_burial()) is not None:
        contents.finish_burial(checkpoints.bury(plan, most=1))
        left.append(logs(model))
    assert left == [[2], []]


def test_a_burial_of_a_few_logs_looks_at_no_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read the footers of all that were dead: of a thousand logs some sixty thousand."""
    looked_at: list[int] = []

    def watched(files: FileSystem, directory: str, log_id: int, instance_id: bytes) -> set[int]:
        looked_at.append(log_id)
        return set(ledgers_in(files, directory, log_id, instance_id))

    monkeypatch.setattr(burial, "ledgers_in", watched)
    model = filled()
    model.write([Tombstone(1, 2)])
    contents, checkpoints = model.storage.contents, model.storage.checkpoints
    while (plan := contents.begin_burial()) is not None:
        contents.finish_burial(checkpoints.bury(plan, most=1))
    assert looked_at == [1, 2]


@pytest.mark.parametrize("without_room", [0, 1])
def test_what_waits_gives_its_room_back_where_there_is_none_to_bury_more(
    without_room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for a delta, which waited for the room that it holds."""
    model = started(directories=2)
    for ledger_id in range(1, 9):
        model.write([Add(run_of(ledger_id, range(3)))])
        model.checkpoint()
    everywhere = [f"/ledgers{number}" for number in range(2)]

    def stored() -> int:
        return sum(len(log_ids(model.files, directory)) for directory in everywhere)

    contents, checkpoints = model.storage.contents, model.storage.checkpoints
    model.write([Tombstone(1, 4)])
    first = contents.begin_burial()
    assert first is not None
    contents.finish_burial(checkpoints.bury(first, most=1))
    assert stored() == 6, "one of each directory is gone, and two wait"

    def refuse(_: object) -> None:
        raise NoRoomError("/ledgers", "no room")

    model.write([Tombstone(5, 8)])
    second = contents.begin_burial()
    assert second is not None
    with monkeypatch.context() as full:
        full.setattr(checkpoints._indexes[without_room], "commit", refuse)
        with pytest.raises(NoRoomError):
            checkpoints.bury(second)
    assert stored() == 4, "of those that not every directory knows as deleted none"

    contents.return_burial(second)
    third = contents.begin_burial()
    assert third is not None
    assert third.tombstones == ((5, 8),)
    contents.finish_burial(checkpoints.bury(third))
    assert stored() == 0


def test_of_logs_that_cannot_be_looked_at_a_burial_tries_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sick disk may take seconds for each, and a checkpoint waits."""
    monkeypatch.setattr(burial, "_UNREAD_MAX", 1)

    def fail(*_: object) -> set[int]:
        raise OSError(errno.EIO, "planted")

    model = filled()
    model.write([Tombstone(1, 2)])
    plan = model.storage.contents.begin_burial()
    assert plan is not None
    with monkeypatch.context() as sick:
        sick.setattr(burial, "ledgers_in", fail)
        result = model.storage.checkpoints.bury(replace(plan, dead_logs=((1, 2),)))
    assert (result.unread, result.left) == (((1,),), ((2,),))


def test_logs_that_are_kept_are_in_nobodys_way() -> None:
    """The first one holds a ledger that lives: the one behind it goes all the same."""
    model = filled()
    model.write([Tombstone(1, 1)])
    contents, checkpoints = model.storage.contents, model.storage.checkpoints
    plan = contents.begin_burial()
    assert plan is not None
    looked = replace(plan, dead_logs=((1, 2),))
    result = checkpoints.bury(looked, most=1)
    assert (result.kept, result.deleted, result.left) == (((1,),), ((2,),), ((),))


def test_of_logs_that_were_rewritten_a_few_go_at_once_too() -> None:
    model = filled()
    model.write([Tombstone(1, 2)])
    plan = model.storage.contents.begin_burial()
    assert plan is not None
    rewritten = replace(plan, dead_logs=((),), emptied_logs=((1, 2),))
    result = model.storage.checkpoints.bury(rewritten, most=1)
    assert (result.emptied, result.deleted, result.left) == (((1,),), ((),), ((2,),))
    assert logs(model) == [2]


def test_a_log_whose_checkpoint_ran_while_its_ledgers_were_deleted_goes_too() -> None:
    model = started(directories=1)
    model.write([Add(run_of(1, range(3)))])
    plan = model.storage.contents.begin_checkpoint()
    assert plan is not None
    model.write([Tombstone(1, 1)])
    model.storage.contents.finish_checkpoint(model.storage.checkpoints.write(plan))
    assert logs(model) == [1]

    model.bury()

    assert logs(model) == []


def test_a_log_that_was_looked_at_before_a_checkpoint_had_its_tombstones_goes_behind_it() -> None:
    """On a full disk the checkpoint waited for room, a burial ran beside it, and the log stayed for good."""
    model = filled()
    model.write([Tombstone(1, 1)])
    plan = model.storage.contents.begin_checkpoint()
    assert plan is not None
    model.bury()
    assert logs(model) == [1, 2], "the index does not know yet that ledger 1 is deleted"

    model.storage.contents.finish_checkpoint(model.storage.checkpoints.write(plan))
    model.bury()

    assert logs(model) == [1]


def test_a_dead_log_that_cannot_be_read_is_tried_again() -> None:
    model = filled()
    model.write([Tombstone(1, 1)])
    model.files.unreadable.add(f"{_LEDGERS}/{2:016x}.log")
    model.bury()
    assert logs(model) == [1, 2]
    assert model.storage.contents.begin_burial() is None, "not at every look"

    model.files.unreadable.clear()
    model.checkpoint()
    model.bury()

    assert logs(model) == [1]


def test_a_dead_log_whose_footer_is_damaged_stays() -> None:
    model = filled()
    model.files.content(f"{_LEDGERS}/{2:016x}.log")[-20] ^= 1
    model.write([Tombstone(1, 2)])

    model.bury()

    assert logs(model) == [2], "it may hold what damage took from an index"


def test_a_log_whose_entries_were_all_replaced_is_no_deletion() -> None:
    """A start deletes it, when it has found all that the index knows."""
    model = filled()
    model.write([Replace(run_of(1, range(3, 6)))])
    model.checkpoint()

    model.bury()

    assert 2 in logs(model)
    model.restart()
    assert 2 not in logs(model)


def test_what_is_deleted_stays_so_behind_a_start_without_a_burial() -> None:
    model = filled()
    model.write([Tombstone(1, 2)])
    model.checkpoint()
    model.storage.close()

    model.storage = open_small(model.files.after_kill(), 1)

    model.check(model.storage, "restarted")
    assert log_ids(model.storage.files, _LEDGERS) == []


def test_memory_of_a_deleted_ledger_comes_back() -> None:
    model = started(directories=1)
    model.write([Add(run_of(1, range(30), size=100))])
    assert model.storage.contents.cached_bytes > 3000

    model.write([Tombstone(1, 1)])

    assert model.storage.contents.cached_bytes == 0
    assert model.storage.contents.begin_checkpoint() is not None  # of the tombstone


def test_a_log_is_unused_when_the_last_ledger_leaves_it() -> None:
    use = LogUse()
    use.add([1, 2])
    use.add([2])
    use.remove([1, 2])
    assert use.take_unused() == (1,)
    assert use.take_unused() == ()
    use.note(2)
    use.note(3)
    assert use.take_unused() == (3,), "of 2 a ledger is left"


def test_ids_within_a_range_are_found_from_either_side() -> None:
    known = {5: "", 9: "", 10**12: ""}
    assert sorted(within(5, 9, known)) == [5, 9]
    assert sorted(within(0, 10**15, known)) == [5, 9, 10**12]
    assert within(6, 8, known) == []
    ranges = LedgerRanges()
    assert ranges.members(known) == []
    ranges.add(6, 10)
    assert ranges.members(known) == [9]
