"""A directory whose records were kept without a cookie denies nothing, however sound it looks."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from bookie_server.core.records import Add, Fence, MasterKey
from bookie_server.storage.check.judgement import judge_directories
from bookie_server.storage.engine import Storage
from bookie_server.storage.identity import doubt
from bookie_server.storage.identity.doubt import is_doubtful, mark_doubtful
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash
from tests.simulation.kit.storage_model import (
    Model,
    open_small,
    read_all,
    run_of,
    settings,
    started,
)

DIRECTORIES = settings(2).directories
EACH = pytest.mark.parametrize("directory", DIRECTORIES)


@pytest.fixture(scope="module")
def history() -> tuple[SimFileSystem, Model]:
    """The disks at an earlier moment, and what they and their bookie are now."""
    model = started()
    for ledger_id in (1, 2):
        model.write([MasterKey(ledger_id, bytes(range(20))), Add(run_of(ledger_id, range(4)))])
    model.checkpoint()
    old = model.files.copy()
    for ledger_id in (1, 2):
        model.write([Add(run_of(ledger_id, range(4, 8)))])
    model.write([Fence(2)])
    return old, model


def denies_nothing(storage: Storage, model: Model) -> bool:
    """Whether every ledger is suspected, and what is read is what was written."""
    for ledger_id, expected in model.entries.items():
        for entry_id, content in read_all(storage, ledger_id).items():
            assert content == expected[entry_id]
    handles = storage.contents.ledgers
    return storage.contents.is_damaged and all(handles[each].is_limbo for each in model.entries)


@EACH
@pytest.mark.parametrize("is_old", [False, True])
def test_an_old_copy_that_is_kept_denies_nothing_and_shows_what_it_has(
    history: tuple[SimFileSystem, Model], directory: str, is_old: bool
) -> None:
    old, model = history
    files = model.files.copy()
    if is_old:
        files.put(directory, old, directory)
    mark_doubtful(files, directory)

    storage = open_small(files)

    assert denies_nothing(storage, model)
    assert any(directory == each.path for each in storage.recovery.damage)
    for ledger_id, expected in model.entries.items():
        assert len(read_all(storage, ledger_id)) >= (4 if is_old else len(expected))
    # The doubt is the storage's own from now on, until the metadata was asked.
    assert not is_doubtful(files, directory)
    storage.close()
    again = open_small(files)
    assert denies_nothing(again, model)
    again.contents.set_limbo(model.entries)
    again.checkpoint_now()
    again.close()
    storage = open_small(files)
    assert not storage.contents.is_damaged
    assert all(storage.contents.ledgers[each].is_limbo for each in model.entries)


@EACH
def test_a_crash_within_the_first_start_on_kept_records_takes_no_doubt_away(
    history: tuple[SimFileSystem, Model], directory: str
) -> None:
    _, model = history
    files = model.files.copy()
    mark_doubtful(files, directory)
    whole = files.copy()
    open_small(whole)
    for crash_at in range(whole.steps):
        image = files.copy()
        image.crash_at = image.steps + crash_at
        with suppress(SimulatedCrash):
            open_small(image)

        after = image.crash(Random(crash_at), lambda _: "keep")
        assert denies_nothing(open_small(after), model), f"crash_at={crash_at}"
        lost = image.crash(Random(crash_at), lambda _: "drop")
        assert denies_nothing(open_small(lost), model), f"crash_at={crash_at}"


@pytest.mark.parametrize("was_begun", [False, True])
def test_a_doubt_is_durable_as_soon_as_it_is_said(was_begun: bool) -> None:
    """The cookie behind it says that the directory is sound; a process killed before may have left the mark."""
    files = started().files
    if was_begun:
        files.create(f"{DIRECTORIES[1]}/{doubt._NAME}").close()

    mark_doubtful(files, DIRECTORIES[1])

    assert is_doubtful(files.crash(Random(0), lambda _: "drop"), DIRECTORIES[1])


def test_the_judgement_of_directories_says_that_records_are_doubtful(
    history: tuple[SimFileSystem, Model],
) -> None:
    files = history[1].files.copy()
    mark_doubtful(files, "/ledgers1")

    result = judge_directories(files, settings(2))

    assert [each for each in result.problems if "records are kept" in each]
    assert is_doubtful(files, "/ledgers1")
