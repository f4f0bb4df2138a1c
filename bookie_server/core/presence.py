"""What storage can say about an entry that was asked for."""

from __future__ import annotations

from enum import Enum, unique


@unique
class Presence(Enum):
    """What storage can say about an asked id."""

    FOUND = "found"
    ABSENT = "absent"
    """Surely stored nowhere here; evidence only if the ledger is not in limbo."""
    NOT_REACHED = "not_reached"
    DAMAGED = "damaged"
    """Stored here, but unreadable now."""
