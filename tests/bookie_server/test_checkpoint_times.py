"""When checkpoints are written: by age and size, and seldom where there is next to nothing to write."""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path

import pytest

from bookie_server.checkpoint_loop import is_due
from bookie_server.settings import BookieSettings
from bookie_server.wire.messages import Status
from tests.doubles.records import add, section
from tests.doubles.storage import running_bookie
from tests.doubles.waits import until

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
