"""One suite for every FileSystem: the simulated disk behaves like the real one, but for crashes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.disk.files import ZEROS, FileSystem, split_buffers
from bookie_server.storage.disk.real_files import GIVEN_BACK_SIZE, RealFileSystem
from bookie_server.storage.identity.claim import lock_if_fit
from bookie_server.wire.buffer import Buffer
from tests.bookie_server.storage.claims import NEXT_ID, known
from tests.simulation.kit.files import SimFileSystem


@pytest.fixture(params=[RealFileSystem, SimFileSystem])
def files(request: pytest.FixtureRequest) -> FileSystem:
    made: FileSystem = request.param()
    return made


def test_a_lock_that_another_process_has_names_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first = RealFileSystem().lock(path)

    with pytest.raises(BlockingIOError, match=f"in use by another process: '{path}'"):
        RealFileSystem().lock(path)

    first.close()


def test_what_is_written_is_read_whatever_its_offset_and_shape(
    files: FileSystem, tmp_path: Path
) -> None:
    rng = Random(5)
    path = str(tmp_path / "file")
    file = files.create(path)
    expected = bytearray()
    for _ in range(60):
        offset = rng.choice((0, 4096, 8192, rng.randrange(20_000)))
        sizes = [rng.choice((0, 1, 100, 4096, 9000)) for _ in range(rng.choice((1, 2, 40)))]
        buffers: list[Buffer] = [memoryview(rng.randbytes(size + 1))[1:] for size in sizes]
        buffers.append(ZEROS[: rng.choice((0, 4096, 8192))])
        file.write_at(offset, buffers)
        content = b"".join(buffers)
        expected.extend(bytes(max(offset + len(content) - len(expected), 0)))
        expected[offset : offset + len(content)] = content
        assert file.read_at(0, len(expected) + 1) == expected
    file.sync()
    with files.open(path) as other:
        assert other.size() == len(expected)
        assert other.read_at(len(expected) - 3, 100) == expected[-3:]
        assert other.read_at(len(expected), 100) == b""
    file.close()
    file.close()


def test_more_buffers_than_one_system_call_takes_are_all_written(
    files: FileSystem, tmp_path: Path
) -> None:
    buffers: list[Buffer] = [bytes([number % 251]) * 7 for number in range(3000)]
    with files.create(str(tmp_path / "file")) as file:
        file.write_at(1, buffers)
        assert file.read_at(1, 21_000) == b"".join(buffers)


def test_names_are_created_once_renamed_over_and_deleted(files: FileSystem, tmp_path: Path) -> None:
    directory = str(tmp_path)
    files.create(f"{directory}/a").close()
    with pytest.raises(FileExistsError):
        files.create(f"{directory}/a")
    with files.create(f"{directory}/b") as fresh:
        fresh.write_at(0, [b"fresh"])

    files.rename(f"{directory}/b", f"{directory}/a")
    files.sync_dir(directory)

    assert files.names(directory) == ["a"]
    with files.open(f"{directory}/a") as file:
        assert file.read_at(0, 9) == b"fresh"
    files.delete(f"{directory}/a")
    with pytest.raises(FileNotFoundError):
        files.open(f"{directory}/a")


def test_a_lock_is_held_by_one_until_closed(files: FileSystem, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    held = files.lock(path)
    with pytest.raises(BlockingIOError):
        files.lock(path)
    held.close()
    files.lock(path).close()


def test_files_and_directories_are_their_owners_alone(tmp_path: Path) -> None:
    files = RealFileSystem()
    files.make_directory(str(tmp_path / "made"))
    files.create(str(tmp_path / "made/file")).close()

    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "made/file").stat().st_mode) == 0o600


def test_a_symbolic_link_is_never_followed(tmp_path: Path) -> None:
    files = RealFileSystem()
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")

    attempts: list[Callable[[str], object]] = [files.create, files.open, files.lock]
    for attempt in attempts:
        with pytest.raises(OSError, match="link"):
            attempt(str(tmp_path / "link"))
    assert (tmp_path / "target").read_bytes() == b"precious"


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a kernel that takes seven bytes at a time
    real = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda fd, buffers, offset: real(fd, [b"".join(buffers)[:7]], offset)
    )
    with RealFileSystem().create(str(tmp_path / "file")) as file:
        file.write_at(3, [b"0123456789", b"", b"abcdefghij"])
        assert file.read_at(3, 20) == b"0123456789abcdefghij"


def test_a_file_system_without_direct_writes_is_written_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a file system that refuses O_DIRECT, as tmpfs does
    real = os.open

    def refusing(path: str, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct I/O", path)
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", refusing)
    with RealFileSystem().create(str(tmp_path / "file")) as file:
        file.write_at(0, [ZEROS[:4096], b"tail"])
        assert file.read_at(4090, 100) == bytes(6) + b"tail"


@pytest.mark.parametrize("size", range(8))
def test_splitting_buffers_keeps_every_byte(size: int) -> None:
    first, rest = split_buffers([b"abc", b"", b"d", b"efg"], size)

    assert b"".join(first) == b"abcdefg"[:size]
    assert b"".join(rest) == b"abcdefg"[size:]


def test_the_parents_of_a_new_directory_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss must not take away a directory whose records were acknowledged."""
    synced: list[str] = []
    monkeypatch.setattr(RealFileSystem, "sync_dir", lambda _, path: synced.append(path))

    RealFileSystem().make_directory(str(tmp_path / "a" / "b" / "c"))
    assert synced == [str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path)]
    RealFileSystem().make_directory(str(tmp_path / "a" / "b" / "c"))
    assert len(synced) == 3


