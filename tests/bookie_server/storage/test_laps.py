"""Journal files that are written lap after lap: what an earlier lap left there is nobody's, and no damage."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import pytest

from bookie_server.core.records import Add, Drop, Fence, MasterKey, Replace, Tombstone
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.disk.stamps import SECTOR_SIZE
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    file_ids,
    file_name,
    parse_file_header,
)
from bookie_server.storage.journal.journal_files import PREPARED
from bookie_server.storage.journal.replay import ORIGIN, Replay
from tests.bookie_server.storage.lapped import FILE_SIZE, PLACE, Lapped
from tests.simulation.kit.files import SimFile, SimFileSystem
from tests.simulation.kit.storage_model import Model, records_of, run_of, tiny


def fates_of(fates: tuple[str, ...]) -> Iterator[str]:
    yield from fates


def test_files_are_written_again_and_not_filled_with_zeros_again() -> None:
    lapped = Lapped(lap=3)
    begin, groups = lapped.files.steps, lapped.entry_id

    for _ in range(5):
        lapped.journal.files.retire(lapped.older)
        lapped.fill_a_file()

    steps = [operation for operation, _ in lapped.files.log[begin:]]
    assert "create" not in steps
    # Each group, and in each file the header and the record that ends it.
    assert steps.count("write") == lapped.entry_id - groups + 2 * 5
    header = parse_file_header(bytes(lapped.files.content(lapped.path)[:BLOCK_SIZE]))
    assert header is not None
    assert header.lap > 4
    assert lapped.replayed(lapped.files.copy())[0].report.damage == []


@pytest.mark.parametrize("lap", [1, 2, 5])
@pytest.mark.parametrize("size", [10, 1500, 2900])
@pytest.mark.conformance("S8")
def test_no_power_loss_within_a_group_is_taken_for_damage_or_takes_more_than_it(
    lap: int, size: int
) -> None:
    """Whichever of its sectors have reached the disk: all of the subsets."""
    lapped = Lapped(lap)
    lapped.write(100)
    lapped.write(2000)
    promised = dict(lapped.promised)
    # When the power goes between the write of a third group and its sync.
    lapped.files.crash_at = lapped.files.steps + 1
    with pytest.raises(BaseException, match="sync"):
        lapped.write(size)
    lost = lapped.last
    unsynced = 8

    torn = 0
    for fates in product(("keep", "drop"), repeat=unsynced):
        draw = fates_of(fates)
        image = lapped.files.crash(Random(0), lambda _, draw=draw: next(draw))  # type: ignore[misc]
        replay, found = lapped.replayed(image)
        assert replay.report.damage == [], fates
        assert found in (promised, promised | records_of(lost)), fates
        torn += replay.report.groups_torn
    assert torn > 2 ** (unsynced - 2)


@pytest.mark.slow
@pytest.mark.parametrize("lap", [1, 3])
@pytest.mark.conformance("S1")
def test_no_flipped_bit_of_what_is_promised_is_taken_for_a_torn_write(lap: int) -> None:
    lapped = Lapped(lap)
    lapped.write(700)
    lapped.write(1300)
    end, rng = lapped.journal.position.end.offset, Random(lap)
    for offset in range(end + SECTOR_SIZE):
        files = lapped.files.copy()
        files.content(lapped.path)[offset] ^= 1 << rng.randrange(8)

        replay, found = lapped.replayed(files)

        assert found.items() <= lapped.promised.items(), offset
        assert found == lapped.promised or replay.report.damage, offset


@pytest.mark.parametrize("lap", [1, 3])
@pytest.mark.parametrize(
    "garbage", [b"\xff", b"\x5a", b"BKJGRP3\n"], ids=["ones", "mixed", "magic"]
)
@pytest.mark.conformance("S1")
def test_a_damaged_header_of_the_last_group_is_not_taken_for_the_end(
    lap: int, garbage: bytes
) -> None:
    lapped = Lapped(lap)
    lapped.write(700)
    lapped.write(1300)
    at = lapped.mark_before.offset
    for size in (9, 72, 508, 512):
        files = lapped.files.copy()
        files.content(lapped.path)[at : at + size] = (garbage * 512)[:size]

        assert lapped.replayed(files)[0].report.damage, size


@pytest.mark.conformance("S1")
def test_a_group_that_went_back_to_an_earlier_lap_is_missed_by_the_one_behind_it() -> None:
    lapped = Lapped(3)
    lapped.write(700)
    begin, before = lapped.journal.position.end.offset, bytes(lapped.files.content(lapped.path))
    lapped.write(1300)
    end = lapped.journal.position.end.offset
    lapped.write(700)
    for reverted in (range(begin, end, SECTOR_SIZE), [begin], [begin + SECTOR_SIZE]):
        files = lapped.files.copy()
        for at in reverted:
            files.content(lapped.path)[at : at + SECTOR_SIZE] = before[at : at + SECTOR_SIZE]

        assert lapped.replayed(files)[0].report.damage


def test_the_last_groups_sector_of_an_earlier_lap_is_a_torn_write() -> None:
    """What no format can tell: the disk said that it has the sector, and has the one before it."""
    lapped = Lapped(3)
    lapped.write(700)
    promised = dict(lapped.promised)
    begin, before = lapped.journal.position.end.offset, bytes(lapped.files.content(lapped.path))
    lapped.write(1300)
    at = begin + SECTOR_SIZE
    lapped.files.content(lapped.path)[at : at + SECTOR_SIZE] = before[at : at + SECTOR_SIZE]

    replay, found = lapped.replayed(lapped.files)

    assert (replay.report.groups_torn, replay.report.damage, found) == (1, [], promised)


def test_a_start_behind_a_torn_write_looks_at_what_earlier_laps_left_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of its groups had the rest of the file looked through: minutes for a file of 256 MiB, or hours."""
    size = 256 * BLOCK_SIZE
    lapped = Lapped(2, replace(PLACE, file_size_bytes=size))
    lapped.write(1300)
    at = lapped.mark_before.offset + SECTOR_SIZE
    lapped.files.content(lapped.path)[at : at + SECTOR_SIZE] = bytes(SECTOR_SIZE)
    reads, read_at = [], SimFile.read_at

    def counted(file: SimFile, offset: int, size: int) -> bytes:
        reads.append(size)
        return read_at(file, offset, size)

    monkeypatch.setattr(SimFile, "read_at", counted)

    replay, _ = lapped.replayed(lapped.files)

    assert (replay.report.groups_torn, replay.report.damage) == (1, [])
    assert len(reads) < 30
    assert sum(reads) < 6 * size


