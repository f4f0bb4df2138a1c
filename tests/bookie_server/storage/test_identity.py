"""Directories are this bookie's, all there and the newest, or the start is refused and nothing changed."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.disk.files import File
from bookie_server.storage.identity.cookie_file import (
    Start,
    read_cookie,
    write_start,
)
from bookie_server.storage.identity.doubt import is_doubtful
from bookie_server.storage.identity.start_plan import Applicant
from tests.bookie_server.storage.claims import (
    ALL,
    NEW,
    claim,
    empty,
    known,
    number_of,
    own_ids,
    put_back,
    started,
)
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash


def refusal(
    files: SimFileSystem, applicant: Applicant, settings: StorageSettings = ALL
) -> StorageRefusedError:
    """Why a start is refused; that it changed nothing is checked here."""
    before = files.steps
    with pytest.raises(StorageRefusedError) as error:
        claim(files, applicant, settings)
    assert files.steps == before, "a refused start changes nothing"
    return error.value


def test_a_first_start_gives_every_directory_a_name_of_its_own_and_the_whole_set() -> None:
    files = SimFileSystem()

    plan = claim(files)

    assert plan.start.number == 1
    assert plan.notes == ()
    assert len(set(own_ids(files))) == 4
    assert len({read_cookie(files, each).directories for each in ALL.directories}) == 1
    assert [number_of(files, each) for each in ALL.directories] == [1, 1, 1, 1]


def test_a_later_start_counts_and_leaves_the_cookies_alone() -> None:
    files = started()
    before = own_ids(files)

    plan = claim(files, known(1))

    assert (plan.cookies, plan.start.number, plan.notes) == ((), 2, ())
    assert own_ids(files) == before
    assert [number_of(files, each) for each in ALL.directories] == [2, 2, 2, 2]


def test_the_directories_of_a_bookie_without_cookies_are_adopted() -> None:
    """As 0.1 left them."""
    files = started()
    for directory in ALL.directories:
        for name in ("cookie", "starts"):
            files.delete(f"{directory}/{name}")

    assert claim(files).start.number == 1
    assert claim(files, known(1)).start.number == 2


@pytest.mark.parametrize("lost", [("/l1",), ("/j0",), ("/j0", "/l0"), ALL.directories])
@pytest.mark.conformance("S5")
def test_an_emptied_directory_is_refused_by_name_until_it_is_said_to_be_lost(
    lost: tuple[str, ...],
) -> None:
    files = started(2)
    before = dict(zip(ALL.directories, own_ids(files), strict=True))
    for directory in lost:
        empty(files, directory)

    error = refusal(files, known(2))
    assert error.path == lost[0]
    assert "--replace-lost-directories" in str(error)

    plan = claim(files, known(2, may_replace=True))
    after = dict(zip(ALL.directories, own_ids(files), strict=True))
    assert {path for path in after if after[path] != before[path]} == set(lost)
    assert len(plan.notes) == len(lost)
    # then the new ones belong to the set: the next start needs no flag
    assert claim(files, known(plan.start.number)).cookies == ()


def test_a_replaced_directory_that_comes_back_is_refused() -> None:
    files = started(2)
    old = files.copy()
    empty(files, "/l1")
    plan = claim(files, known(2, may_replace=True))
    put_back(files, old, "/l1", "/l1")

    error = refusal(files, known(plan.start.number))

    assert error.path == "/l1"
    assert "replaced by another one" in str(error)


def lose(files: SimFileSystem, path: str, how: str) -> None:
    if how == "missing":
        files.delete(path)
    else:
        files.content(path)[40] ^= 1


@pytest.mark.parametrize("how", ["missing", "damaged"])
@pytest.mark.parametrize("name", ["cookie", "starts"])
@pytest.mark.parametrize("directory", ["/j1", "/l0"])
def test_of_a_directory_that_lost_a_file_of_its_identity_the_records_are_kept_in_doubt(
    directory: str, name: str, how: str
) -> None:
    """They look sound, and nothing says that others are missing."""
    files = started(2)
    before = dict(zip(ALL.directories, own_ids(files), strict=True))
    lose(files, f"{directory}/{name}", how)

    error = refusal(files, known(2))
    assert error.path == directory
    assert "--replace-lost-directories: its records are kept" in str(error)

    plan = claim(files, known(2, may_replace=True))
    assert plan.doubtful == (directory,)
    assert [is_doubtful(files, each) for each in ALL.directories].count(True) == 1
    assert is_doubtful(files, directory)
    assert "records are kept" in plan.notes[0]
    # By a new name: the right disk, should it come back, is not taken for this one.
    after = dict(zip(ALL.directories, own_ids(files), strict=True))
    assert [path for path in after if after[path] != before[path]] == [directory]
    later = claim(files, known(plan.start.number))
    assert (later.cookies, later.doubtful) == ((), ())


@pytest.mark.parametrize("name", ["cookie", "starts"])
def test_a_kept_directory_is_doubtful_before_its_cookie_is_there(name: str) -> None:
    """Whenever a crash comes, no later start believes it without a word, or without a mark."""
    files = started(2)
    lose(files, f"/l1/{name}", "missing")
    files = files.copy()  # all of it durable
    rehearsed = files.copy()
    claim(rehearsed, known(2, may_replace=True))
    for crash_at in range(rehearsed.steps):
        found = files.copy()
        found.crash_at = found.steps + crash_at
        with suppress(SimulatedCrash):
            claim(found, known(2, may_replace=True))
        for image in found.crash_images(Random(crash_at), 3):
            try:
                claim(image, known(2))
            except StorageRefusedError:
                continue
            assert is_doubtful(image, "/l1"), f"crash_at={crash_at}"


def test_a_swapped_directory_without_its_start_counter_is_refused_by_its_place() -> None:
    files = started(2)
    files.delete("/l1/starts")
    settings = replace(ALL, ledger_directories=("/l1", "/l0"))

    assert "swapped" in str(refusal(files, known(2, may_replace=True), settings))


def test_a_damaged_cookie_is_refused_with_the_file_it_is_in() -> None:
    files = started(2)
    files.content("/j1/cookie")[40] ^= 1

    error = refusal(files, known(2))

    assert (error.path, "/j1/cookie" in str(error)) == ("/j1", True)


@pytest.mark.conformance("S4")
def test_directories_of_another_bookie_or_cluster_are_refused() -> None:
    files = started()

    assert "b:1 made it" in str(refusal(files, replace(NEW, bookie_id="b:2")))
    assert "another cluster" in str(refusal(files, replace(NEW, cluster_id="d")))


@pytest.mark.conformance("S5")
def test_swapped_directories_are_refused_with_the_place_they_had() -> None:
    settings = replace(ALL, ledger_directories=("/l1", "/l0"))

    error = refusal(started(), known(1), settings)

    assert error.path == "/l1"
    assert "number 1 of the ledger directories" in str(error)


def test_a_copied_directory_is_refused() -> None:
    files = started()
    put_back(files, files, "/l0", "/l1")

    assert refusal(files, known(1)).path == "/l1"


@pytest.mark.conformance("S5")
def test_a_directory_left_out_of_the_settings_is_named() -> None:
    error = refusal(started(), known(1), replace(ALL, ledger_directories=("/l0",)))

    assert error.path == "/l1"


@pytest.mark.conformance("S5")
def test_an_added_directory_needs_the_setting_and_no_records() -> None:
    files = started()
    larger = replace(ALL, ledger_directories=("/l0", "/l1", "/l2"))

    assert "allow_storage_expansion" in str(refusal(files, known(1), larger))
    assert claim(files, known(1, may_expand=True), larger).notes == (
        "ledger directory is added. path=/l2",
    )
    assert claim(files, known(2), larger).cookies == ()
    files.create("/j2/0000000000000001.txn").close()
    larger = replace(larger, journal_directories=("/j0", "/j1", "/j2"))
    assert "give an empty one" in str(refusal(files, known(3, may_expand=True), larger))


def test_a_complete_set_that_moved_starts_and_says_so() -> None:
    files = started()
    before = own_ids(files)
    put_back(files, files, "/l1", "/elsewhere")
    moved = replace(ALL, ledger_directories=("/l0", "/elsewhere"))

    plan = claim(files, known(1), moved)

    assert plan.notes == ("ledger directory has moved. from=/l1 to=/elsewhere",)
    assert own_ids(files, moved.directories) == before
    assert read_cookie(files, "/j0").directories.ledgers[1].path == "/elsewhere"


@pytest.mark.parametrize("old_paths", [("/l1",), ("/j0",), ALL.directories])
@pytest.mark.conformance("S5")
def test_an_old_copy_of_a_disk_is_refused(old_paths: tuple[str, ...]) -> None:
    files = started(3)
    old = files.copy()
    claim(files, known(3))
    claim(files, known(4))
    for path in old_paths:
        put_back(files, old, path, path)

    error = refusal(files, known(5))

    assert error.path == old_paths[0]
    assert "it has seen 3 starts of this bookie, of 5" in str(error)
    # and being lost is no excuse: what it holds would be taken for the newest
    assert "old copy" in str(refusal(files, known(5, may_replace=True)))


def test_metadata_older_than_the_disks_is_said_and_counted_past() -> None:
    files = started(9)

    plan = claim(files, known(3))

    assert (plan.start.number, plan.is_metadata_older) == (10, True)
    assert "the metadata is older than the disks" in plan.notes[0]
    # Metadata without this bookie at all is as old as can be.
    assert claim(files, NEW).is_metadata_older


@pytest.mark.parametrize("ahead", [0, 1])
def test_disks_level_with_the_metadata_or_one_ahead_are_what_a_crash_leaves(ahead: int) -> None:
    plan = claim(started(4), known(4 - ahead))

    assert (plan.start.number, plan.is_metadata_older) == (5 - ahead, False)


def test_a_start_that_another_process_counted_on_other_disks_is_no_start_of_ours() -> None:
    """The loser of two that start at once on empty directories, at its next start."""
    files = started()
    for path in ALL.directories:
        write_start(files, path, Start(1, "loser", ""))

    assert "other directories" in str(refusal(files, known(1)))


def test_a_copy_whose_start_was_counted_on_disk_only_is_refused_once_another_counted_it() -> None:
    files = started(3)
    copy = files.copy()
    for path in ALL.directories:
        write_start(copy, path, Start(4, "copy", "s3"))
    assert claim(copy.copy(), known(3)).start.number == 4
    claim(files, known(3))

    assert "other directories" in str(refusal(copy, known(4)))
    assert claim(files, known(4)).start.number == 5


def test_a_start_counted_on_disk_only_has_to_follow_the_one_that_the_metadata_knows() -> None:
    files = started(3)
    for path in ALL.directories:
        write_start(files, path, Start(4, "ours", "of others"))

    assert "other directories" in str(refusal(files, known(3)))


def test_disks_of_a_bookie_that_was_forgotten_stay_old_and_empty_ones_are_new() -> None:
    files = started(4)
    forgotten = replace(NEW, starts=5, is_forgotten=True)

    error = str(refusal(files, forgotten))
    assert "old copy" in error
    assert "was forgotten (`bookkeeper cookies delete`)" in error
    assert "bring the newest one back" not in error  # there is none
    assert claim(SimFileSystem(), forgotten).start.number == 6


def test_records_without_cookies_are_adopted_although_an_apache_bookie_had_the_id() -> None:
    files = started()
    for directory in ALL.directories:
        for name in ("cookie", "starts"):
            files.delete(f"{directory}/{name}")

    assert claim(files, replace(NEW, has_cookie=True)).start.number == 1


def test_a_full_disk_bricks_no_bookie_whose_metadata_is_older() -> None:
    """Each try counted further on one disk, until the other one was called an old copy."""
    files = started(5)
    for _ in range(4):
        files.fail_at = {files.steps + 4: errno.ENOSPC}
        with pytest.raises(OSError, match="injected"):
            claim(files, NEW)
    files.fail_at = {}

    assert claim(files, NEW).is_metadata_older


@pytest.mark.parametrize("name", ["index", "0000000000000001.log", "0000000000000001.txn"])
def test_whatever_of_a_bookie_is_in_a_directory_makes_it_no_empty_one(name: str) -> None:
    files = started(2)
    empty(files, "/l1")
    files.create(f"/l1/{name}").close()

    assert "has records" in str(refusal(files, known(2)))
    assert claim(files, known(2, may_replace=True)).doubtful == ("/l1",)


def test_what_is_found_under_the_locks_is_what_counts() -> None:
    """Another process may have run in between."""
    files = started(2)
    lock = files.lock

    def lock_late(path: str) -> File:
        if path == "/j0/lock":
            empty(files, "/l1")
        return lock(path)

    files.lock = lock_late  # type: ignore[method-assign]

    with pytest.raises(StorageRefusedError, match="lost or emptied"):
        claim(files, known(2))
    assert files.locked == set()
