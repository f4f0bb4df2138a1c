"""A disk that fills: what was acknowledged is there, at every moment and after every crash, and the
bookie goes on when there is room."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from bookie_server.core.records import Add, Fence
from bookie_server.storage.checkpoint import CheckpointPlan
from bookie_server.storage.disk.errors import NoRoomError, StorageFailedError
from bookie_server.storage.index import directory
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_files import PREPARED, JournalPlace
from bookie_server.storage.journal.replay import ORIGIN, Replay
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash
from tests.simulation.kit.inode import BLOCK_SIZE
from tests.simulation.kit.storage_model import INSTANCE, Model, open_small, run_of, started


def whole_sectors(rng: Random) -> str:
    return rng.choice(("keep", "drop"))


def filled() -> Model:
    """Entries of two directories that no checkpoint has written, and some that one has."""
    model = started()
    model.write([Add(run_of(1, range(3)))])
    model.write([Add(run_of(2, range(3)))])
    model.checkpoint()
    model.write([Add(run_of(1, range(3, 9), size=3000))])
    model.write([Add(run_of(2, range(3, 9), size=3000)), Fence(2)])
    return model


def begin(model: Model) -> CheckpointPlan:
    plan = model.storage.contents.begin_checkpoint()
    assert plan is not None
    return plan


def checkpoint_steps() -> Iterator[int]:
    rehearsed = filled()
    first = rehearsed.files.steps
    rehearsed.checkpoint()
    yield from range(first, rehearsed.files.steps)


def test_a_checkpoint_without_room_at_any_call_is_written_later_or_stops_the_bookie() -> None:
    ends = set[str]()
    for number in checkpoint_steps():
        # given a disk that is full when the checkpoint makes this call
        model = filled()
        model.files.fail_at = {number: errno.ENOSPC}
        plan = begin(model)

        try:
            result = model.storage.checkpoints.write(plan)
        except StorageFailedError:
            # a sync of a file that stays: nothing is known of it any more
            ends.add("stopped")
            model.check(open_small(model.files.crash(Random(number))), f"stopped at {number}")
            continue
        except NoRoomError:
            ends.add("later")
            # then everything is still there, and a crash here loses nothing and damages nothing
            model.check(model.storage, f"no room at {number}")
            model.write([Add(run_of(1, [20 + number], size=50))])
            crashed = open_small(model.files.crash(Random(number), whole_sectors))
            model.check(crashed, f"crash without room at {number}")
            assert crashed.recovery.damage == []
            result = model.storage.checkpoints.write(plan)

        # when there is room, then the same checkpoint is written, and another one behind it
        model.storage.contents.finish_checkpoint(result)
        model.check(model.storage, f"written after {number}")
        model.write([Add(run_of(2, [30 + number], size=50))])
        model.checkpoint()
        model.check(model.storage, f"next after {number}")
        again = open_small(model.files.crash(Random(number), whole_sectors))
        model.check(again, f"crash after {number}")
        assert again.recovery.damage == []
    assert ends == {"later", "stopped"}


@pytest.mark.slow
def test_a_crash_anywhere_while_a_disk_without_room_gets_some_loses_nothing() -> None:
    rng = Random(2026)
    for blocks in range(0, 24, 5):
        for crash_after in range(0, 30, 4):
            # given so many free blocks, a checkpoint that ends for want of more, and then room
            model = filled()
            model.files.capacity_bytes = _used_bytes(model) + blocks * BLOCK_SIZE
            plan = begin(model)
            with suppress(NoRoomError):
                model.storage.checkpoints.write(plan)
            model.files.capacity_bytes = None
            model.files.crash_at = model.files.steps + crash_after
            with suppress(SimulatedCrash):
                model.storage.checkpoints.write(plan)

            for image in model.files.crash_images(rng, 2):
                model.check(open_small(image), f"blocks={blocks} crash_after={crash_after}")


def _used_bytes(model: Model) -> int:
    model.files.capacity_bytes = 1 << 40
    return (1 << 40) - model.files.free_space("/").free_bytes


def test_what_a_checkpoint_without_room_began_is_deleted() -> None:
    """Of all files it is the one that stands in the way of the room that it needs."""
    model = filled()
    before = _used_bytes(model)
    model.files.capacity_bytes = before + 3 * BLOCK_SIZE

    with pytest.raises(NoRoomError):
        model.storage.checkpoints.write(begin(model))

    assert _used_bytes(model) == before


def test_a_checkpoint_goes_on_with_the_directory_that_had_no_room() -> None:
    """The first directory's rows name its log already: written again, they would be there twice."""
    model = filled()
    plan = begin(model)
    number = next(
        number
        for number in checkpoint_steps()
        if _path_of(number).startswith("/ledgers1") and _path_of(number).endswith(".log")
    )
    model.files.fail_at = {number: errno.ENOSPC}
    with pytest.raises(NoRoomError):
        model.storage.checkpoints.write(plan)
    logs = model.files.names("/ledgers0")

    result = model.storage.checkpoints.write(plan)

    model.storage.contents.finish_checkpoint(result)
    assert model.files.names("/ledgers0") == logs
    model.check(model.storage, "both directories")
    model.restart()
    model.check(model.storage, "restarted")


