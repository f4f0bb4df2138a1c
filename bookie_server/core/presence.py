"""What storage knows about an entry that was asked for."""

from __future__ import annotations

from enum import Enum, unique


@unique
class Presence(Enum):
    """What storage knows about an asked id."""

    FOUND = "found"
    ABSENT = "absent"
    """Not stored on this bookie; proves something only if the ledger is not in limbo."""
    NOT_REACHED = "not_reached"
    """Not looked for: the byte limit of the read was used up before."""
    DAMAGED = "damaged"
    """Stored here, but unreadable now."""
