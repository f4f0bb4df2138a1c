"""Placement: in which journal and in which ledger directory the records of a ledger go.

Each ledger has one of either for good, the one with the fewest ledgers when it came.
"""

from __future__ import annotations

from bookie_server.core.handle_state import UNASSIGNED, LedgerHandleState


class Placement:
    """Of one bookie's ledgers; for the thread that owns their handle states."""

    def __init__(self, journal_count: int, directory_count: int) -> None:
        self._ledgers_of_journal = [0] * journal_count
        self._ledgers_of_directory = [0] * directory_count
        self._assigned: dict[int, int] = {}
        """The journal chosen for each ledger whose first record is not durable yet."""

    @property
    def journal_count(self) -> int:
        return len(self._ledgers_of_journal)

    def journal_of(self, ledger_id: int, handle: LedgerHandleState | None) -> int:
        """The ledger's journal; a ledger without one gets one."""
        if handle is not None and handle.journal_index != UNASSIGNED:
            return handle.journal_index
        # Chosen once, at the first record: admission relies on it that the groups of one ledger
        # become durable in the order of their tickets, which two journals would not promise.
        if ledger_id not in self._assigned:
            counts = self._ledgers_of_journal
            chosen = min(range(len(counts)), key=counts.__getitem__)
            counts[chosen] += 1
            self._assigned[ledger_id] = chosen
        return self._assigned[ledger_id]

    def settle_journal(self, ledger_id: int, handle: LedgerHandleState, journal_index: int) -> None:
        """Note in a handle state without a journal that a record of this one is durable."""
        handle.journal_index = journal_index
        # A ledger that got its journal from ``journal_of`` was
        # counted there; a replayed one was not.
        if self._assigned.pop(ledger_id, UNASSIGNED) == UNASSIGNED:
            self._ledgers_of_journal[journal_index] += 1

    def assign_directory(self, handle: LedgerHandleState) -> None:
        """Give a ledger a directory; at its first entry, so that a checkpoint need not look for
        those of thousands."""
        counts = self._ledgers_of_directory
        handle.directory_index = min(range(len(counts)), key=counts.__getitem__)
        counts[handle.directory_index] += 1

    def restore(self, handle: LedgerHandleState) -> None:
        """Count a ledger whose handle state was read from an index."""
        self._count(handle, 1)

    def forget(self, ledger_id: int, handle: LedgerHandleState | None) -> None:
        """Count a ledger no more: it was deleted."""
        journal = self._assigned.pop(ledger_id, UNASSIGNED)
        if journal != UNASSIGNED:
            self._ledgers_of_journal[journal] -= 1
        if handle is not None:
            self._count(handle, -1)

    def _count(self, handle: LedgerHandleState, by: int) -> None:
        if handle.directory_index != UNASSIGNED:
            self._ledgers_of_directory[handle.directory_index] += by
        if handle.journal_index != UNASSIGNED:
            self._ledgers_of_journal[handle.journal_index] += by
