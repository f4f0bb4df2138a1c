"""Memory that the C library keeps is given back once it is more than a bookie's settings promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bookie_server.memory.trimming import GROWTH_BYTES, Trimming, ordinary_bytes, trimmer
from tests.doubles.storage import small_settings

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
