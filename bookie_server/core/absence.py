"""What a bookie may say about entries it does not return.

``NO_ENTRY`` and ``NO_LEDGER`` are made here and nowhere else: one of them where it is not true
truncates a ledger (Apache #2908, #2612). A ledger in limbo or dropped, a storage whose damage has not been
assigned to ledgers yet, a ledger that was deleted, and a copy that cannot be read are all UNKNOWN.
"""

from __future__ import annotations

from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.presence import Presence
from bookie_server.wire.messages import Status
from bookkeeper_metadata.foundation.invariant import invariant


def status_of_absence(
    handle: LedgerHandleState | None, *, is_storage_damaged: bool, is_deleted: bool = False
) -> Status:
    """The answer for an entry that this bookie does not store."""
    may_have_lost = handle is not None and (handle.is_limbo or handle.is_dropped)
    if is_storage_damaged or is_deleted or may_have_lost:
        return Status.UNKNOWN
    return Status.NO_LEDGER if handle is None else Status.NO_ENTRY


def status_of(presence: Presence, absence: Status) -> Status:
    """The answer for asked ids that are not among the records returned."""
    invariant(presence is not Presence.FOUND, "what was found is returned, not reported")
    match presence:
        case Presence.ABSENT:
            return absence
        case Presence.NOT_REACHED:
            return Status.NOT_REACHED
        case Presence.DAMAGED | Presence.FOUND:
            return Status.UNKNOWN
