"""What a simulated bookie's disk keeps when its process dies, and when its machine does."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.simulation.kit.files import SimFileSystem


def test_a_killed_process_leaves_what_it_wrote() -> None:
    files = SimFileSystem()
    files.create("/d/a").write_at(0, [b"written"])

    after = files.after_kill()

    assert after.open("/d/a").read_at(0, 10) == b"written"


def test_what_was_not_synced_before_a_kill_is_still_lost_with_the_power() -> None:
    files = SimFileSystem()
    file = files.create("/d/a")
    file.write_at(0, [b"synced."])
    file.sync()
    files.sync_dir("/d")
    file.write_at(0, [b"written"])

    after = files.after_kill().crash(Random(1), lambda _: "drop")

    assert after.open("/d/a").read_at(0, 10) == b"synced."


def test_a_killed_process_holds_no_lock() -> None:
    files = SimFileSystem()
    files.lock("/d/lock")

    files.after_kill().lock("/d/lock")


def test_faults_set_for_one_process_do_not_strike_the_next() -> None:
    files = SimFileSystem()
    files.crash_at = 0

    files.after_kill().create("/d/a")


def test_a_failed_write_back_is_reported_once_to_each_opening_of_the_file() -> None:
    """Linux's ``errseq_t``: who shares a file's opening shares the one report as well."""
    files = SimFileSystem()
    writer = files.create("/d/a")
    other = files.open("/d/a", writable=True)
    writer.write_at(0, [b"written"])
    files.fail_at = {files.steps: errno.EIO}

    with pytest.raises(OSError, match="injected"):
        other.sync()
    other.sync()
    with pytest.raises(OSError, match="earlier"):
        writer.sync()
    writer.sync()

    files.sync_dir("/d")
    assert files.crash(Random(1), lambda _: "keep").open("/d/a").read_at(0, 10) == bytes(7)
