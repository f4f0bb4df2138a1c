"""Recovery's verdicts: how far a ledger reached, decided from what its bookies answer.

Three rules, each a lost ledger when broken (reliability: #2614, #2615, BOOKKEEPER-355, -581):

* Fencing is complete when the bookies that have *not* answered can no longer form an ack quorum
  in any write set (:class:`FenceProgress`). The recovery starts at the highest LAC heard, and never
  below the last fragment's first entry - 1, for what lies before is confirmed by its being there.
* An entry exists if *one* copy verifies; it never existed if a coverage of its write set swears so
  and nobody has it; anything else is *unknown* and aborts the recovery (:class:`EntryVerdict`).
* The ledger ends before the first entry that never existed, whatever lies behind the gap.

Source: BookKeeperProtocol.tla; Apache ``ReadLastConfirmedOp``, ``LedgerRecoveryOp``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique

from bookie_server.wire.messages import Status
from metadata.invariant import invariant
from metadata.model import NO_ENTRY_ID
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig


class FenceProgress:
    """Answers to a (fencing) LAC read of one ensemble."""

    def __init__(self, quorum: QuorumConfig) -> None:
        self._quorum = quorum
        self._answered: set[int] = set()
        self.last_add_confirmed = NO_ENTRY_ID
        """Highest LAC in a verified answer so far."""
        self.is_unauthorized = False

    def answered(self, position: int, status: Status, last_add_confirmed: int) -> None:
        """A bookie's answer; only proof counts towards coverage.

        ``OK`` must have been verified by the caller: an answer whose digest is wrong is UNKNOWN.
        """
        if status is Status.UNAUTHORIZED:
            self.is_unauthorized = True
        if status is Status.OK or status.is_evidence_of_absence:
            self._answered.add(position)
        if status is Status.OK:
            self.last_add_confirmed = max(self.last_add_confirmed, last_add_confirmed)

    @property
    def is_covered(self) -> bool:
        """Whether no ack quorum is left among those who have not answered."""
        return self._quorum.covers(self._answered)


def first_entry_to_recover(last_add_confirmed: int, last_fragment_first_entry: int) -> int:
    """Where recovery reads start: behind everything known to be confirmed (fix of #2615)."""
    return max(last_add_confirmed, last_fragment_first_entry - 1) + 1


@unique
class Verdict(Enum):
    """What is known about one entry."""

    EXISTS = "exists"
    NEVER_EXISTED = "never existed"
    OPEN = "open"


@dataclass(slots=True)
class EntryVerdict:
    """Collects the write set's answers for one entry of a fenced ledger."""

    quorum: QuorumConfig
    entry_id: int
    has_copy: bool = False
    negatives: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)

    def copy(self, position: int) -> None:
        """A copy from this position verified."""
        self._from_write_set(position)
        self.answered.add(position)
        self.has_copy = True

    def no_copy(self, position: int, status: Status) -> None:
        """This position returned no (valid) copy; only explicit evidence counts as absence."""
        self._from_write_set(position)
        self.answered.add(position)
        if status.is_evidence_of_absence:
            self.negatives.add(position)

    @property
    def verdict(self) -> Verdict:
        """Positive is generous, negative is strict."""
        if self.has_copy:
            return Verdict.EXISTS
        if len(self.negatives) >= self.quorum.coverage:
            return Verdict.NEVER_EXISTED
        return Verdict.OPEN

    @property
    def is_hopeless(self) -> bool:
        """Whether everybody answered and the verdict is still open: abort, do not guess."""
        return self.verdict is Verdict.OPEN and len(self.answered) == self.quorum.write_quorum

    def _from_write_set(self, position: int) -> None:
        invariant(
            position in self.quorum.write_set(self.entry_id), "only the write set may testify"
        )
