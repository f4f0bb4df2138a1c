"""Trimming: have the C library give back the memory that it keeps for whoever asks next.

glibc keeps what is freed, the more of it the larger the pieces were: of a bookie that hundreds of clients had sent
frames of 8 MiB, 440 MiB stayed where 160 were in use. Its settings that keep less make every large frame cost fresh
pages, which halved the rate of large adds (docs/performance.md). So nothing is changed while a bookie stays within
what its settings promise, and beyond that the free pages are given back, by a thread, as often as it grows.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bookie_server.settings import BookieSettings

_MIB = 1024 * 1024
IDLE_BYTES = 64 * _MIB
"""Of Python, gRPC and libraries, about."""
SLACK_BYTES = 64 * _MIB
"""What gRPC holds for a hundred streams, and what the allocator may keep without being asked."""
GROWTH_BYTES = 8 * _MIB
"""So much more than after the last trimming is worth the next one, which takes milliseconds."""
LOOK_S = 0.1
_STATM = Path("/proc/self/statm")
_LOGGER = logging.getLogger(__name__)


def ordinary_bytes(settings: BookieSettings) -> int:
    """The resident memory up to which nothing is trimmed."""
    return (
        IDLE_BYTES
        + settings.cached_bytes_max
        + settings.adds_in_progress_bytes_max
        + settings.reads_in_progress_bytes_max
        + SLACK_BYTES
    )


def resident_bytes() -> int:
    """This process's resident memory, from ``/proc``."""
    pages = int(_STATM.read_bytes().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def trimmer() -> Callable[[], object] | None:
    """What gives free pages back; ``None`` where the C library (any but glibc) or the system cannot."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return partial(trim, 0) if _STATM.exists() else None


class Trimming:
    """Decides when: pure but for what it is given."""

    def __init__(self, ordinary: int) -> None:
        self._ordinary = ordinary
        self._left = 0
        """What was resident after the last trimming."""

    def is_due(self, resident: int) -> bool:
        """Whether so much resident memory is worth a trimming now."""
        # A bookie that shrank by itself may grow to where it was before it is looked at again.
        self._left = min(self._left, resident)
        return resident > max(self._ordinary, self._left + GROWTH_BYTES)

    def trimmed(self, resident: int) -> None:
        """Note what is left after one."""
        self._left = resident


async def trim_memory(settings: BookieSettings) -> None:
    """Trim whenever it is due, until cancelled; ends at once where it cannot be done."""
    trim = trimmer()
    if trim is None:
        return
    trimming = Trimming(ordinary_bytes(settings))
    is_failing = False
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            if trimming.is_due(resident_bytes()):
                # Beside the loop: ctypes lets other threads run meanwhile.
                await asyncio.to_thread(trim)
                trimming.trimmed(resident_bytes())
        except (OSError, RuntimeError) as error:
            # No descriptor or no thread is left, as under the clients that make it grow: that passes.
            if not is_failing:
                _LOGGER.warning("memory cannot be trimmed now. detail=%s", error)
            is_failing = True
        else:
            is_failing = False
