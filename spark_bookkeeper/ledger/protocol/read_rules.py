"""Reading's verdicts: which replica is asked next, and what it means when nobody has an entry.

A reader only asks for entries at or below the LAC, so "nobody has it" is never an answer it may
pass on: an entry that was confirmed and cannot be read is an error, not a shorter ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bookie_server.wire.messages import Stripe
from metadata.errors import BookKeeperError, DigestMismatchError, EntryUnreadableError
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig

DIGEST_MISMATCH = "DIGEST_MISMATCH"
"""How a reader records a copy that does not verify, beside the bookies' own statuses."""


@dataclass(frozen=True, slots=True)
class ReplicaRequest:
    """Ask one position for the ids of a range it holds as the ``attempt``-th replica."""

    position: int
    first_entry: int
    last_entry: int
    stripe: Stripe | None


def plan_attempt(
    quorum: QuorumConfig, entry_ids: Sequence[int], attempt: int
) -> list[ReplicaRequest]:
    """Whom to ask for these ids in the ``attempt``-th round (0 .. WQ-1).

    Round ``attempt`` asks each entry's write set at that place, so after WQ rounds every replica
    of every entry was asked once. Without striping one bookie holds everything: one request.
    """
    first, last = entry_ids[0], entry_ids[-1]
    if not quorum.is_striped:
        return [ReplicaRequest(attempt % quorum.ensemble_size, first, last, None)]
    requests: list[ReplicaRequest] = []
    residues = sorted({entry_id % quorum.ensemble_size for entry_id in entry_ids})
    for residue in residues:
        mine = [entry_id for entry_id in entry_ids if entry_id % quorum.ensemble_size == residue]
        position = (residue + attempt) % quorum.ensemble_size
        # A stripe of width 1 selects exactly the ids of this residue.
        stripe = Stripe(quorum.ensemble_size, 1, residue)
        requests.append(ReplicaRequest(position, mine[0], mine[-1], stripe))
    return requests


@dataclass(frozen=True, slots=True)
class Answer:
    """What one bookie said instead of returning these entries."""

    bookie_id: str
    first_entry: int
    last_entry: int
    what: str


def unreadable(ledger_id: int, entry_id: int, answers: Sequence[Answer]) -> BookKeeperError:
    """The error for a confirmed entry no replica returned.

    A copy that failed its digest outweighs silence: it says the data is damaged, not just away.
    """
    about = [a for a in answers if a.first_entry <= entry_id <= a.last_entry]
    listed = tuple(f"{answer.bookie_id}:{answer.what}" for answer in about)
    if any(answer.what == DIGEST_MISMATCH for answer in about):
        return DigestMismatchError(ledger_id, entry_id, " ".join(listed))
    return EntryUnreadableError(ledger_id, entry_id, listed)
