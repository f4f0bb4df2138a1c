"""What a journal records: entries as received, and the few changes to a ledger's handle state."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.wire.record import Run


@dataclass(frozen=True, slots=True)
class Add:
    """Entries of one ledger, their bytes exactly as received."""

    run: Run


@dataclass(frozen=True, slots=True)
class Replace:
    """Entries that are stored but cannot be read any more; these are their bytes from here on."""

    run: Run


@dataclass(frozen=True, slots=True)
class MasterKey:
    """The key bound to a ledger by its first add or fence."""

    ledger_id: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Fence:
    """From here on the ledger takes adds from recovering clients only."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class ExplicitLac:
    """A LAC sent without an entry; ``packet`` is as its writer signed it."""

    ledger_id: int
    packet: bytes


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The ledgers ``first_ledger..last_ledger`` are deleted; their ids are never used again."""

    first_ledger: int
    last_ledger: int


@dataclass(frozen=True, slots=True)
class Drop:
    """What was stored of a closed ledger is forgotten here, for others hold its copies; it is fenced.

    Unlike a deleted one it may come again: as a copy of what others have lost.
    """

    ledger_id: int


StateRecord = Replace | MasterKey | Fence | ExplicitLac | Drop
LedgerRecord = Add | StateRecord
"""What is about one ledger."""


def ledger_of(record: LedgerRecord) -> int:
    """The ledger that a record is about."""
    return record.run.ledger_id if isinstance(record, Add | Replace) else record.ledger_id


JournalRecord = LedgerRecord | Tombstone
