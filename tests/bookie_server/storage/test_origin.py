"""Records without a cookie say themselves whose they are, and of which directory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    JournalFileHeader,
    encode_file_header,
)
from tests.bookie_server.storage.claims import ALL, NEW, claim, known, started
from tests.bookie_server.storage.test_identity import refusal
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.kit.storage_model import INSTANCE


def header_of(files: SimFileSystem, path: str, owner: bytes, number: int) -> None:
    """Give a journal file a header that says who wrote it, and in which of its directories."""
    header = JournalFileHeader(2, number, 1, BLOCK_SIZE, owner, GroupEnd(0, 0, 0))
    files.content(path)[:] = encode_file_header(header)


def test_records_of_another_bookie_are_not_kept() -> None:
    files = started(2)
    lost = known(2, may_replace=True, instance_id=INSTANCE)
    files.delete("/j1/cookie")
    header_of(files, f"/j1/{1:016x}.txn", bytes(16), 1)

    assert "belong to another bookie" in str(refusal(files, lost))

    header_of(files, f"/j1/{1:016x}.txn", INSTANCE, 1)
    assert claim(files, lost).doubtful == ("/j1",)


def test_records_of_another_bookie_are_not_adopted() -> None:
    """They had got this bookie's cookie before the storage refused them, and were nobody's any more."""
    files = started()
    for each in ALL.directories:
        files.delete(f"{each}/cookie")
        files.delete(f"{each}/starts")
    header_of(files, f"/j1/{1:016x}.txn", bytes(16), 1)

    assert "belong to another bookie" in str(refusal(files, replace(NEW, instance_id=INSTANCE)))


@pytest.mark.parametrize("is_known", [False, True])
def test_records_of_another_place_get_no_cookie_for_this_one(is_known: bool) -> None:
    """Else the cookies would refuse the right order, and the storage the wrong one."""
    files = started()
    for each in ALL.directories:
        files.delete(f"{each}/cookie")
        if not is_known:
            files.delete(f"{each}/starts")
    for number in (0, 1):
        header_of(files, f"/j{number}/{1:016x}.txn", INSTANCE, number)
    applicant = known(1, may_replace=True) if is_known else NEW

    for journals, ledgers, mistaken in (
        (("/j1", "/j0"), ("/l0", "/l1"), "/j1"),
        (("/l0", "/j1"), ("/j0", "/l1"), "/j0"),
    ):
        swapped = replace(ALL, journal_directories=journals, ledger_directories=ledgers)
        error = refusal(files, applicant, swapped)
        assert error.path == mistaken
        assert "its records are those of number" in str(error)

    claim(files, applicant)


def test_where_every_cookie_is_lost_no_directory_is_left_out() -> None:
    """The others got cookies without it, and then it was one to be added, which must be empty."""
    files = started(2)
    for each in ALL.directories:
        files.delete(f"{each}/cookie")
    paths = {"journals": ALL.journal_directories, "ledgers": ALL.ledger_directories}
    applicant = known(2, may_replace=True, **paths)

    for fewer in ({"ledger_directories": ("/l0",)}, {"journal_directories": ("/j1",)}):
        error = refusal(files, applicant, replace(ALL, **fewer))  # type: ignore[arg-type]
        assert "missing in the settings; it has 2" in str(error)

    assert len(claim(files, applicant).doubtful) == 4
