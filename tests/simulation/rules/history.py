"""What happened in one schedule, as facts an invariant can be checked on afterwards.

Whatever depends on the moment (who held an entry when it was acknowledged, whether a fence was
durable when it was answered) is written down at that moment, from the bookies' disks and the
committed metadata and never from what the code under test believes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bookkeeper_metadata.model import LedgerMetadata


@dataclass(frozen=True, slots=True)
class Acked:
    """An entry the writer's application was told is stored."""

    entry_id: int
    holders: int
    """Bookies of its write set, by the metadata committed then, that had it on disk."""
    ack_quorum: int
    is_after_end: bool
    """Whether the writer had seen FENCED, or a state other than OPEN, before."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry became durable at a bookie."""

    bookie_id: str
    entry_id: int
    is_recovery: bool
    is_behind_fence: bool
    """Whether the bookie's journal has, or may have lost, the fence in front of it."""
    last_add_confirmed: int
    confirmed_then: int
    """The writer's LAC at that time."""
    is_as_written: bool
    """Byte for byte what the writer sent."""


@dataclass(frozen=True, slots=True)
class Hinted:
    """A bookie was told an explicit LAC."""

    bookie_id: str
    last_add_confirmed: int
    confirmed_then: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A bookie's positive answer to an add or to a fencing request."""

    bookie_id: str
    what: str
    is_durable: bool
    """Whether what it promises was on its disk."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A bookie answered FENCED to an add."""

    bookie_id: str
    was_asked: bool
    """Whether anybody had asked it to fence the ledger."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A bookie swore that it never acknowledged an entry."""

    bookie_id: str
    entry_id: int
    was_stored: bool
    """Whether any incarnation of it had the entry on disk, or had admitted it when it was asked."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The register took new metadata."""

    version: int
    metadata: LedgerMetadata
    by: str


@dataclass(frozen=True, slots=True)
class ReadBegun:
    """A recoverer sent its first recovery read."""

    by: str
    is_covered: bool
    """Whether every possible ack quorum held a durably fenced bookie."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A recoverer decided that the ledger ends before an entry."""

    by: str
    entry_id: int
    deniers: int
    """Bookies of its write set in the fragment at recovery start that denied it explicitly."""
    fenced_deniers: int
    """Those of them that will go on denying it: durably fenced."""
    needed: int


@dataclass(frozen=True, slots=True)
class Ended:
    """Somebody was told where the ledger ends."""

    by: str
    last_entry: int


@dataclass(slots=True)
class History:
    """One schedule."""

    ack_quorum: int = 2
    acked: list[Acked] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    hinted: list[Hinted] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    denied: list[Denied] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    reads_begun: list[ReadBegun] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    copies_at_close: list[tuple[int, int]] = field(default_factory=list)
    """(entry, bookies of its write set that ever had it) for every entry of the closed ledger."""
    acked_copies_left: list[tuple[int, int]] = field(default_factory=list)
    """(acknowledged entry, readable and right copies in its write set) at the end."""
    contents: list[tuple[int, bool]] = field(default_factory=list)
    """(entry, whether a reader gets what was written) for every entry of the closed ledger."""
    is_closed: bool = False
    """When the schedule ended, long after everything was healed."""
    unfinished: tuple[str, ...] = ()
    """Operations of living clients nobody has answered by then."""
    failures: list[str] = field(default_factory=list)
    """Invariants inside the product that stopped it."""
    marks: Counter[str] = field(default_factory=Counter)
