"""Copies too many are dropped: their logs go, they can come again, and no crash makes half of it."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from bookie_server.core.absence import status_of_absence
from bookie_server.core.records import Add, Drop, ExplicitLac, Replace, Tombstone
from bookie_server.storage.disk.errors import NoRoomError
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.index.handle_state import says_dropped
from bookie_server.wire.messages import Status
from bookie_server.wire.record import encode_lac_packet
from tests.bookie_server.storage.test_burial import filled, logs
from tests.doubles.records import CRC32C
from tests.simulation.kit.storage_model import (
    INSTANCE,
    Model,
    open_small,
    read_all,
    run_of,
    started,
)


def test_what_is_dropped_is_gone_and_fenced_and_another_ledger_is_left_alone() -> None:
    model = filled()

    model.write([Drop(1)])

    contents = model.storage.contents
    assert contents.last_entry(1) is None
    assert contents.ledgers[1].is_fenced
    assert not read_all(model.storage, 1)
    assert len(read_all(model.storage, 2)) == 3


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_log_goes_once_all_of_it_is_dropped(has_checkpoint: bool) -> None:
    """A full disk has no room for a checkpoint: a burial goes without one."""
    model = filled()
    model.write([Drop(1)])
    if has_checkpoint:
        model.checkpoint()
    model.bury()
    assert logs(model) == [1], "ledger 2 is in the first one"

    model.write([Tombstone(2, 2)])
    model.bury()
    assert logs(model) == [], "one was dropped, the other deleted"
    model.restart()
    model.check(model.storage, "restarted")


def test_ledgers_that_are_dropped_one_after_the_other_give_their_common_log_back() -> None:
    model = filled()
    for ledger_id in (1, 2):
        model.write([Drop(ledger_id)])
        model.checkpoint()
        model.bury()

    assert logs(model) == []


def test_a_log_of_ledgers_that_were_dropped_before_and_behind_a_start_goes() -> None:
    model = filled()
    model.write([Drop(1)])
    model.checkpoint()
    model.bury()
    model.restart()
    model.write([Drop(2)])
    model.checkpoint()

    model.bury()

    assert logs(model) == []


def test_a_start_gives_the_space_of_what_was_dropped_back_though_a_ledger_is_in_limbo() -> None:
    model = filled()
    model.storage.contents.set_limbo([9])
    for ledger_id in (1, 2):
        model.write([Drop(ledger_id)])
    model.checkpoint()
    assert logs(model) == [1, 2], "it ended right behind its last checkpoint"

    model.restart()

    assert logs(model) == []


@pytest.mark.parametrize("makes_durable", [Model.checkpoint, Model.bury])
def test_what_is_dropped_is_so_in_every_directory(makes_durable: Callable[[Model], None]) -> None:
    model = started(directories=2)
    for ledger_id in range(1, 5):
        model.write([Add(run_of(ledger_id, range(3)))])
    model.checkpoint()
    for ledger_id in range(1, 5):
        model.write([Drop(ledger_id)])

    makes_durable(model)
    # The journals tell of it as well, as long as another index needs them: not so here.
    for index in model.storage.checkpoints._indexes:
        index.close()
        again = DirectoryIndex(model.files, index.directory, index.index, INSTANCE)
        again.load()
        assert not again.rows
        assert all(says_dropped(again.handles[each]) for each in range(1, 5))


def test_what_is_absent_of_a_dropped_ledger_is_not_denied() -> None:
    model = filled()
    model.write([Drop(1)])

    for _ in range(2):
        handle = model.storage.contents.ledgers[1]
        assert status_of_absence(handle, is_storage_damaged=False) is Status.UNKNOWN
        model.restart()


def test_an_explicit_lac_below_what_dropped_entries_claimed_is_kept() -> None:
    """It was compared with the LAC that those had claimed, and an older packet was answered from then on."""
    model = filled()
    model.storage.contents.ledgers[1].last_add_confirmed = 9
    model.write([ExplicitLac(1, encode_lac_packet(CRC32C, 1, 2))])
    model.write([Drop(1)])
    newer = encode_lac_packet(CRC32C, 1, 4)

    model.write([ExplicitLac(1, newer), ExplicitLac(1, encode_lac_packet(CRC32C, 1, 3))])

    for _ in range(2):
        assert model.storage.contents.ledgers[1].explicit_lac == newer
        model.restart()


def test_a_start_finds_a_drop_in_the_journal_and_in_the_index() -> None:
    model = filled()
    model.write([Drop(1)])

    model.restart()
    assert not read_all(model.storage, 1)
    model.checkpoint()
    model.restart()

    assert not read_all(model.storage, 1)
    assert model.storage.contents.ledgers[1].is_fenced
    model.check(model.storage, "restarted")


def test_a_burial_without_room_is_made_again() -> None:
    """And no log goes before an index has it: on the disk its rows name it still."""
    model = filled()
    for ledger_id in (1, 2):
        model.write([Drop(ledger_id)])
    files = model.files
    files.fail_at = {files.steps: errno.ENOSPC}
    with pytest.raises(NoRoomError):
        model.bury()
    assert logs(model) == [1, 2]
    plan = model.storage.contents.begin_checkpoint()
    assert plan is not None
    model.bury()
    assert logs(model) == [1, 2], "the checkpoint has the drops, and is not written yet"

    model.storage.contents.finish_checkpoint(model.storage.checkpoints.write(plan))
    model.bury()

    assert logs(model) == []
    model.restart()
    model.check(model.storage, "restarted")


def test_what_comes_again_in_the_same_checkpoint_is_kept() -> None:
    model = filled()
    model.write([Drop(1)])
    model.write([Add(run_of(1, range(2), salt=4))])

    model.checkpoint()
    model.bury()
    model.check(model.storage, "checkpointed")
    model.restart()

    assert sorted(read_all(model.storage, 1)) == [0, 1]
    model.check(model.storage, "restarted")


def test_a_replay_of_all_of_it_ends_at_what_came_last() -> None:
    """The journal still has the entries of before, for another directory's sake."""
    model = started(directories=2)
    model.write([Add(run_of(1, range(3)))])
    model.checkpoint()
    model.write([Drop(1)])
    model.write([Add(run_of(1, range(1, 3), salt=4))])
    image = model.files.after_kill()
    model.storage.close()

    model.storage = open_small(image, 2)

    model.check(model.storage, "replayed")
    assert sorted(read_all(model.storage, 1)) == [1, 2]


