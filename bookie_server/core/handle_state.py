"""What a bookie knows of a ledger besides its entries."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper_metadata.model import NO_ENTRY_ID

UNASSIGNED = -1


@dataclass(slots=True)
class LedgerHandleState:
    """One ledger's state on this bookie; changed on the loop thread only."""

    master_key: bytes | None = None
    """``None`` until an add or a fence bound one."""
    is_fenced: bool = False
    is_limbo: bool = False
    """Something of this ledger may have been lost: its absences and its last entry are unknown."""
    explicit_lac: bytes | None = None
    """The last explicit LAC packet as its client signed it."""
    last_add_confirmed: int = NO_ENTRY_ID
    """Highest LAC seen in entries and packets: a hint for readers."""
    journal_index: int = UNASSIGNED
    directory_index: int = UNASSIGNED
    """Where its entry logs are; assigned by its first checkpoint with entries."""
