"""What is asked and answered in Apache's protocol, as values that both versions share.

``NO_ENTRY_ID`` as the id of an entry to read means the last one. Source of what each means: Apache
``BookkeeperProtocol.proto``, ``BookieProtocol``.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.wire.buffer import Buffer

ADD_FLAG_RECOVERY = 1
"""Of a version 3 add: by recovery or re-replication, so a fence does not refuse it."""
WRITE_FLAG_DEFERRED_SYNC = 1
"""May be answered before it is durable; ``ForceLedger`` tells when it is."""
READ_FLAG_FENCE = 1
READ_FLAG_PIGGYBACK = 2
"""With ``previous_lac``: wait for an entry beyond it."""
INFO_TOTAL_BYTES, INFO_FREE_BYTES = 1, 2
"""Bits of what is asked of a disk."""
PRIORITY_HIGH = 100
"""What recovery's requests carry."""


@dataclass(frozen=True, slots=True)
class AddEntry:
    """One entry, header and digest included, but no length in front of it."""

    ledger_id: int
    entry_id: int
    master_key: Buffer
    body: Buffer
    write_flags: int | None = None
    flag: int | None = None

    @property
    def is_recovery(self) -> bool:
        return self.flag == ADD_FLAG_RECOVERY


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """Asks for one entry, fences, or waits for news of the LAC."""

    ledger_id: int
    entry_id: int
    master_key: Buffer | None = None
    previous_lac: int | None = None
    timeout_ms: int | None = None
    flag: int | None = None

    @property
    def is_fencing(self) -> bool:
        return self.flag == READ_FLAG_FENCE

    @property
    def is_long_poll(self) -> bool:
        return self.flag == READ_FLAG_PIGGYBACK and self.previous_lac is not None


@dataclass(frozen=True, slots=True)
class BatchRead:
    """Asks for consecutive entries; version 2 only. ``count_max`` 0: as many as ``size_bytes_max`` allows."""

    ledger_id: int
    first_entry: int
    number: int
    """Echoed."""
    count_max: int
    size_bytes_max: int
    master_key: Buffer | None = None
    is_fencing: bool = False


@dataclass(frozen=True, slots=True)
class WriteLac:
    """An explicit LAC; ``body`` is its packet."""

    ledger_id: int
    last_add_confirmed: int
    master_key: Buffer
    body: Buffer


@dataclass(frozen=True, slots=True)
class ReadLac:
    """Asks for the explicit LAC's packet and the last entry."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class ForceLedger:
    """Is answered when all that was added before is durable."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class ListEntries:
    """Asks which entries are stored."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class GetInfo:
    """Asks for what the bits of ``requested`` say."""

    requested: int | None = None


@dataclass(frozen=True, slots=True)
class Authenticate:
    """A plugin's message; also the answer."""

    plugin: Buffer
    payload: Buffer


@dataclass(frozen=True, slots=True)
class StartTls:
    """Both sides begin a handshake behind the answer; also the answer."""


Request = (
    AddEntry
    | ReadEntry
    | BatchRead
    | WriteLac
    | ReadLac
    | ForceLedger
    | ListEntries
    | GetInfo
    | Authenticate
    | StartTls
)


@dataclass(frozen=True, slots=True)
class AddReply:
    """Says which entry it is about."""

    ledger_id: int
    entry_id: int


@dataclass(frozen=True, slots=True)
class ReadReply:
    """``max_lac`` is the highest LAC known; the answer to a fencing read has none."""

    ledger_id: int
    entry_id: int
    body: Buffer | None = None
    max_lac: int | None = None
    lac_update_ms: int | None = None
    """When the LAC rose, in milliseconds since 1970: of long polls that waited."""


@dataclass(frozen=True, slots=True)
class BatchReply:
    """``body`` has a length in front of each entry: it is a run of our records."""

    ledger_id: int
    first_entry: int
    number: int
    body: Buffer = b""


@dataclass(frozen=True, slots=True)
class LedgerReply:
    """To ``WriteLac`` and ``ForceLedger``."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class LacReply:
    """What proves a LAC: an explicit one's packet, the highest entry stored."""

    ledger_id: int
    packet: Buffer | None = None
    last_entry: Buffer | None = None


@dataclass(frozen=True, slots=True)
class ListReply:
    """``entries`` as :mod:`bookie_server.wire.rpc.entry_list` has them."""

    ledger_id: int
    entries: Buffer | None = None


@dataclass(frozen=True, slots=True)
class InfoReply:
    """Of the disk with the ledgers."""

    total_bytes: int | None = None
    free_bytes: int | None = None


Reply = (
    AddReply
    | ReadReply
    | BatchReply
    | LedgerReply
    | LacReply
    | ListReply
    | InfoReply
    | Authenticate
    | StartTls
)
