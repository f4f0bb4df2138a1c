"""What a bookie knows of a ledger besides its entries."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper_metadata.model import NO_ENTRY_ID

UNASSIGNED = -1


@dataclass(slots=True)
class LedgerHandleState:
    """One ledger's state on this bookie; changed on the loop thread only, and no more once a
    checkpoint has it: ``Contents`` then goes on with a copy."""

    master_key: bytes | None = None
    """``None`` until the first add or fence binds one."""
    is_fenced: bool = False
    is_limbo: bool = False
    """Records of this ledger may have been lost, a fence among them: the bookie must neither answer
    that it lacks one nor take its writer's adds."""
    is_dropped: bool = False
    """The copy here was one too many, and was dropped, or its limbo ended while others were to hold a part of it. What is absent
    may well exist: nothing is denied, for metadata that is restored from a backup may name this bookie again."""
    explicit_lac: bytes | None = None
    """The latest explicit LAC packet, as its writer signed it."""
    last_add_confirmed: int = NO_ENTRY_ID
    """Highest LAC seen in entries and packets: a hint for readers."""
    journal_index: int = UNASSIGNED
    directory_index: int = UNASSIGNED
    """The directory of its entry logs, assigned at its first entry."""