def test_only_what_rests_in_logs_may_be_dropped() -> None:
    """A checkpoint that writes its entries would bring them back, in memory only."""
    model = started(directories=1)
    contents = model.storage.contents
    model.write([Add(run_of(1, range(3)))])
    assert not contents.may_drop(1)
    plan = contents.begin_checkpoint()
    assert plan is not None
    assert not contents.may_drop(1)

    contents.finish_checkpoint(model.storage.checkpoints.write(plan))

    assert contents.may_drop(1)
    contents.set_limbo([1])
    assert not contents.may_drop(1), "what should be here is not known"


def test_what_was_replaced_and_dropped_then_is_gone_with_its_logs() -> None:
    model = filled()
    model.write([Replace(run_of(1, range(3, 6), salt=1))])
    model.checkpoint()
    model.write([Replace(run_of(2, [0], salt=1))])
    model.checkpoint()

    for ledger_id in (1, 2):
        model.write([Drop(ledger_id)])
    model.checkpoint()
    model.bury()

    assert logs(model) == []


def test_a_compaction_under_way_brings_nothing_back() -> None:
    model = filled()
    result = model.storage.checkpoints.compact(0, logs(model))
    model.write([Drop(1)])
    model.show(result)

    assert not read_all(model.storage, 1)
    model.checkpoint()
    model.bury()
    model.restart()
    assert not read_all(model.storage, 1)
    assert len(read_all(model.storage, 2)) == 3


def test_a_ledger_that_is_dropped_and_deleted_then_is_deleted() -> None:
    model = filled()
    model.write([Drop(1)])
    model.write([Tombstone(1, 1)])
    model.checkpoint()
    model.bury()

    assert 1 not in model.storage.contents.ledgers
    model.write([Drop(1)])
    assert 1 not in model.storage.contents.ledgers, "it comes too late"
    model.restart()
    model.check(model.storage, "restarted")
