"""What a bookie is asked and what it may answer, as values; :mod:`bookie_server.wire.codec` makes
bytes of them.

The one rule that matters most: ``NO_ENTRY`` and ``NO_LEDGER`` are *evidence* that something was
never acknowledged. Whoever cannot prove that says ``UNKNOWN``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

from bookie_server.wire.record import Run
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.model import DigestType


@unique
class Status(Enum):
    """A bookie's answer. The numbers are the wire's; ``UNREACHABLE`` is made by clients only."""

    UNKNOWN = 0
    OK = 1
    NO_ENTRY = 2
    NO_LEDGER = 3
    FENCED = 4
    UNAUTHORIZED = 5
    READ_ONLY = 6
    BAD_REQUEST = 7
    CONFLICT = 8
    NOT_REACHED = 9
    BUSY = 10
    UNREACHABLE = -1
    """No answer: connection lost, deadline passed, or a reply that breaks the protocol."""

    @property
    def is_evidence_of_absence(self) -> bool:
        """Whether the bookie swears it never acknowledged what was asked for."""
        return self in (Status.NO_ENTRY, Status.NO_LEDGER)


@dataclass(frozen=True, slots=True)
class Section:
    """One ledger's part of a write frame."""

    ledger_id: int
    master_key: bytes
    is_recovery: bool
    digest_type: DigestType
    run: Run


@dataclass(frozen=True, slots=True)
class EncodedSection:
    """A section ready to send, the same bytes to every bookie, with what names it in answers."""

    ledger_id: int
    first_entry: int
    last_entry: int
    is_recovery: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class SectionReply:
    """The answer for the section that began and ended at these entries."""

    ledger_id: int
    first_entry: int
    last_entry: int
    is_recovery: bool
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Wanted: ids ``first_entry..last_entry`` of the stripe (all of them without one)."""

    ledger_id: int
    first_entry: int
    last_entry: int
    stripe: Stripe | None = None
    is_fencing: bool = False
    master_key: bytes = b""
    size_bytes_max: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class IdRange:
    """What holds for every wanted id in ``first_entry..last_entry``."""

    first_entry: int
    last_entry: int
    status: Status


@dataclass(frozen=True, slots=True)
class ReadReply:
    """Runs in ascending order, and a status for every wanted id they do not hold."""

    runs: tuple[Run, ...]
    missing: tuple[IdRange, ...]
    last_add_confirmed: int


@dataclass(frozen=True, slots=True)
class StoredReply:
    """A :class:`ReadReply` as its bookie makes it: stretches of records, sent as they were stored."""

    chunks: tuple[bytes | memoryview, ...]
    missing: tuple[IdRange, ...]
    last_add_confirmed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPoll:
    """Have a LAC read answered when there is news: a LAC above ``previous_lac`` (-1: any), a fence,
    or the end of ``timeout_ms``. The news comes with the records of the entries behind it.
    """

    previous_lac: int
    timeout_ms: int
    size_bytes_max: int = 1024 * 1024
    """Of records in the reply; one entry comes whatever its size. 0: no records."""


@dataclass(frozen=True, slots=True)
class ReadLacReply:
    """``last_entry`` is a whole record, ``explicit_lac`` Apache's packet; ``None``: holds none.

    ``records``, only in answer to a long poll, is a run of what is held up to the LAC; empty: none.
    """

    status: Status
    last_entry: bytes | None = None
    explicit_lac: bytes | None = None
    records: bytes = b""


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """Who a bookie is and how full its disks are."""

    bookie_id: str
    instance_id: str
    version: str
    ledger_count: int
    disk_total_bytes: int
    disk_free_bytes: int


@dataclass(frozen=True, slots=True)
class EntryList:
    """``held`` are the ids a bookie has, ascending; only with ``OK`` may absence be concluded."""

    status: Status
    held: tuple[IdRange, ...] = ()