def test_groups_behind_a_damaged_file_header_are_read_all_the_same() -> None:
    lapped = Lapped(3)
    lapped.write(700)
    lapped.write(1300)
    lapped.files.content(lapped.path)[20] ^= 1

    replay, found = lapped.replayed(lapped.files)

    assert replay.report.damage
    assert found == lapped.promised


def test_a_file_is_not_written_again_before_its_old_name_is_durably_gone() -> None:
    lapped = Lapped(1)
    lapped.fill_a_file()
    before = lapped.files.steps
    lapped.journal.files.retire(lapped.older[:1])

    renamed = lapped.files.log[before:]
    assert renamed == [("rename", f"/j/{PREPARED}"), ("sync_dir", "/j")]
    lapped.fill_a_file()
    assert lapped.replayed(lapped.files.copy())[0].report.damage == []


def test_one_file_is_kept_and_the_others_are_given_back() -> None:
    lapped = Lapped(1)
    for _ in range(3):
        lapped.fill_a_file()
    assert len(lapped.older) > 2

    lapped.journal.files.retire(lapped.older)

    assert lapped.files.names("/j") == [file_name(lapped.mark.file_id), PREPARED]
    lapped.journal.close()


@pytest.mark.parametrize("is_short", [False, True])
def test_none_is_kept_where_the_disk_is_short_of_room(is_short: bool) -> None:
    """A file that is ready for later took the room that the bookie waited for, for ever."""
    capacity = 100 * FILE_SIZE
    lapped = Lapped(1, replace(PLACE, spare_bytes=capacity if is_short else 0))
    lapped.fill_a_file()
    lapped.files.capacity_bytes = capacity

    lapped.journal.files.retire(lapped.older)

    assert (PREPARED in lapped.files.names("/j")) is not is_short


def test_what_is_kept_is_given_back_when_the_disk_is_short_of_room() -> None:
    lapped = Lapped(1)
    lapped.fill_a_file()
    lapped.journal.files.retire(lapped.older)
    assert PREPARED in lapped.files.names("/j")

    lapped.journal.give_back()
    lapped.journal.give_back()

    assert lapped.files.names("/j") == [file_name(lapped.mark.file_id)]
    lapped.fill_a_file()
    lapped.write(10)
    assert lapped.replayed(lapped.files.copy())[1] == lapped.promised


