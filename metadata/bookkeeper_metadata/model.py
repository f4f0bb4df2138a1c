"""What a ledger's metadata says, and which changes to it are legal.

A ledger is OPEN while its writer appends, IN_RECOVERY while a reader takes it over, and CLOSED in
the end (DESIGN: OPEN -> IN_RECOVERY -> CLOSED, OPEN -> CLOSED; deletion removes the node). Its
*fragments* say which ensemble holds which run of entries; each starts where the one before ends.
All transitions are pure: they return new metadata, or raise ``InvariantViolation`` when a caller
asks for what the protocol forbids. Source: Apache ``LedgerMetadataImpl``, ``LedgerMetadataBuilder``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, unique
from typing import Generic, TypeVar

from bookkeeper_metadata.foundation.invariant import invariant

NO_ENTRY_ID = -1
"""Last entry of an empty ledger; LAC before anything is confirmed."""
ENTRY_ID_MAX = 2**63 - 1
"""Entry ids are signed 64-bit integers on the wire and on disk."""


@unique
class LedgerState(Enum):
    """Apache's ``LedgerMetadataFormat.State``, same numbers."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@unique
class DigestType(Enum):
    """Apache's ``LedgerMetadataFormat.DigestType``, same numbers."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True)
class Fragment:
    """The ensemble in force from ``first_entry`` on, up to the next fragment's first entry."""

    first_entry: int
    ensemble: tuple[str, ...]
    """Bookie ids; an entry's write set are positions in this tuple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """One version of a ledger's metadata, checked on construction."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: tuple[Fragment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry: int = NO_ENTRY_ID
    """Meaningful only when CLOSED."""
    length: int = 0
    """Payload bytes of the ledger; meaningful only when CLOSED, a hint even then."""
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict)
    created_ms: int = -1
    """Creation time in ms since the epoch, -1 when not recorded."""
    writer_token: int = 0
    """Names the writer of this version, to compare after a lost reply (Apache's ``cToken``). 0: none."""

    def __post_init__(self) -> None:
        for defect in self.defects():
            raise ValueError(defect)

    def defects(self) -> list[str]:
        """What is wrong with this value; empty when it is a possible ledger."""
        found: list[str] = []
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble_size:
            found.append(
                "quorums must satisfy 1 <= ack_quorum <= write_quorum <= ensemble_size; "
                f"ack_quorum={self.ack_quorum} write_quorum={self.write_quorum} ensemble_size={self.ensemble_size}"
            )
        if not self.fragments or self.fragments[0].first_entry != 0:
            found.append("the first fragment must start at entry 0")
        for before, after in zip(self.fragments, self.fragments[1:], strict=False):
            if after.first_entry <= before.first_entry:
                found.append(
                    f"fragments must be ordered; first_entry={after.first_entry} follows {before.first_entry}"
                )
        for fragment in self.fragments:
            if len(fragment.ensemble) != self.ensemble_size:
                found.append(
                    f"ensemble has {len(fragment.ensemble)} bookies, ensemble_size={self.ensemble_size}"
                )
            if len(set(fragment.ensemble)) != len(fragment.ensemble):
                found.append(
                    f"a bookie stands twice in one ensemble; {','.join(fragment.ensemble)}"
                )
        if self.state is not LedgerState.CLOSED and (
            self.last_entry != NO_ENTRY_ID or self.length != 0
        ):
            found.append("only a closed ledger has a last entry and a length")
        if self.last_entry < NO_ENTRY_ID or self.length < 0:
            found.append(f"impossible end; last_entry={self.last_entry} length={self.length}")
        return found

    @property
    def is_closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    @property
    def last_fragment(self) -> Fragment:
        return self.fragments[-1]

    @property
    def bookie_ids(self) -> frozenset[str]:
        """Every bookie that is a member, of whatever fragment."""
        return frozenset(each for fragment in self.fragments for each in fragment.ensemble)

    def fragment_of(self, entry_id: int) -> Fragment:
        """The fragment whose ensemble holds ``entry_id`` (floor of its first entries)."""
        invariant(entry_id >= 0, "entries are numbered from 0")
        return self.fragments[
            bisect_right(self.fragments, entry_id, key=lambda f: f.first_entry) - 1
        ]

    def in_recovery(self) -> LedgerMetadata:
        """OPEN becomes IN_RECOVERY; a recovery that is under way is joined unchanged."""
        invariant(not self.is_closed, "a closed ledger is never recovered")
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, last_entry: int, length: int) -> LedgerMetadata:
        """CLOSED at ``last_entry``; that never changes again."""
        invariant(not self.is_closed, "a ledger is closed once")
        invariant(
            last_entry >= self.last_fragment.first_entry - 1, "no fragment starts beyond the end"
        )
        return replace(self, state=LedgerState.CLOSED, last_entry=last_entry, length=length)

    def with_ensemble(self, first_entry: int, ensemble: tuple[str, ...]) -> LedgerMetadata:
        """Put ``ensemble`` in force from ``first_entry`` on.

        Equal to the last fragment's first entry it replaces that fragment's ensemble in place, else
        it starts a new fragment. Source: Apache ``EnsembleUtils``, ``LedgerHandle.ensembleChangeLoop``.
        """
        invariant(not self.is_closed, "a closed ledger gets no new ensemble by its writer")
        invariant(first_entry >= self.last_fragment.first_entry, "fragments never move backwards")
        # In place, nobody needs the former bookies: a writer has acknowledged nothing in that
        # fragment, and a recovery writes all that it found there to the new ones.
        kept = (
            self.fragments[:-1] if first_entry == self.last_fragment.first_entry else self.fragments
        )
        return replace(self, fragments=(*kept, Fragment(first_entry, ensemble)))


@dataclass(frozen=True, slots=True)
class Versioned:
    """Metadata as read, with the version that a change must be guarded by."""

    metadata: LedgerMetadata
    version: int


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stop(Generic[T]):
    """A transform's answer that it wants no change, and why; ends the loop, changes nothing."""

    reason: T


Transform = Callable[[LedgerMetadata], LedgerMetadata | Stop[T]]
"""Pure: returns the metadata wanted in place of the given one, an equal one for no change, or Stop."""
