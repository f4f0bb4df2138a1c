"""When so many bytes may be moved next, for work that leaves others their share."""

from __future__ import annotations

import asyncio


class Pace:
    """So many bytes a second, whoever moves them; 0: as fast as can be. A pause gives no credit. Pure."""

    def __init__(self, bytes_per_second: int, now_s: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._free_s = now_s
        """When what was begun so far has had its time."""

    def delay_s(self, size_bytes: int, now_s: float) -> float:
        """How long to wait before so much is begun; it counts as begun then."""
        if not self._bytes_per_second:
            return 0.0
        begin_s = max(self._free_s, now_s)
        self._free_s = begin_s + size_bytes / self._bytes_per_second
        return begin_s - now_s


class LoopPace:
    """One pace of all tasks of an event loop."""

    def __init__(self, bytes_per_second: int) -> None:
        self._schedule = Pace(bytes_per_second, 0.0)
        self.begun_bytes = 0
        """In all."""

    async def take(self, size_bytes: int) -> None:
        """Wait until what was begun before has had its time; then so much may be begun. Others run at least once."""
        self.begun_bytes += size_bytes
        await asyncio.sleep(self._schedule.delay_s(size_bytes, asyncio.get_running_loop().time()))
