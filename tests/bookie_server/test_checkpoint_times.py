"""When checkpoints are written: by age and size, and seldom where there is next to nothing to write."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bookie_server import checkpoint_loop
from bookie_server.bookie import Bookie
from bookie_server.checkpoint_loop import is_due, may_rest
from bookie_server.settings import BookieSettings
from bookie_server.storage.checkpoint import CheckpointResult
from bookie_server.wire.messages import Status
from tests.doubles.records import add, section
from tests.doubles.storage import running_bookie
from tests.doubles.waits import until
from tests.patience import seconds

KIB = 1024
SETTINGS = BookieSettings(checkpoint_interval_ms=10_000, write_cache_size_bytes=64 * KIB * KIB)
LITTLE, MUCH, FULL = 1_000, 2 * KIB * KIB, 64 * KIB * KIB


@pytest.mark.parametrize(
    ("cached_bytes", "journal_bytes", "after_s"),
    [
        (LITTLE, 4 * KIB, 60),
        (0, 0, 60),
        (MUCH, 4 * KIB, 10),
        (LITTLE, 17 * KIB * KIB, 10),
        (LITTLE, None, 10),
        (FULL, 0, 0),
    ],
    ids=["little", "nothing", "enough", "a long journal", "journal unknown", "cache full"],
)
def test_a_checkpoint_of_little_waits(
    cached_bytes: int, journal_bytes: int | None, after_s: int
) -> None:
    def due(since_s: float) -> bool:
        return is_due(SETTINGS, since_s, cached_bytes, journal_bytes)

    assert due(after_s)
    assert after_s == 0 or not due(after_s - 0.1)


async def test_a_trickle_of_entries_has_few_checkpoints(tmp_path: Path) -> None:
    now = asyncio.get_running_loop().time
    async with running_bookie(tmp_path, checkpoint_interval_ms=200) as bookie:
        contents = bookie.storage.contents
        began = now()
        assert await add(bookie, section([b"x"], 0)) is Status.OK
        # The first one comes soon: before it, what a start would replay is not known.
        await until(lambda: not contents.cached_bytes)
        assert await add(bookie, section([b"x"], 1, length_before=1)) is Status.OK
        await until(lambda: not contents.cached_bytes)
        assert now() - began > 6 * 0.2
        large = [bytes(KIB * KIB)] * 2
        assert await add(bookie, section(large, 2, length_before=2)) is Status.OK
        await until(lambda: not contents.cached_bytes)


async def test_a_checkpoint_leaves_nothing_of_what_it_wrote_in_memory(tmp_path: Path) -> None:
    """All of it stayed until the next one was due: a second cache in memory."""
    sizes = {"write_cache_size_bytes": MUCH, "checkpoint_interval_ms": 3_600_000}
    async with running_bookie(tmp_path, **sizes) as bookie:
        contents = bookie.storage.contents
        cache = weakref.ref(contents._cache)

        assert await add(bookie, section([bytes(MUCH)])) is Status.OK

        await until(lambda: not contents.cached_bytes)
        await until(lambda: cache() is None)


@asynccontextmanager
async def told_bookie(place: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bookie]:
    """A bookie that writes a checkpoint of ``MUCH`` if it is told of it, and does not look by itself."""
    monkeypatch.setattr(checkpoint_loop, "_LOOK_S", 3_600.0)
    sizes = {"write_cache_size_bytes": MUCH, "checkpoint_interval_ms": 3_600_000}
    async with running_bookie(place, **sizes) as bookie:
        yield bookie


async def test_a_full_cache_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fast writer filled the room beside it before anybody looked, and every writer waited for the checkpoint."""
    async with told_bookie(tmp_path, monkeypatch) as bookie:
        for number in range(3):
            large = section([bytes(MUCH)], number, length_before=number * MUCH)
            assert await add(bookie, large) is Status.OK
            await until(lambda: not bookie.storage.contents.cached_bytes)


