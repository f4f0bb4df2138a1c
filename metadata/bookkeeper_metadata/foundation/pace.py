"""When so many bytes may be moved next, for work that leaves others their share. Pure."""

from __future__ import annotations


class Pace:
    """So many bytes a second, whoever moves them; 0: as fast as can be. A pause gives no credit."""

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
