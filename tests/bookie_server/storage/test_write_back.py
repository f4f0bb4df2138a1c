"""A failed write-back belongs to the group that wrote: the thread that prepares files takes no report of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from bookie_server.core.records import Add
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.real_files import DirectFile, RealFile, RealFileSystem
from tests.simulation.kit.storage_model import Model, open_small, run_of, started


def fill_ahead_with_an_error(model: Model) -> Callable[[], None]:
    """The preparing thread's next round, whose sync fails and so loses what the writer wrote before."""
    journal, files = model.storage.journals[0], model.files

    def run() -> None:
        # Two chunks of zeros lie ahead after each group, unless more of them are asked for.
        object.__setattr__(journal._place, "zero_chunk_bytes", 16 * 1024)
        begin = files.steps
        files.fail_at = dict.fromkeys(range(begin + 1, begin + 9), errno.EIO)
        # That thread hears of it and stops the bookie, but by then the group may be acknowledged.
        with suppress(StorageFailedError):
            journal.prepare()
        files.fail_at = {}
        assert files.log[-1] == ("sync", files.log[begin][1]), "it was the sync that failed"

    return run


@pytest.mark.parametrize("has_rolled", [False, True])
def test_an_error_that_the_preparing_thread_meets_is_reported_to_the_group_as_well(
    has_rolled: bool,
) -> None:
    """Both shared one open file: the zeros' sync took the report, and a lost group was acknowledged."""
    model = started(directories=1)
    model.write([Add(run_of(1, [0], size=100))])
    if has_rolled:
        for number in range(1, 6):
            model.write([Add(run_of(1, [number], size=15_000))])
    lost = Add(run_of(1, [9], size=100))

    # when the zeros are synced between the group's write and its own sync
    model.files.meanwhile = {model.files.steps + 1: fill_ahead_with_an_error(model)}
    with pytest.raises(StorageFailedError):
        model.write([lost])

    # then nobody was promised what no disk has
    assert not model.files.meanwhile, "the other thread ran"
    model.attempted_only([lost])
    model.check(open_small(model.files.crash(Random(1)), directories=1), "after EIO")


def test_a_file_opened_for_writing_again_bypasses_the_page_cache_like_the_first(
    tmp_path: Path,
) -> None:
    files, path = RealFileSystem(), str(tmp_path / "a")
    with files.create(path) as first, files.open(path, writable=True) as second:
        assert type(first) is type(second)
        assert isinstance(first, DirectFile) or type(first) is RealFile

        second.write_at(0, [b"x" * 4096, b"y"])
        second.sync()

        assert os.path.getsize(path) == 4097
        assert first.read_at(4095, 9) == b"xy"
