"""Directories are judged as a start would, without one byte or name of them changing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.settings import REPLACE_FLAG
from bookie_server.storage.check.judgement import Judgement, judge_directories
from bookie_server.storage.check.roles import assign_roles
from bookie_server.storage.identity.cookie_file import COOKIE_NAME, STARTS_NAME, read_cookie
from tests.bookie_server.storage.claims import ALL, NEW, claim, empty, known
from tests.bookie_server.storage.test_damage import EVERY_KIND, files, path_of, stored
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.kit.storage_model import Model, open_small, settings

__all__ = ["files", "stored"]

CLUSTER = "d2c6a1e0-0000-4000-8000-000000000000"
OURS = replace(NEW, cluster_id=CLUSTER)


def judged(found: SimFileSystem, wanted: object = None) -> Judgement:
    """The judgement, with everything as it was before."""
    before = {path: bytes(found.content(path)) for path in found.names_now}

    result = judge_directories(found, wanted or settings(1))  # type: ignore[arg-type]

    assert {path: bytes(found.content(path)) for path in found.names_now} == before
    return result


def problem_of(result: Judgement) -> str:
    (problem,) = result.problems
    return problem


def started_at(starts: int = 1) -> SimFileSystem:
    """Directories of a bookie that has started so often and stored nothing."""
    found = SimFileSystem()
    claim(found, OURS)
    for number in range(1, starts):
        claim(found, replace(known(number), cluster_id=CLUSTER))
    return found


def test_what_a_killed_bookie_left_is_sound(stored: Model, files: SimFileSystem) -> None:
    result = judged(files)

    assert result.problems == []
    assert "adopt" in result.start
    assert result.ledgers == len(stored.entries)
    assert result.blocks > 2
    (note,) = result.notes
    assert note.startswith("journals: ")
    # The same as what a start then finds.
    storage = open_small(files, directories=1)
    assert f"{storage.recovery.records} records of {storage.recovery.groups} groups" in note
    assert len(storage.contents.ledgers) == result.ledgers
    storage.close()


@EVERY_KIND
@pytest.mark.parametrize("how", ["missing", "cut", "flipped", "emptied"])
def test_whatever_a_start_calls_damage_the_check_does(
    stored: Model, files: SimFileSystem, suffix: str, how: str
) -> None:
    path = path_of(stored, suffix)
    content = files.content(path)
    if how == "missing":
        files.delete(path)
    elif how == "cut":
        del content[len(content) // 2 :]
    elif how == "flipped":
        content[len(bytes(content).rstrip(b"\0")) // 2] ^= 0x40
    else:
        content.clear()

    result = judged(files)

    storage = open_small(files, directories=1)
    assert not storage.recovery.damage or result.problems
    # Nothing but the journal says whose files without cookies are.
    is_known = not any("say whose files these are" in each for each in result.problems)
    for damage in storage.recovery.damage if is_known else ():
        assert str(damage) in result.problems
    storage.close()
    # A log that nobody needs for a start is read all the same.
    if suffix == ".log":
        assert any(path in problem for problem in result.problems), result.problems


def test_a_damaged_block_is_named_with_its_ledger(stored: Model, files: SimFileSystem) -> None:
    """No start reads it: its first reader would learn of it."""
    path = path_of(stored, ".log")
    files.content(path)[100] ^= 1

    problem = problem_of(judged(files))

    assert problem.startswith(path)
    assert "is damaged: entries of ledger 1" in problem
    storage = open_small(files, directories=1)
    assert storage.recovery.damage == []
    storage.close()


def test_bytes_read_are_told_as_they_grow(files: SimFileSystem) -> None:
    told: list[int] = []

    judge_directories(files, settings(1), progress=told.append)

    assert told == sorted(told)
    assert told[-1] > 1_000


def test_empty_directories_are_a_new_bookies() -> None:
    result = judged(SimFileSystem(), ALL)

    assert result.is_sound
    assert "new bookie" in result.start


def test_directories_whose_first_start_was_cut_short_are_finished() -> None:
    found = started_at()
    for path in ALL.directories:
        found.delete(f"{path}/{STARTS_NAME}")
    found.delete(f"/l1/{COOKIE_NAME}")

    result = judged(found, ALL)

    assert result.is_sound
    assert "finish the first one" in result.start


def test_a_start_counted_on_some_disks_only_is_what_a_crash_leaves() -> None:
    older, newer = started_at(2), started_at(3)
    for path in ("/l0", "/l1"):
        newer.content(f"{path}/{STARTS_NAME}")[:] = older.content(f"{path}/{STARTS_NAME}")

    result = judged(newer, ALL)

    assert result.problems == []
    assert result.start.endswith("as start 3")


def test_an_emptied_directory_is_refused_by_name_with_the_way_out() -> None:
    found = started_at(2)
    empty(found, "/l1")

    result = judged(found, ALL)

    assert not result.is_sound
    assert "refuse" in result.start
    assert problem_of(result).startswith("/l1: ")
    assert REPLACE_FLAG in problem_of(result)


def test_an_old_copy_of_one_disk_is_refused() -> None:
    found, old = started_at(4), started_at(2)
    found.content(f"/j1/{STARTS_NAME}")[:] = old.content(f"/j1/{STARTS_NAME}")

    problem = problem_of(judged(found, ALL))

    assert problem.startswith("/j1: the directory is an old copy")


def test_a_damaged_cookie_is_named() -> None:
    found = started_at(2)
    found.content(f"/j0/{COOKIE_NAME}")[20] ^= 1

    assert f"/j0/{COOKIE_NAME}" in problem_of(judged(found, ALL))


def test_a_directory_that_was_not_named_is_missed() -> None:
    found = started_at(2)

    assert "/l1" in problem_of(judged(found, assign_roles(found, ["/l0", "/j1", "/j0"])))


def test_directories_say_themselves_what_they_are() -> None:
    """In whatever order they are named, after they moved, and one of them without a cookie."""
    found = started_at(2)
    empty(found, "/j1")

    assert assign_roles(found, ["/l1", "/j1", "/l0", "/j0"]) == replace(
        ALL, journal_directories=("/j0", "/j1"), ledger_directories=("/l0", "/l1")
    )
    assert read_cookie(found, "/l1").directories.ledgers[1].path == "/l1"


def test_directories_without_cookies_are_told_by_their_files(files: SimFileSystem) -> None:
    (journal,), (ledgers,) = settings(1).journal_directories, settings(1).ledger_directories

    found = assign_roles(files, [ledgers, journal])

    assert (found.journal_directories, found.ledger_directories) == ((journal,), (ledgers,))
    with pytest.raises(ValueError, match="journal_directories must name"):
        assign_roles(files, [ledgers])
