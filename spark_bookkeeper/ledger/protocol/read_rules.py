"""Reading's rules: which replica is asked next, and what it means when no replica has an entry.

An entry at or below the LAC was confirmed, so "no replica has it" is never an answer a reader may pass
on: that it cannot be read is an error, not a shorter ledger. Beyond the LAC an entry may be absent,
which takes the word of every bookie of its write set; one that keeps silent may hold it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bookie_server.wire.messages import Status
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.ledger.errors import (
    DigestMismatchError,
    EntryUnreadableError,
    NoSuchEntryError,
)
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig

DIGEST_MISMATCH = "DIGEST_MISMATCH"
"""How a reader records a copy that does not verify, beside the bookies' own statuses."""
_ABSENT = frozenset(status.name for status in Status if status.is_evidence_of_absence)


@dataclass(frozen=True, slots=True)
class ReplicaRequest:
    """Ask one position for the ids of a range it holds as the ``attempt``-th replica."""

    position: int
    first_entry: int
    last_entry: int
    stripe: Stripe | None


def split_by_write_set(quorum: QuorumConfig, entry_ids: Sequence[int]) -> list[Sequence[int]]:
    """The ids in groups of one write set each; one group when nothing is striped."""
    if not quorum.is_striped:
        return [entry_ids]
    size = quorum.ensemble_size
    if isinstance(entry_ids, range) and entry_ids.step == 1:
        return [entry_ids[offset::size] for offset in range(min(size, len(entry_ids)))]
    residues = sorted({entry_id % size for entry_id in entry_ids})
    return [[each for each in entry_ids if each % size == residue] for residue in residues]


def plan_attempt(quorum: QuorumConfig, entry_ids: Sequence[int], attempt: int) -> ReplicaRequest:
    """Which bookie to ask for these ids of one write set in the ``attempt``-th round (0 .. WQ-1).

    Round ``attempt`` asks the write set at that place, so after WQ rounds every replica was asked
    once. Without striping every bookie holds everything.
    """
    first, last = entry_ids[0], entry_ids[-1]
    if not quorum.is_striped:
        return ReplicaRequest(attempt % quorum.ensemble_size, first, last, None)
    # A stripe of width 1 selects exactly the ids of this residue.
    stripe = Stripe(quorum.ensemble_size, 1, first % quorum.ensemble_size)
    return ReplicaRequest((first + attempt) % quorum.ensemble_size, first, last, stripe)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one bookie said instead of returning these entries."""

    bookie_id: str
    first_entry: int
    last_entry: int
    what: str
    stripe: Stripe | None = None
    """Of the question: of ids in between that are others' nothing was said."""

    def is_about(self, entry_id: int) -> bool:
        """Whether the entry was asked for, and it is one of these."""
        is_wanted = self.stripe is None or self.stripe.wants(entry_id)
        return is_wanted and self.first_entry <= entry_id <= self.last_entry


def unreadable(ledger_id: int, entry_id: int, answers: Sequence[Answer]) -> BookKeeperError:
    """The error for a confirmed entry no replica returned.

    A copy that failed its digest outweighs silence: the data is damaged, not just unreachable.
    """
    about = [answer for answer in answers if answer.is_about(entry_id)]
    listed = tuple(f"{answer.bookie_id}:{answer.what}" for answer in about)
    if any(answer.what == DIGEST_MISMATCH for answer in about):
        return DigestMismatchError(ledger_id, entry_id, " ".join(listed))
    return EntryUnreadableError(ledger_id, entry_id, listed)


def absent_or_unreadable(
    ledger_id: int,
    entry_id: int,
    answers: Sequence[Answer],
    *,
    write_set: Collection[str],
    last_add_confirmed: int,
) -> BookKeeperError:
    """The error for an entry beyond the LAC that no replica returned.

    ``NoSuchEntryError`` when every bookie of its write set said it has none; otherwise "don't know".
    """
    # Silence is no denial: a bookie that is down may hold the only copy that is left.
    denied_by = {
        answer.bookie_id
        for answer in answers
        if answer.is_about(entry_id) and answer.what in _ABSENT
    }
    if entry_id > last_add_confirmed and denied_by.issuperset(write_set):
        return NoSuchEntryError(ledger_id, entry_id, last_add_confirmed)
    return unreadable(ledger_id, entry_id, answers)
