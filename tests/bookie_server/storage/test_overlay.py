"""A start that writes nothing: the storage above an overlay knows everything, the disk stays as it is."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from bookie_server.core.records import Add, Fence
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.overlay import BLOCK_SIZE, OverlayFileSystem
from bookie_server.storage.disk.real_files import RealFileSystem
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.kit.storage_model import Model, open_small, run_of, started

PLENTY = 1 << 30


def written() -> Model:
    """A checkpoint, and a journal behind it."""
    model = started()
    model.write([Add(run_of(1, range(4), size=900))])
    model.checkpoint()
    model.write([Add(run_of(1, range(4, 30), size=900)), Fence(2)])
    model.write([Add(run_of(3, range(9), size=5000))])
    return model


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_start_above_an_overlay_knows_everything_and_changes_nothing(seed: int) -> None:
    model = written()
    files = model.files.crash(Random(seed), lambda rng: rng.choice(("keep", "drop")))
    before = {path: bytes(files.content(path)) for path in files.names_now}

    overlay = OverlayFileSystem(files, PLENTY)
    storage = open_small(overlay)
    model.check(storage, "above the overlay")
    storage.checkpoint_now()
    model.check(storage, "behind a checkpoint above the overlay")
    storage.close()
    overlay.close()

    assert {operation for operation, _ in files.log} <= {"sync", "sync_dir"}
    assert {path: bytes(files.content(path)) for path in files.names_now} == before
    # and the ordinary start finds what it would have found
    model.check(open_small(files), "on the disk")


def test_what_is_deleted_above_an_overlay_is_not_kept_open(tmp_path: Path) -> None:
    """A start that found thousands of unused logs came to the end of its descriptors."""
    overlay = OverlayFileSystem(RealFileSystem(), PLENTY)
    paths = [tmp_path / f"{number}.log" for number in range(9)]
    for path in paths:
        path.write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    for path in paths:
        overlay.delete(str(path))
    assert len(os.listdir("/proc/self/fd")) == before
    assert overlay.names(str(tmp_path)) == []
    assert all(path.exists() for path in paths)
    with pytest.raises(FileNotFoundError):
        overlay.delete(str(paths[0]))
    with pytest.raises(FileNotFoundError):
        overlay.delete(str(tmp_path / "never"))
    overlay.close()


def test_more_to_replay_than_memory_may_hold_ends_the_start() -> None:
    """Served in part, it would deny what it has."""
    model = written()

    with pytest.raises((StorageFailedError, OSError), match="more to replay than fits in memory"):
        open_small(OverlayFileSystem(model.files.after_kill(), BLOCK_SIZE))


@pytest.mark.parametrize("seed", range(20))
def test_a_file_above_reads_as_if_it_had_been_written_below(seed: int) -> None:
    rng, below, twin = Random(seed), SimFileSystem(), SimFileSystem()
    for files in (below, twin):
        with files.create("/d/f") as file:
            file.write_at(0, [bytes(range(256)) * 900])
    overlay = OverlayFileSystem(below, PLENTY)
    steps = below.steps
    with overlay.open("/d/f", writable=True) as above, twin.open("/d/f", writable=True) as plain:
        for _ in range(30):
            offset = rng.randrange(400_000)
            piece = rng.choice((bytes(rng.randrange(90_000)), rng.randbytes(rng.randrange(300))))
            if piece:
                above.write_at(offset, [piece])
                plain.write_at(offset, [piece])
            at, size = rng.randrange(500_000), rng.randrange(200_000)
            assert above.read_at(at, size) == plain.read_at(at, size)
            assert above.size() == plain.size()
    assert below.steps == steps


def test_every_file_below_is_closed_also_of_what_was_deleted(tmp_path: Path) -> None:
    """Each start on a full disk kept the descriptors of the one before."""
    below = RealFileSystem()
    for name in ("a", "b", "c"):
        below.create(f"{tmp_path}/{name}").close()
    before = len(os.listdir("/proc/self/fd"))
    files = OverlayFileSystem(below, PLENTY)
    files.open(f"{tmp_path}/a", writable=True).close()
    files.delete(f"{tmp_path}/b")
    files.rename(f"{tmp_path}/c", f"{tmp_path}/e")
    assert len(os.listdir("/proc/self/fd")) == before + 2

    files.close()

    assert len(os.listdir("/proc/self/fd")) == before


def test_names_follow_what_was_done_to_them() -> None:
    below = SimFileSystem()
    for name in ("a", "b"):
        below.create(f"/d/{name}").write_at(0, [name.encode()])
    files = OverlayFileSystem(below, PLENTY)

    files.delete("/d/a")
    files.rename("/d/b", "/d/c")
    files.create("/d/e")

    assert files.names("/d") == ["c", "e"]
    assert files.open("/d/c").read_at(0, 9) == b"b"
    for missing in ("/d/a", "/d/b"):
        with pytest.raises(FileNotFoundError):
            files.open(missing)
    with pytest.raises(FileExistsError):
        files.create("/d/c")
    assert below.names("/d") == ["a", "b"]