def test_no_failure_leaves_a_descriptor_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sealed start follows in the same process."""
    unclosed, opened, closed = set[SimFile](), SimFile.__init__, SimFile.close

    def init(file: SimFile, *of: object) -> None:
        opened(file, *of)  # type: ignore[arg-type]
        unclosed.add(file)

    def close(file: SimFile) -> None:
        closed(file)
        unclosed.discard(file)

    monkeypatch.setattr(SimFile, "__init__", init)
    monkeypatch.setattr(SimFile, "close", close)
    failures = 0
    for step in range(1, 60):
        files = SimFileSystem()
        files.fail_at = {step: errno.EIO}
        try:
            journal = Journal(files, PLACE, lambda: 1, ORIGIN)
        except OSError:
            failures += 1
            assert not unclosed, step
            continue
        try:
            for entry_id in range(12):
                journal.write_group([Add(run_of(1, [entry_id], size=3000))])
                journal.prepare()
                old = [id for id in file_ids(files, "/j") if id < journal.position.end.file_id]
                journal.files.retire(old)
        except (StorageFailedError, OSError):
            failures += 1
        journal.close()
        assert not unclosed, step
    assert failures > 40


def test_a_file_of_an_earlier_process_is_not_written_again() -> None:
    lapped = Lapped(1)
    lapped.fill_a_file()
    lapped.journal.close()
    again = Journal(lapped.files, PLACE, lambda: 1, lapped.journal.position.end)

    again.files.retire([*lapped.older, lapped.mark.file_id])

    assert lapped.files.names("/j") == [file_name(again.position.end.file_id)]


def test_a_file_that_a_large_group_has_made_longer_is_not_written_again() -> None:
    lapped = Lapped(1)
    lapped.write(2 * FILE_SIZE)
    grown = lapped.journal.position.end.file_id
    lapped.write(10)
    assert len(lapped.files.content(f"/j/{file_name(grown)}")) > FILE_SIZE

    lapped.journal.files.retire([grown])

    assert PREPARED not in lapped.files.names("/j")


def test_a_closed_journal_keeps_nothing() -> None:
    lapped = Lapped(1)
    lapped.fill_a_file()
    lapped.journal.close()

    lapped.journal.files.retire(lapped.older)

    assert lapped.files.names("/j") == [file_name(lapped.mark.file_id)]


def before_a_file_is_given_back() -> Model:
    """Storage whose next checkpoint gives a journal file back that is written for the second time."""
    model = Model(SimFileSystem(), layout=tiny())
    model.start()
    entry_ids = iter(range(99))
    for lap in range(2):
        if lap:
            model.checkpoint()
        model.write([MasterKey(1, bytes(20)), Add(run_of(1, [next(entry_ids)], size=2900))])
        while PREPARED in (names := model.files.names("/journal0")) or len(names) < 2:
            model.write([Add(run_of(1, [next(entry_ids)], size=2900))])
    return model


def test_what_fails_while_a_file_is_given_back_stops_the_bookie_and_loses_nothing() -> None:
    rehearsed = before_a_file_is_given_back()
    begin = rehearsed.files.steps
    rehearsed.checkpoint()
    assert ("rename", f"/journal0/{PREPARED}") in rehearsed.files.log[begin:]
    for number in range(begin, rehearsed.files.steps):
        model = before_a_file_is_given_back()
        model.files.fail_at = {number: errno.EIO}

        with pytest.raises(StorageFailedError):
            model.checkpoint()

        model.check(model.storage, "poisoned")
        for image in (model.files.after_kill(), model.files.crash(Random(number))):
            model.check(model.open(image), f"failed at {number}")


def test_a_file_goes_where_there_is_no_room_for_another_name() -> None:
    model = before_a_file_is_given_back()
    rehearsed = before_a_file_is_given_back()
    begin = rehearsed.files.steps
    rehearsed.checkpoint()
    at = rehearsed.files.log.index(("rename", f"/journal0/{PREPARED}"), begin)
    model.files.fail_at = {at: errno.ENOSPC}

    model.checkpoint()

    assert PREPARED not in model.files.names("/journal0")
    model.write([Add(run_of(1, range(50, 60), size=2900))])
    model.check(model.open(model.files.after_kill()), "written without it")


def test_journals_of_format_2_are_read(repository: Path) -> None:
    """Written by the last version that filled every file with zeros; the second file follows a roll record."""
    directory = str(repository / "tests/golden/v2/journal")
    replay = Replay(RealFileSystem(), directory, 0, b"golden-bookie-id", ORIGIN)

    groups = [group.records for group in replay.groups()]

    assert replay.report.damage == []
    key, add = groups[0]
    assert key == MasterKey(7, b"k" * 20)
    assert isinstance(add, Add)
    assert records_of(add.run) == records_of(run_of(7, range(3), size=300))
    replaced, fence = groups[1]
    assert isinstance(replaced, Replace)
    assert records_of(replaced.run) == records_of(run_of(7, [1], size=300, salt=1))
    assert fence == Fence(7)
    striped, drop, tombstone = groups[2]
    assert isinstance(striped, Add)
    assert list(striped.run.entry_ids) == [0, 2, 4]
    assert (drop, tombstone) == (Drop(11), Tombstone(21, 22))
