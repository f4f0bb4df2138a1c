"""Blocks that lie side by side are looked at together, and each is believed for itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bookie_server.core.presence import Presence
from bookie_server.storage.disk.files import File
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.logs.entry_log import file_name
from bookie_server.storage.logs.id_pattern import patterns_of
from bookie_server.storage.logs.rows import Block, Row
from bookie_server.storage.read_blocks import execute_plan
from bookie_server.storage.read_outcome import ReadOutcome
from bookie_server.storage.read_plan import plan_of
from bookie_server.storage.stored import Stored
from bookie_server.wire.digest import crc32c
from bookie_server.wire.stripe import EVERY_ID
from tests.doubles.records import records

LEDGER, OTHER = 7, 8
LOG = 3
EACH = 10
"""Entries of a block."""
FOUR = range(4)


class Log:
    """An entry log, written block by block, and the rows that a checkpoint would make of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._path = directory / file_name(LOG)
        self._path.touch()
        self.stored: list[Stored] = []

    def add(
        self, content: bytes, promised: Sequence[int], *, entry_count: int | None = None
    ) -> None:
        """Write a block, and a row that promises these ids of it."""
        block = Block(
            LOG,
            self._path.stat().st_size,
            len(content),
            crc32c(content),
            len(promised) if entry_count is None else entry_count,
        )
        with self._path.open("ab") as file:
            file.write(content)
        (pattern,) = patterns_of(promised)
        self.stored.append(Stored(promised, Row(pattern, block), self._directory))

    def damage(self, index: int) -> None:
        """Flip a bit of this block, in its first payload."""
        place = self.stored[index].place
        assert isinstance(place, Row)
        content = bytearray(self._path.read_bytes())
        content[place.block.offset + 100] ^= 1
        self._path.write_bytes(content)

    def read(
        self, *, size_bytes_max: int = 1 << 20, files: RealFileSystem | None = None
    ) -> ReadOutcome:
        """All that the rows promise."""
        last = self.stored[-1].ids[-1]
        plan = plan_of(self.stored, LEDGER, 0, last, stripe=EVERY_ID, size_bytes_max=size_bytes_max)
        return execute_plan(files or RealFileSystem(), plan)


class CountingFiles(RealFileSystem):
    """How many files were opened."""

    def __init__(self) -> None:
        self.opened = 0

    def open(self, path: str, *, writable: bool = False) -> File:
        self.opened += 1
        return super().open(path, writable=writable)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def ids_of(index: int) -> range:
    return range(index * EACH, (index + 1) * EACH)


def block(index: int, *, ledger_id: int = LEDGER, size_bytes: int = 100) -> bytes:
    payload = bytes([index]) * size_bytes
    return records([payload] * EACH, index * EACH, ledger_id=ledger_id)


def test_whole_blocks_side_by_side_are_one_chunk(log: Log) -> None:
    for index in FOUR:
        log.add(block(index), ids_of(index))

    outcome = log.read()

    assert [bytes(chunk) for chunk in outcome.chunks] == [b"".join(map(block, FOUR))]
    assert outcome.of(Presence.FOUND) == [(0, 39)]
    assert (outcome.entry_count, outcome.damage) == (40, [])


def test_a_limit_ends_within_blocks_that_are_taken_together(log: Log) -> None:
    for index in FOUR:
        log.add(block(index), ids_of(index))
    record_bytes = len(block(0)) // EACH

    for size_bytes_max, count in ((25 * record_bytes, 25), (26 * record_bytes - 1, 25), (1, 1)):
        outcome = log.read(size_bytes_max=size_bytes_max)
        assert outcome.entry_count == count
        assert outcome.of(Presence.FOUND) == [(0, count - 1)]
        assert outcome.of(Presence.NOT_REACHED) == [(count, 39)]


