"""LacWatch: which requests wait for a ledger's LAC, and when a waiter is released.

A waiter is released when the LAC this bookie knows exceeds the one it named, when the ledger is
fenced, deleted or in limbo (nothing will come, or nothing can be said), when its time is over and
when the bookie stops. It is not given a reason: the request looks at the ledger's state again.
Nothing here reads entries or decides what an answer says. A waiter that is cancelled leaves no trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.ledger_ranges import LedgerRanges
from bookie_server.core.records import Add, JournalRecord, Replace, Tombstone
from bookie_server.wire.limits import WAIT_MS_MAX
from bookkeeper_metadata.foundation.tasks import settle

WAITERS_MAX = 10_000
"""Waiters of one bookie; each costs about a kilobyte. Further ones are answered BUSY."""
_GONE_MAX = 16
"""Ones of a ledger that were cancelled may be remembered, and as many as wait, before they are looked for."""


class KnownLedgers(Protocol):
    """What a bookie's storage knows of its ledgers."""

    ledgers: dict[int, LedgerHandleState]
    tombstones: LedgerRanges


class _Waiters:
    """Those of one ledger, who names the least LAC first: each add looks at whom it releases, and not at all who wait."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        """Two who name the same LAC are told apart by them: futures have no order."""
        self.count = 0
        """Who wait, or are released and have not run yet; ones that were cancelled stand in the heap besides."""

    def join(self, previous_lac: int, future: asyncio.Future[None]) -> None:
        heappush(self._heap, (previous_lac, next(self._numbers), future))
        self.count += 1

    def leave(self) -> None:
        """One has run, and its future is done."""
        self.count -= 1
        if len(self._heap) > 2 * self.count + _GONE_MAX:
            self._heap = [each for each in self._heap if not each[-1].done()]
            heapify(self._heap)

    def release(self, lac: int) -> None:
        """Those who wait for a LAC this high."""
        while self._heap and self._heap[0][0] < lac:
            settle(heappop(self._heap)[-1], None)

    def release_all(self) -> None:
        for _, _, future in self._heap:
            settle(future, None)
        self._heap.clear()


class LacWatch:
    """All waiters of one bookie; use on its event loop."""

    def __init__(self, known: KnownLedgers, waiters_max: int = WAITERS_MAX) -> None:
        self._known = known
        self._waiters_max = waiters_max
        self._waiting: dict[int, _Waiters] = {}
        self.waiter_count = 0
        """The requests waiting now."""
        self._is_closed = False

    async def wait(self, ledger_id: int, previous_lac: int, timeout_ms: int) -> bool:
        """Wait for news of the ledger; ``False`` at once when too many requests wait already."""
        if self._is_due(ledger_id, previous_lac):
            return True
        if self.waiter_count >= self._waiters_max:
            return False
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiters = self._waiting.setdefault(ledger_id, _Waiters())
        waiters.join(previous_lac, future)
        self.waiter_count += 1
        timer = loop.call_later(min(timeout_ms, WAIT_MS_MAX) / 1000, settle, future, None)
        try:
            await future
        finally:
            timer.cancel()
            waiters.leave()
            self.waiter_count -= 1
            if not waiters.count:
                del self._waiting[ledger_id]
        return True

    def on_applied(self, records: Iterable[JournalRecord]) -> None:
        """Release the waiters that these records, just applied to storage, concern."""
        # Every group comes by here, and mostly nobody waits.
        if not self._waiting:
            return
        for record in records:
            match record:
                case Add(run) | Replace(run):
                    self.look(run.ledger_id)
                case Tombstone(first_ledger, last_ledger):
                    # A tombstone may name millions of ledgers, so those
                    # that somebody waits for are gone through.
                    for ledger_id in list(self._waiting):
                        if first_ledger <= ledger_id <= last_ledger:
                            self.look(ledger_id)
                case _:
                    self.look(record.ledger_id)

    def look(self, ledger_id: int) -> None:
        """Release the ledger's waiters whose condition holds now."""
        waiters = self._waiting.get(ledger_id)
        if waiters is None:
            return
        if self._is_over(ledger_id):
            waiters.release_all()
        elif (handle := self._known.ledgers.get(ledger_id)) is not None:
            waiters.release(handle.last_add_confirmed)

    def close(self) -> None:
        """Release all waiters; later calls of ``wait`` return at once."""
        self._is_closed = True
        for waiters in self._waiting.values():
            waiters.release_all()

    def _is_due(self, ledger_id: int, previous_lac: int) -> bool:
        handle = self._known.ledgers.get(ledger_id)
        return self._is_over(ledger_id) or (
            handle is not None and handle.last_add_confirmed > previous_lac
        )

    def _is_over(self, ledger_id: int) -> bool:
        """Whether nobody waits for it any longer, whatever LAC they name."""
        if self._is_closed or ledger_id in self._known.tombstones:
            return True
        handle = self._known.ledgers.get(ledger_id)
        return handle is not None and (handle.is_fenced or handle.is_limbo)