async def test_a_cache_that_fills_while_a_checkpoint_is_written_is_written_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody woke the loop again: it had not begun to wait."""
    async with told_bookie(tmp_path, monkeypatch) as bookie:
        contents, write = bookie.storage.contents, bookie.storage.checkpoints.write
        may_go_on = threading.Event()

        def slow(*given: Any) -> CheckpointResult:
            may_go_on.wait(seconds(60))
            return write(*given)

        monkeypatch.setattr(bookie.storage.checkpoints, "write", slow)
        assert await add(bookie, section([bytes(MUCH)], 0)) is Status.OK
        await until(lambda: contents.is_checkpointing)
        assert await add(bookie, section([bytes(MUCH)], 1, length_before=MUCH)) is Status.OK
        may_go_on.set()
        await until(lambda: not contents.cached_bytes)


@pytest.mark.parametrize(
    ("written_share", "filled_share", "rests"),
    [
        (0.1, 0.0, True),
        (0.1, 0.04, True),
        (0.1, 0.06, False),
        (1.0, 0.4, True),
        (1.0, 0.5, False),
        (0.0, 0.0, False),
    ],
)
def test_a_checkpoint_rests_as_long_as_it_will_be_over_before_the_cache_is_half_full(
    written_share: float, filled_share: float, rests: bool
) -> None:
    assert may_rest(written_share, filled_share) is rests


@asynccontextmanager
async def resting_bookie(
    place: Path, monkeypatch: pytest.MonkeyPatch, cache_mib: int
) -> AsyncIterator[Bookie]:
    """A bookie that holds six MiB in its cache, and would rest for an hour behind each of them."""
    monkeypatch.setattr(checkpoint_loop, "_RESTS", 1e9)
    monkeypatch.setattr(checkpoint_loop, "_REST_S_MAX", 3_600.0)
    cache_bytes = cache_mib * KIB * KIB
    async with running_bookie(
        place, checkpoint_interval_ms=3_600_000, write_cache_size_bytes=cache_bytes
    ) as bookie:
        for number in range(3):
            pieces = section(
                [bytes(KIB * KIB)] * 2, 2 * number, length_before=2 * number * KIB * KIB
            )
            assert await add(bookie, pieces) is Status.OK
        yield bookie


async def test_a_checkpoint_rests_between_its_writes_and_not_when_the_cache_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with resting_bookie(tmp_path, monkeypatch, cache_mib=6) as bookie:
        contents = bookie.storage.contents
        await until(lambda: contents.is_checkpointing)
        await asyncio.sleep(0.1)
        assert contents.is_checkpointing, "it rests for an hour"
        # What comes now would soon have to wait for its end.
        late = section([bytes(KIB * KIB)] * 4, 6, length_before=6 * KIB * KIB)
        assert await add(bookie, late) is Status.OK
        await until(lambda: not contents.is_checkpointing)


async def test_a_checkpoint_whose_entries_filled_the_cache_before_it_began_does_not_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could come while it wrote, so nothing hurried it: every writer waited, and it rested."""
    monkeypatch.setattr(checkpoint_loop, "_RESTS", 1e9)
    monkeypatch.setattr(checkpoint_loop, "_REST_S_MAX", 3_600.0)
    settings = {"checkpoint_interval_ms": 3_600_000, "write_cache_size_bytes": 2 * KIB * KIB}
    async with running_bookie(tmp_path, **settings) as bookie:
        burst = section([bytes(KIB * KIB)] * 6)
        assert await add(bookie, burst) is Status.OK
        assert not bookie.has_room
        async with asyncio.timeout(seconds(20)):
            await bookie.wait_for_room()


async def test_a_checkpoint_hurries_where_a_disk_is_short_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end gives journals back; and no adds come that would hurry it."""
    async with resting_bookie(tmp_path, monkeypatch, cache_mib=6) as bookie:
        await until(lambda: bookie.storage.contents.is_checkpointing)
        bookie.set_readonly_by_hand(True)
        await until(lambda: not bookie.storage.contents.is_checkpointing)


async def test_a_bookie_that_stops_waits_for_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(seconds(20)):
        async with resting_bookie(tmp_path, monkeypatch, cache_mib=6) as bookie:
            await until(lambda: bookie.storage.contents.is_checkpointing)
    async with running_bookie(tmp_path) as bookie:
        assert bookie.storage.contents.last_entry(7) == 5
