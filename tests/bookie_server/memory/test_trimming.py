"""Memory that the C library keeps is given back once it is more than a bookie's settings promise."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from pathlib import Path

import pytest

from bookie_server.memory import trimming as trimming_module
from bookie_server.memory.trimming import (
    GROWTH_BYTES,
    Trimming,
    ordinary_bytes,
    trim_memory,
    trimmer,
)
from bookkeeper_metadata.foundation.tasks import end_tasks
from tests.doubles.storage import small_settings
from tests.patience import seconds

MIB = 1024 * 1024
KEEPS = """
import ctypes
from bookie_server.memory.trimming import resident_bytes, trimmer
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
# Small ones between large ones: what is free is not at the end, and stays.
taken = [libc.malloc(size) for _ in range(1_000) for size in (100_000, 2_000)]
for place in taken:
    ctypes.memset(place, 1, 64)
for place in taken[::2]:
    ctypes.memset(place, 1, 100_000)
    libc.free(place)
before = resident_bytes()
trimmer()()
print(before - resident_bytes())
"""


def test_nothing_is_trimmed_up_to_what_the_settings_promise() -> None:
    trimming = Trimming(300 * MIB)

    assert not trimming.is_due(300 * MIB)
    assert trimming.is_due(300 * MIB + 1)


def test_what_is_in_use_is_not_trimmed_again_and_again() -> None:
    trimming = Trimming(300 * MIB)
    trimming.trimmed(400 * MIB)

    assert not trimming.is_due(400 * MIB + GROWTH_BYTES)
    assert trimming.is_due(401 * MIB + GROWTH_BYTES)

    # It shrank by itself meanwhile.
    assert not trimming.is_due(350 * MIB)
    assert trimming.is_due(351 * MIB + GROWTH_BYTES)


def test_a_larger_cache_is_ordinary(tmp_path: Path) -> None:
    small = small_settings(tmp_path, write_cache_size_bytes=MIB)
    large = small_settings(tmp_path, write_cache_size_bytes=101 * MIB)

    assert ordinary_bytes(large) - ordinary_bytes(small) == 200 * MIB


@pytest.mark.skipif(trimmer() is None, reason="needs glibc and /proc")
def test_free_memory_goes_back_to_the_system() -> None:
    command = [sys.executable, "-c", KEEPS]
    given_back = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert given_back > 50 * MIB


async def test_a_bookie_that_is_out_of_descriptors_for_a_while_is_trimmed_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first look that failed was the last one, and nobody was told."""
    looks, is_trimmed = 0, asyncio.Event()
    loop = asyncio.get_running_loop()

    def resident_bytes() -> int:
        nonlocal looks
        looks += 1
        if looks <= 3:
            raise OSError(errno.EMFILE, "too many open files")
        return 1 << 40

    def trim() -> None:
        loop.call_soon_threadsafe(is_trimmed.set)

    monkeypatch.setattr(trimming_module, "LOOK_S", 0)
    monkeypatch.setattr(trimming_module, "resident_bytes", resident_bytes)
    monkeypatch.setattr(trimming_module, "trimmer", lambda: trim)
    keeping = asyncio.create_task(trim_memory(small_settings(tmp_path)))
    try:
        async with asyncio.timeout(seconds(5)):
            await is_trimmed.wait()
    finally:
        await end_tasks([keeping])

    assert caplog.text.count("memory cannot be trimmed") == 1