def test_behind_a_block_that_is_wanted_in_part_come_whole_ones(log: Log) -> None:
    log.add(block(0), ids_of(0)[5:], entry_count=EACH)
    for index in (1, 2, 3):
        log.add(block(index), ids_of(index))

    outcome = log.read()

    wanted = b"".join(map(block, FOUR))[len(block(0)) // 2 :]
    assert [bytes(chunk) for chunk in outcome.chunks] == [wanted]
    assert outcome.of(Presence.FOUND) == [(5, 39)]


def test_a_reply_that_begins_and_ends_within_blocks_takes_one_look(log: Log) -> None:
    """Of 64 KiB each, the last one was read by itself, and both ends were looked at anew."""
    sizes = {"size_bytes": (64 * 1024 - 64) // EACH - 40}
    content = [block(index, **sizes) for index in range(18)]
    log.add(content[0], ids_of(0)[7:], entry_count=EACH)
    for index in range(1, 17):
        log.add(content[index], ids_of(index))
    log.add(content[17], ids_of(17)[:2], entry_count=EACH)
    files = CountingFiles()

    outcome = log.read(files=files, size_bytes_max=2 << 20)

    assert outcome.of(Presence.FOUND) == [(7, 171)]
    each = len(content[0]) // EACH
    assert [bytes(chunk) for chunk in outcome.chunks] == [b"".join(content)[7 * each : 172 * each]]
    assert files.opened == 1


def test_ids_with_gaps_are_not_taken_for_neighbours(log: Log) -> None:
    log.add(block(0), ids_of(0)[1::2], entry_count=EACH)
    log.add(block(1), ids_of(1))

    outcome = log.read()

    assert outcome.of(Presence.FOUND) == [(1, 1), (3, 3), (5, 5), (7, 7), (9, 19)]
    assert outcome.of(Presence.ABSENT) == [(0, 0), (2, 2), (4, 4), (6, 6), (8, 8)]


@pytest.mark.parametrize(
    ("has", "promised"),
    [(0, range(EACH + 3)), (0, range(3, EACH + 3)), (1, range(EACH)), (1, range(EACH + 3))],
)
def test_a_row_that_promises_others_than_its_block_has_is_damage(
    log: Log, has: int, promised: range
) -> None:
    log.add(block(has), promised, entry_count=len(promised))

    outcome = log.read()

    damaged = [(promised[0], promised[-1])]
    assert (outcome.entry_count, outcome.of(Presence.DAMAGED)) == (0, damaged)


def test_a_block_that_lacks_an_inner_entry_of_its_row_is_damage(log: Log) -> None:
    whole = block(0)
    each = len(whole) // EACH
    log.add(whole[: 4 * each] + whole[5 * each :], ids_of(0), entry_count=EACH)

    outcome = log.read()

    assert (outcome.entry_count, outcome.of(Presence.DAMAGED)) == (0, [(0, 9)])


def test_no_block_gives_what_the_row_of_another_stands_for(log: Log) -> None:
    two = block(0) + block(1)
    half = len(two) // 4
    log.add(two[:half], ids_of(0), entry_count=EACH)
    log.add(two[half:], ids_of(1), entry_count=EACH)

    outcome = log.read()

    assert outcome.of(Presence.DAMAGED) == [(0, 9)]
    assert outcome.of(Presence.FOUND) == [(10, 19)]


def test_two_rows_of_one_block_are_taken_together(log: Log) -> None:
    """As late entries leave them that went somewhere else since."""
    log.add(block(0), ids_of(0)[:4], entry_count=EACH)
    (whole,) = log.stored
    assert isinstance(whole.place, Row)
    rest = ids_of(0)[4:]
    (pattern,) = patterns_of(rest)
    log.stored.append(Stored(rest, Row(pattern, whole.place.block), whole.directory))
    log.add(block(1), ids_of(1))

    outcome = log.read()

    assert [bytes(chunk) for chunk in outcome.chunks] == [block(0) + block(1)]
    assert outcome.of(Presence.FOUND) == [(0, 19)]


def test_blocks_of_two_directories_are_two_reads_whatever_their_places(tmp_path: Path) -> None:
    logs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        logs.append(Log(tmp_path / name))
        for index in (0, 1):
            logs[-1].add(block(index), ids_of(index))
    logs[0].damage(1)
    logs[0].stored[1:] = logs[1].stored[1:]

    outcome = logs[0].read()

    assert outcome.of(Presence.FOUND) == [(0, 19)]


@pytest.mark.parametrize("index", FOUR)
def test_a_damaged_block_costs_itself_only(log: Log, index: int) -> None:
    for each in FOUR:
        log.add(block(each), ids_of(each))
    log.damage(index)

    outcome = log.read()

    ids = ids_of(index)
    assert outcome.of(Presence.DAMAGED) == [(ids[0], ids[-1])]
    assert list(outcome.damaged_places) == list(ids)
    sound = b"".join(block(each) for each in FOUR if each != index)
    assert b"".join(map(bytes, outcome.chunks)) == sound


@pytest.mark.parametrize("index", FOUR)
def test_a_sound_block_of_another_ledger_is_never_returned(log: Log, index: int) -> None:
    for each in FOUR:
        log.add(block(each, ledger_id=OTHER if each == index else LEDGER), ids_of(each))

    outcome = log.read()

    ids = ids_of(index)
    assert outcome.of(Presence.DAMAGED) == [(ids[0], ids[-1])]
    assert outcome.entry_count == 30


def test_blocks_all_of_another_ledger_are_never_returned(log: Log) -> None:
    for each in FOUR:
        log.add(block(each, ledger_id=OTHER), ids_of(each))

    outcome = log.read()

    assert (outcome.entry_count, outcome.of(Presence.DAMAGED)) == (0, [(0, 39)])


def test_blocks_that_hold_more_than_their_rows_promise_are_looked_at_one_by_one(log: Log) -> None:
    for index in FOUR:
        log.add(block(index), ids_of(index)[:-1], entry_count=EACH - 1)

    outcome = log.read()

    assert outcome.of(Presence.FOUND) == [(0, 8), (10, 18), (20, 28), (30, 38)]
    assert outcome.of(Presence.ABSENT) == [(9, 9), (19, 19), (29, 29)]


def test_a_block_too_short_for_a_record_is_damaged(log: Log) -> None:
    for index in (0, 1):
        log.add(b"8 bytes.", ids_of(index))

    outcome = log.read()

    assert outcome.of(Presence.DAMAGED) == [(0, 19)]


def test_blocks_of_entries_that_differ_in_size_are_found(log: Log) -> None:
    for index in FOUR:
        log.add(block(index, size_bytes=100 + index), ids_of(index))

    outcome = log.read()

    assert outcome.of(Presence.FOUND) == [(0, 39)]
    wanted = b"".join(block(index, size_bytes=100 + index) for index in FOUR)
    assert b"".join(map(bytes, outcome.chunks)) == wanted
