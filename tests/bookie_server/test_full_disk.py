"""A bookie on a disk that fills and is freed again: it refuses what it cannot keep, and comes back."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.core.space import Disk, Mode
from bookie_server.settings import BookieSettings
from bookie_server.space.watch import SpaceWatch, look_at_disks
from bookie_server.storage.disk.files import File, FreeSpace
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.journal.journal_files import PREPARED
from bookie_server.storage.opening import open_storage
from bookie_server.wire.messages import ReadLacRequest, ReadRequest, Status
from bookie_server.wire.record import parse_run
from tests.doubles.records import KEY, section
from tests.doubles.storage import answer_new, running_bookie, small_settings
from tests.doubles.waits import until
from tests.patience import seconds

pytestmark = pytest.mark.slow


class FillingFiles(RealFileSystem):
    """A disk that says how much is free as it is told to, and has no room for entry logs if so."""

    def __init__(self) -> None:
        self.free_bytes = 1_000_000
        self.takes_logs = True

    def free_space(self, directory: str) -> FreeSpace:
        return FreeSpace(1, self.free_bytes)

    def create(self, path: str) -> File:
        file = super().create(path)
        if path.endswith(".log") and not self.takes_logs:
            file.close()
            raise OSError(errno.ENOSPC, "full", path)
        return file


def limited(place: Path) -> BookieSettings:
    return small_settings(
        place,
        journal_file_size_bytes=256 * 1024,
        reserve_for_fences_bytes=10_000,
        reserve_for_recovery_bytes=30_000,
        writable_margin_bytes=40_000,
        write_cache_size_bytes=4096,
        checkpoint_interval_ms=100,
    )


@asynccontextmanager
async def serving(
    place: Path,
) -> AsyncIterator[tuple[Bookie, FillingFiles, SpaceWatch, list[bool]]]:
    files, settings, said = FillingFiles(), limited(place), list[bool]()
    locks = lock_directories(files, settings.storage.directories)
    storage = open_storage(
        files, settings.storage, locks, instance_id=bytes(16), clock_ms=lambda: 1
    )
    bookie = Bookie(answer_new(storage), settings)
    watch = SpaceWatch(bookie, files, settings.storage, said.append)
    await bookie.start()
    try:
        yield bookie, files, watch, said
    finally:
        await bookie.stop()


async def add(bookie: Bookie, entry_id: int, *, is_recovery: bool = False) -> Status:
    answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
    asked = section([f"entry {entry_id}".encode()], entry_id)
    bookie.add(replace(asked, is_recovery=is_recovery), answer.set_result)
    async with asyncio.timeout(seconds(60)):
        return await answer


async def held(bookie: Bookie, last: int) -> list[int]:
    reply = await bookie.read(ReadRequest(ledger_id=7, first_entry=0, last_entry=last))
    return [entry_id for chunk in reply.chunks for entry_id in parse_run(chunk).entry_ids]


async def fence(bookie: Bookie) -> Status:
    return (await bookie.read_lac(ReadLacRequest(7, is_fencing=True, master_key=KEY))).status


@pytest.mark.conformance("S10")
async def test_a_bookie_follows_its_disk_both_ways_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bookie_server.space.watch")
    async with serving(tmp_path) as (bookie, files, watch, said):
        assert await watch.look() is Mode.WRITABLE
        assert await add(bookie, 0) is Status.OK

        files.free_bytes = 35_000
        for _ in range(3):
            assert await watch.look() is Mode.READ_ONLY
        assert await add(bookie, 1) is Status.READ_ONLY
        assert await add(bookie, 1, is_recovery=True) is Status.OK

        files.free_bytes = 9_000
        assert await watch.look() is Mode.FULL
        assert await add(bookie, 2, is_recovery=True) is Status.READ_ONLY
        assert await fence(bookie) is Status.OK

        files.free_bytes = 79_000
        assert await watch.look() is Mode.READ_ONLY
        files.free_bytes = 8_000_000
        assert await watch.look() is Mode.WRITABLE
        assert await add(bookie, 2, is_recovery=True) is Status.OK
        assert await held(bookie, 2) == [0, 1, 2]

    assert said == [False, True, True, True, True, True, False]
    changes = [record.getMessage() for record in caplog.records]
    assert [line.split()[2] for line in changes] == [
        "mode=READ_ONLY",
        "mode=FULL",
        "mode=READ_ONLY",
        "mode=WRITABLE",
    ]
    assert all(f"directory={tmp_path}" in line for line in changes)


async def test_a_burst_between_two_looks_does_not_overrun_the_reserve(tmp_path: Path) -> None:
    async with serving(tmp_path) as (bookie, files, watch, _):
        files.free_bytes = 200_000
        await watch.look()

        answers = [await add(bookie, entry_id) for entry_id in range(60)]

        assert set(answers) == {Status.OK, Status.READ_ONLY}
        files.free_bytes = 8_000_000
        await watch.look()
        assert await add(bookie, 60) is Status.OK


async def test_what_is_on_its_way_to_a_disk_counts_as_used(tmp_path: Path) -> None:
    """To the journal until it is durable, to an entry log until a checkpoint has written it."""
    payload, much = bytes(10_000), 1 << 40
    async with running_bookie(tmp_path) as bookie:
        answered = asyncio.Event()
        bookie.on_look(bookie.begin_look(), [Disk(much, True, True)])

        bookie.add(section([payload]), lambda _: answered.set())

        free_bytes, underway = bookie.space.free_bytes, bookie.begin_look()
        assert free_bytes is not None
        assert free_bytes <= much - 2 * len(payload)
        assert underway.unjournalled_bytes >= len(payload)
        assert underway.unlogged_bytes >= len(payload)
        await answered.wait()
        await bookie.wait_until_settled()
        durable = bookie.begin_look()
        assert durable.unjournalled_bytes == 0
        assert durable.unlogged_bytes >= len(payload)


async def test_a_checkpoint_without_room_costs_nothing_but_adds_until_there_is_some(
    tmp_path: Path,
) -> None:
    """It ended the bookie, and every start on the full disk after it."""
    async with serving(tmp_path) as (bookie, files, _, _):
        files.takes_logs = False
        stored = 0
        while await add(bookie, stored) is Status.OK:
            stored += 1

        # then it is full, and serves: reads, fences, and frames that need no room
        assert bookie.space.mode is Mode.FULL
        assert await held(bookie, stored - 1) == list(range(stored))
        async with asyncio.timeout(seconds(60)):
            await bookie.wait_for_room()
        assert await fence(bookie) is Status.OK
        assert not bookie.failed.done()

        # and goes on by itself
        files.takes_logs = True
        await until(lambda: bookie.space.mode is Mode.WRITABLE)
        assert await add(bookie, stored, is_recovery=True) is Status.OK
        assert await held(bookie, stored) == list(range(stored + 1))


async def test_a_bookie_stopped_without_room_has_everything_at_its_next_start(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (bookie, files, _, _):
        assert [await add(bookie, entry_id) for entry_id in range(3)] == [Status.OK] * 3
        # Not before: on a slow machine a checkpoint comes in between, and takes no more adds without room.
        files.takes_logs = False

    async with serving(tmp_path) as (bookie, _, _, _):
        assert await held(bookie, 2) == [0, 1, 2]


async def test_a_bookie_short_of_room_gives_back_what_only_makes_writing_faster(
    tmp_path: Path,
) -> None:
    """A journal file that was ready for later took the room that the bookie waited for, for ever."""
    async with serving(tmp_path) as (bookie, files, watch, _):
        prepared, entry_id = tmp_path / "j" / PREPARED, 0
        while not prepared.exists():
            assert await add(bookie, entry_id) is Status.OK
            entry_id += 1
        assert await watch.look() is Mode.WRITABLE
        assert prepared.exists()

        files.free_bytes = 35_000
        assert await watch.look() is not Mode.WRITABLE

        assert not prepared.exists()
        files.free_bytes = 1_000_000
        assert await watch.look() is Mode.WRITABLE
        assert await add(bookie, entry_id) is Status.OK
        assert not bookie.failed.done()


def test_directories_of_one_disk_are_one_disk(tmp_path: Path) -> None:
    for name in "jl":
        (tmp_path / name).mkdir()

    (disk,) = look_at_disks(RealFileSystem(), small_settings(tmp_path).storage)

    assert (disk.has_journals, disk.has_ledgers) == (True, True)
    assert disk.free_bytes > 0
