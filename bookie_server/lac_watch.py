"""LacWatch: who waits for a ledger's LAC, and when a waiter is released.

A waiter is released when the LAC this bookie knows exceeds the one it named, when the ledger is
fenced, deleted or in limbo (nothing will come, or nothing can be told), when its time is over and
when the bookie stops. It is told nothing: whoever waited looks at the facts again. Nothing here
reads entries or decides what an answer says. A waiter that is cancelled leaves no trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.ledger_ranges import LedgerRanges
from bookie_server.core.records import Add, JournalRecord, Tombstone

WAITERS_MAX = 10_000
"""Waiters of one bookie; one costs about a kilobyte. More are told to come again."""
WAIT_MS_MAX = 30_000
"""Longest wait, whatever was asked for: a caller that went away unnoticed costs no more."""


class KnownLedgers(Protocol):
    """What a bookie's storage knows of its ledgers."""

    ledgers: dict[int, LedgerHandleState]
    tombstones: LedgerRanges


class LacWatch:
    """All waiters of one bookie; use on its event loop."""

    def __init__(self, known: KnownLedgers, waiters_max: int = WAITERS_MAX) -> None:
        self._known = known
        self._waiters_max = waiters_max
        self._waiting: dict[int, dict[asyncio.Future[None], int]] = {}
        self._count = 0
        self._is_closed = False

    @property
    def waiter_count(self) -> int:
        """How many wait at the moment."""
        return self._count

    async def wait(self, ledger_id: int, previous_lac: int, timeout_ms: int) -> bool:
        """Wait for news of the ledger; ``False`` when too many wait already."""
        if self._is_due(ledger_id, previous_lac):
            return True
        if self._count >= self._waiters_max:
            return False
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiters = self._waiting.setdefault(ledger_id, {})
        waiters[future] = previous_lac
        self._count += 1
        timer = loop.call_later(min(timeout_ms, WAIT_MS_MAX) / 1000, _release, future)
        try:
            await future
        finally:
            timer.cancel()
            del waiters[future]
            self._count -= 1
            if not waiters and self._waiting.get(ledger_id) is waiters:
                del self._waiting[ledger_id]
        return True

    def on_applied(self, records: Iterable[JournalRecord]) -> None:
        """Storage took these over: release whom they concern."""
        if not self._waiting:
            return
        for record in records:
            match record:
                case Add(run):
                    self.look(run.ledger_id)
                case Tombstone(first_ledger, last_ledger):
                    for ledger_id in list(self._waiting):
                        if first_ledger <= ledger_id <= last_ledger:
                            self.look(ledger_id)
                case _:
                    self.look(record.ledger_id)

    def look(self, ledger_id: int) -> None:
        """Release those whose news has come."""
        for future, previous_lac in self._waiting.get(ledger_id, {}).items():
            if self._is_due(ledger_id, previous_lac):
                _release(future)

    def close(self) -> None:
        """Release everybody; nobody waits any more."""
        self._is_closed = True
        for waiters in self._waiting.values():
            for future in waiters:
                _release(future)

    def _is_due(self, ledger_id: int, previous_lac: int) -> bool:
        if self._is_closed or ledger_id in self._known.tombstones:
            return True
        handle = self._known.ledgers.get(ledger_id)
        return handle is not None and (
            handle.last_add_confirmed > previous_lac or handle.is_fenced or handle.is_limbo
        )


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