def test_a_refused_start_makes_neither_directories_nor_locks(tmp_path: Path) -> None:
    """Where a disk is not mounted, the directory would be made in its place."""
    journal, ledgers = str(tmp_path / "j"), str(tmp_path / "l")
    settings = StorageSettings(journal_directories=(journal,), ledger_directories=(ledgers,))

    with pytest.raises(StorageRefusedError):
        lock_if_fit(RealFileSystem(), settings, known(1), NEXT_ID)

    assert list(tmp_path.iterdir()) == []


def test_a_file_is_deleted_in_parts_and_has_no_name_from_the_first_one_on(tmp_path: Path) -> None:
    """64 MiB at once had every sync of the disk wait for 10 ms, and of 273 such logs for three seconds."""
    path, sizes = tmp_path / "log", []
    path.write_bytes(bytes(2 * GIVEN_BACK_SIZE + 1))
    with path.open("rb") as opened:

        def pause() -> None:
            assert not path.exists()
            sizes.append(os.fstat(opened.fileno()).st_size)

        RealFileSystem().delete_gently(str(path), pause)
    assert sizes == [2 * GIVEN_BACK_SIZE, GIVEN_BACK_SIZE]


def test_a_small_file_is_deleted_without_a_pause(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x")
    RealFileSystem().delete_gently(str(path), pytest.fail)
    assert not path.exists()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_file_that_somebody_keeps_by_another_name_stays_whole_there(tmp_path: Path) -> None:
    """A copy made with ``cp -al`` before an upgrade was cut to its first part."""
    path, kept = tmp_path / "log", tmp_path / "kept"
    path.write_bytes(bytes(3 * GIVEN_BACK_SIZE))
    kept.hardlink_to(path)
    RealFileSystem().delete_gently(str(path), pytest.fail)
    assert not path.exists()
    assert kept.stat().st_size == 3 * GIVEN_BACK_SIZE


def test_a_disk_that_gives_nothing_back_in_parts_is_left_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a courtesy: no bookie ends for it, and no descriptor stays."""

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "planted")

    path, before = tmp_path / "log", open_descriptors()
    path.write_bytes(bytes(2 * GIVEN_BACK_SIZE))
    monkeypatch.setattr(os, "ftruncate", fail)
    RealFileSystem().delete_gently(str(path), lambda: None)
    assert not path.exists()
    assert open_descriptors() == before


def test_a_file_that_cannot_be_opened_is_deleted_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EACCES, "not yours")

    path = tmp_path / "log"
    path.write_bytes(bytes(2 * GIVEN_BACK_SIZE))
    monkeypatch.setattr(os, "open", fail)
    RealFileSystem().delete_gently(str(path), pytest.fail)
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        RealFileSystem().delete_gently(str(path), pytest.fail)
