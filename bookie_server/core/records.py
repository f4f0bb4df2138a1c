"""What must be durable before it is answered: entries as received, and the few facts beside them."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.wire.record import Run


@dataclass(frozen=True, slots=True)
class Add:
    """Entries of one ledger, their bytes exactly as received."""

    run: Run


@dataclass(frozen=True, slots=True)
class MasterKey:
    """The key bound to a ledger by its first add or fence."""

    ledger_id: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Fence:
    """The ledger takes no more adds from its writer."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class ExplicitLac:
    """A LAC sent on its own; ``packet`` is the client's, digest included."""

    ledger_id: int
    packet: bytes


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The ledgers ``first_ledger..last_ledger`` are deleted for ever."""

    first_ledger: int
    last_ledger: int


JournalRecord = Add | MasterKey | Fence | ExplicitLac | Tombstone
