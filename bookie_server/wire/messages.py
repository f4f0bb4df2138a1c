"""What a bookie is asked and what it may answer, as values; :mod:`bookie_server.wire.codec` makes
bytes of them.

The one rule that matters most: ``NO_ENTRY`` and ``NO_LEDGER`` are *evidence* that something was
never acknowledged. A bookie that cannot prove that answers ``UNKNOWN``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Any

from bookie_server.wire.limits import LIST_RANGES_MAX
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
    LIMBO = 11
    DELETED = 12
    UNREACHABLE = -1
    """No answer: connection lost, deadline passed, or a reply that breaks the protocol."""

    @property
    def is_evidence_of_absence(self) -> bool:
        """Whether the answer proves that the bookie never acknowledged what was asked for."""
        return self in (Status.NO_ENTRY, Status.NO_LEDGER)


@unique
class Method(Enum):
    """The requests of one message each, by their names in bookie.proto."""

    READ_LAC = "ReadLac"
    WRITE_LAC = "WriteLac"
    INFO = "Info"
    LIST_ENTRIES = "ListEntries"


@dataclass(frozen=True, slots=True)
class Section:
    """One ledger's part of a write frame."""

    ledger_id: int
    master_key: bytes
    is_recovery: bool
    digest_type: DigestType | None
    """``None``: the client did not say, as Apache's do not."""
    run: Run
    defect: str = ""
    """Which limit of :mod:`bookie_server.wire.limits` it breaks; such a section is BAD_REQUEST."""

    def reply(self, status: Status) -> SectionReply:
        """The answer to this section."""
        run = self.run
        return SectionReply(
            self.ledger_id, run.first_entry, run.last_entry, self.is_recovery, status
        )


@dataclass(frozen=True, slots=True)
class EncodedSection:
    """A section ready to send to every bookie of the write set, and the ids its answer will carry."""

    ledger_id: int
    first_entry: int
    last_entry: int
    is_recovery: bool
    data: bytes
    """A frame of our own layout, or a part of one."""
    other_forms: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The same as other protocols have it, once somebody has needed it: the bookies of a write set share it."""

    def __len__(self) -> int:
        return len(self.data)


def run_id(ledger_id: int, first_entry: int, last_entry: int) -> str:
    """What a section is called in the logs of its client and of every bookie it is sent to, e.g. ``7:0-99``."""
    return f"{ledger_id}:{first_entry}-{last_entry}"


@dataclass(frozen=True, slots=True)
class SectionReply:
    """A bookie's answer to one section, which its ledger, first and last entry identify."""

    ledger_id: int
    first_entry: int
    last_entry: int
    is_recovery: bool
    status: Status

    @property
    def answer_count(self) -> int:
        """How many answers it is to its client."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Asks for the entries ``first_entry..last_entry``; with a ``stripe`` only for those it holds."""

    ledger_id: int
    first_entry: int
    last_entry: int
    stripe: Stripe | None = None
    is_fencing: bool = False
    master_key: bytes = b""
    size_bytes_max: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class IdRange:
    """The status of every wanted id in ``first_entry..last_entry``."""

    first_entry: int
    last_entry: int
    status: Status


@dataclass(frozen=True, slots=True)
class ReadReply:
    """The runs found, ascending, and a status for every wanted id that is in none of them."""

    runs: tuple[Run, ...]
    missing: tuple[IdRange, ...]
    last_add_confirmed: int


@dataclass(frozen=True, slots=True)
class StoredReply:
    """A :class:`ReadReply` as its bookie makes it: chunks of records, sent as they were stored."""

    chunks: tuple[bytes | memoryview, ...]
    missing: tuple[IdRange, ...]
    last_add_confirmed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPoll:
    """Delays the answer to a LAC read until the LAC exceeds ``previous_lac`` (-1: any LAC will do),
    the ledger is fenced, or ``timeout_ms`` have passed. The answer brings the entries up to the LAC.
    """

    previous_lac: int
    timeout_ms: int
    size_bytes_max: int = 1024 * 1024
    """Most bytes of records in the reply; a larger first entry comes all the same. 0: no records."""


@dataclass(frozen=True, slots=True)
class ReadLacRequest:
    """Asks for the highest LAC a bookie can prove; ``master_key`` matters only to one that fences."""

    ledger_id: int
    is_fencing: bool = False
    master_key: bytes = b""
    long_poll: LongPoll | None = None

    @property
    def waits_ms(self) -> int:
        """How long the bookie may hold the reply back, on top of the usual time limit."""
        return self.long_poll.timeout_ms if self.long_poll is not None else 0


@dataclass(frozen=True, slots=True)
class ReadLacReply:
    """``last_entry`` is a whole record, ``explicit_lac`` Apache's packet; ``None``: the bookie has none.

    ``records`` answers a long poll only: the run of stored entries up to the LAC, empty for none.
    """

    status: Status
    last_entry: bytes | None = None
    explicit_lac: bytes | None = None
    records: bytes = b""


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """A bookie's identity, how full its disk is, and of how many ledgers it may have lost something."""

    bookie_id: str
    instance_id: str = ""
    """The cluster's."""
    version: str = ""
    ledger_count: int = 0
    disk_total_bytes: int = 0
    disk_free_bytes: int = 0
    limbo_count: int = 0
    """Ledgers in limbo."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Asks for the ids of ``first_entry`` and above that a bookie holds."""

    ledger_id: int
    first_entry: int = 0
    ranges_max: int = LIST_RANGES_MAX
    """Most ranges in the reply. 0: whoever asks knows nothing of ``next_entry``."""


SAYS_WHAT_IS_WANTED = frozenset({Status.OK, Status.NO_LEDGER, Status.LIMBO})
"""Of a list of entries: what the bookie has is in it, and what is not in it is wanted there."""


@dataclass(frozen=True, slots=True)
class EntryList:
    """The ids a bookie holds, ascending. An id not listed is absent, or cannot be read, only if the status
    is ``OK`` and it lies between the ``first_entry`` that was asked for and ``next_entry``; with ``LIMBO``
    it may be either, or may have been lost.
    """

    status: Status
    held: tuple[IdRange, ...] = ()
    next_entry: int = 0
    """Ids from here on are not listed yet; 0: all are."""
    damaged_count: int = 0
    """Entries of the ledger that are stored and could not be read when they were looked at last; none is listed."""
