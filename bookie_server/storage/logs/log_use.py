"""How many ledgers have entries in each entry log of a directory; a log of none is dead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class LogUse:
    """For the thread that owns the directory's rows."""

    def __init__(self) -> None:
        self._ledgers_of_log: Counter[int] = Counter()
        self._unused: set[int] = set()

    def add(self, log_ids: Iterable[int]) -> None:
        """A ledger has rows in these logs, and had none in them before."""
        for log_id in log_ids:
            self._ledgers_of_log[log_id] += 1
            self._unused.discard(log_id)

    def remove(self, log_ids: Iterable[int]) -> None:
        """A ledger has rows in these logs no more."""
        for log_id in log_ids:
            if self._ledgers_of_log[log_id] > 1:
                self._ledgers_of_log[log_id] -= 1
            else:
                del self._ledgers_of_log[log_id]
                self._unused.add(log_id)

    def note(self, log_id: int) -> None:
        """There is such a log; if no row names it, it is unused."""
        if log_id not in self._ledgers_of_log:
            self._unused.add(log_id)

    def take_unused(self) -> tuple[int, ...]:
        """The unused logs, ascending; they are not told of again."""
        taken = tuple(sorted(self._unused))
        self._unused.clear()
        return taken