def _path_of(number: int) -> str:
    rehearsed = filled()
    rehearsed.checkpoint()
    return rehearsed.files.log[number][1]


def test_a_snapshot_without_room_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs the room of a whole index, where a delta costs a few blocks."""
    monkeypatch.setattr(directory, "_SNAPSHOT_AT_BYTES", 0)
    model = filled()
    snapshots = [
        number for number in checkpoint_steps() if _path_of(number) == "/ledgers0/index.tmp"
    ]
    model.files.fail_at = {snapshots[1]: errno.ENOSPC}

    model.checkpoint()

    model.check(model.storage, "without a snapshot")
    assert "index.tmp" not in model.files.names("/ledgers0")
    again = open_small(model.files.crash(Random(3), whole_sectors))
    model.check(again, "crashed")
    assert again.recovery.damage == []


def journal_with(capacity_bytes: int, spare_bytes: int = 0) -> tuple[Journal, SimFileSystem]:
    files = SimFileSystem()
    files.capacity_bytes = capacity_bytes
    place = JournalPlace(
        directory="/j",
        index=0,
        instance_id=INSTANCE,
        file_size_bytes=16 * BLOCK_SIZE,
        zero_chunk_bytes=4 * BLOCK_SIZE,
        spare_bytes=spare_bytes,
    )
    return Journal(files, place, lambda: 1, ORIGIN), files


def test_a_journal_is_prepared_later_where_there_is_no_room_now() -> None:
    journal, files = journal_with(6 * BLOCK_SIZE)
    while journal.prepare():
        pass

    for entry_id in range(3):
        journal.write_group([Add(run_of(1, [entry_id]))])
    assert journal.prepare() is False

    # then it is not poisoned, and goes on preparing when there is room
    files.capacity_bytes = 100 * BLOCK_SIZE
    assert journal.prepare()
    for entry_id in range(3, 30):
        journal.write_group([Add(run_of(1, [entry_id]))])
        while journal.prepare():
            pass


def test_preparing_takes_none_of_the_room_that_is_kept_for_entries() -> None:
    """A file made ready ahead is 256 MiB: it turned a bookie read-only that had room for them."""
    spare = 10 * BLOCK_SIZE
    journal, files = journal_with(14 * BLOCK_SIZE, spare)

    for entry_id in range(11):
        journal.write_group([Add(run_of(1, [entry_id]))])
        while journal.prepare():
            assert files.free_space("/j").free_bytes >= spare


def test_a_next_file_that_finds_no_room_frees_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    journal, files = journal_with(100 * BLOCK_SIZE)
    for entry_id in range(12):
        journal.write_group([Add(run_of(1, [entry_id]))])
    monkeypatch.setattr(journal.files, "_zero_ahead", lambda *_: False)
    files.fail_at = {files.steps + 1: errno.ENOSPC}

    assert journal.prepare() is False

    assert files.log[-3:-1] == [("create", f"/j/{PREPARED}"), ("write", f"/j/{PREPARED}")]
    assert PREPARED not in files.names("/j")
    assert journal.prepare()


def test_a_journal_rolls_without_zeros_where_there_is_little_room() -> None:
    journal, files = journal_with(100 * BLOCK_SIZE)
    groups = 0
    while len([name for name in files.names("/j") if name.endswith(".txn")]) < 2:
        journal.write_group([Add(run_of(1, [groups]))])
        groups += 1
        files.capacity_bytes = 20 * BLOCK_SIZE

    journal.write_group([Add(run_of(1, [groups]))])


@pytest.mark.parametrize("is_quota", [False, True], ids=["room appears", "quota"])
def test_zeros_never_go_over_a_journals_header(is_quota: bool) -> None:
    """Begun without room for zeros, its filler began at the very front, where the header is."""
    files = SimFileSystem()
    files.capacity_bytes = 1024 * 1024
    if is_quota:
        files.fail_at = {files.steps + 2: errno.ENOSPC}
    place = JournalPlace(
        directory="/j",
        index=0,
        instance_id=INSTANCE,
        file_size_bytes=256 * 1024,
        zero_chunk_bytes=64 * 1024,
        spare_bytes=0 if is_quota else 1024 * 1024,
    )
    journal = Journal(files, place, lambda: 1, ORIGIN)
    files.capacity_bytes = None

    while journal.prepare():
        pass
    journal.write_group([Add(run_of(1, range(3)))])

    replay = Replay(files.after_kill(), "/j", 0, INSTANCE, ORIGIN)
    assert len(list(replay.groups())) == 1
    assert replay.report.damage == []
