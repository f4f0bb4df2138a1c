"""Journal files that are written lap after lap: what an earlier lap left there is nobody's, and no damage."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from bookie_server.core.records import Add, MasterKey
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.stamps import SECTOR_SIZE
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    parse_file_header,
)
from bookie_server.storage.journal.journal_files import PREPARED
from tests.bookie_server.storage.lapped import PLACE, Lapped
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
