"""Which files a journal makes, keeps for another lap, takes back and gives back."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from bookie_server.core.records import Add
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    file_ids,
    file_name,
    parse_file_header,
)
from bookie_server.storage.journal.journal_files import PREPARED
from bookie_server.storage.journal.replay import ORIGIN
from tests.bookie_server.storage.lapped import FILE_SIZE, PLACE, Lapped
from tests.simulation.kit.files import SimFile, SimFileSystem
from tests.simulation.kit.storage_model import run_of


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


def test_a_file_is_not_written_again_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stamps of more laps would not lie so far apart."""
    monkeypatch.setattr("bookie_server.storage.journal.journal_files.LAPS_MAX", 3)
    lapped, laps = Lapped(1), list[int]()

    for _ in range(9):
        lapped.journal.files.retire(lapped.older)
        lapped.fill_a_file()
        header = parse_file_header(bytes(lapped.files.copy().content(lapped.path)[:BLOCK_SIZE]))
        assert header is not None
        laps.append(header.lap)

    assert max(laps) == 3
    assert laps.count(1) > 1


def test_a_file_is_taken_back_while_nobody_leaves_one() -> None:
    """The thread that checkpoints and the one that writes both say which file comes next."""
    lapped = Lapped(1)
    lapped.fill_a_file()
    held = list[bool]()

    def rename(old: str, new: str) -> None:
        held.append(lapped.journal.files.changing.locked())
        SimFileSystem.rename(lapped.files, old, new)

    lapped.files.rename = rename  # type: ignore[method-assign]
    lapped.journal.files.retire(lapped.older)
    lapped.fill_a_file()

    assert held == [True, True]


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
