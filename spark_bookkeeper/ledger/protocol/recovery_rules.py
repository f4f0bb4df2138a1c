"""Recovery's verdicts: how far a ledger reached, decided from what its bookies answer.

Three rules, each a lost ledger when broken (reliability: #2614, #2615, BOOKKEEPER-355, -581):

* Fencing is complete when the bookies that have *not* answered can no longer form an ack quorum
  in any write set (:class:`FenceProgress`). The recovery starts at the highest LAC heard, and never
  below the last fragment's first entry - 1, for what lies before is confirmed by its being there.
* An entry exists if *one* copy verifies; it never existed if a coverage of its write set swears so
  and nobody has it; anything else is *unknown* and aborts the recovery (:class:`EntryReadResult`).
* The ledger ends before the first entry that never existed, whatever lies behind the gap
  (:class:`RecoveryWindow`).

Source: BookKeeperProtocol.tla; Apache ``ReadLastConfirmedOp``, ``LedgerRecoveryOp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, unique

from bookie_server.wire.messages import IdRange, Status
from bookie_server.wire.record import Run
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import NO_ENTRY_ID
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig


class FenceProgress:
    """Answers to a (fencing) LAC read of one ensemble."""

    def __init__(self, quorum: QuorumConfig) -> None:
        self._quorum = quorum
        self._answered: set[int] = set()
        self.last_add_confirmed = NO_ENTRY_ID
        """Highest LAC in a verified answer so far."""
        self.is_unauthorized = False

    def on_answer(self, position: int, status: Status, last_add_confirmed: int) -> None:
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
class ReadResult(Enum):
    """What is known about one entry."""

    EXISTS = "exists"
    NEVER_EXISTED = "never existed"
    OPEN = "open"


@dataclass(slots=True)
class EntryReadResult:
    """Collects the write set's answers for one entry of a fenced ledger."""

    quorum: QuorumConfig
    entry_id: int
    has_copy: bool = False
    negatives: set[int] = field(default_factory=set)

    def copy(self, position: int) -> None:
        """A copy from this position verified."""
        self._from_write_set(position)
        self.has_copy = True

    def no_copy(self, position: int, status: Status) -> None:
        """This position returned no (valid) copy; only explicit evidence counts as absence."""
        self._from_write_set(position)
        if status.is_evidence_of_absence:
            self.negatives.add(position)

    @property
    def verdict(self) -> ReadResult:
        """Positive is generous, negative is strict."""
        if self.has_copy:
            return ReadResult.EXISTS
        if len(self.negatives) >= self.quorum.coverage:
            return ReadResult.NEVER_EXISTED
        return ReadResult.OPEN

    def _from_write_set(self, position: int) -> None:
        invariant(
            position in self.quorum.write_set(self.entry_id), "only the write set may testify"
        )


@dataclass(frozen=True, slots=True)
class Testimony:
    """One bookie's answer for a range of entries."""

    copies: Mapping[int, Run]
    """By entry id: a record that verified."""
    damaged: frozenset[int]
    """Entries it sent whose digest is wrong: whatever else it says, it had them once."""
    missing: tuple[IdRange, ...]
    """What it said about the others."""

    def about(self, entry_id: int) -> Status:
        """OK for a copy that verified; silence is UNKNOWN."""
        if entry_id in self.copies:
            return Status.OK
        said = (p.status for p in self.missing if p.first_entry <= entry_id <= p.last_entry)
        return Status.UNKNOWN if entry_id in self.damaged else next(said, Status.UNKNOWN)


class RecoveryWindow:
    """Decides consecutive entries, in order, as the bookies' testimonies come in.

    It waits for nobody it does not need: one copy settles an entry, a coverage of negatives the
    ledger's end.
    """

    def __init__(self, quorum: QuorumConfig, first_entry: int, last_entry: int) -> None:
        self._quorum = quorum
        self._last_wanted = last_entry
        self._testimonies: dict[int, Testimony] = {}
        self.next_entry = first_entry
        """The first entry that is not decided."""
        self.found: list[Run] = []
        """A copy of each entry before it, one record each."""
        self.ends_ledger = False
        """Whether ``next_entry`` never existed."""
        self.is_decided = False
        """Whether more testimonies can add nothing: the end, the last one wanted, or a part of the
        window that fills a reply, after which one asks anew."""

    def on_answer(self, position: int, testimony: Testimony) -> None:
        """Hear a position of the ensemble, once."""
        invariant(position not in self._testimonies, "every bookie is heard once")
        self._testimonies[position] = testimony
        while not self.is_decided and self._decide_next():
            pass

    def _decide_next(self) -> bool:
        """Whether the first undecided entry exists; then the one behind it is next."""
        entry_id = self.next_entry
        verdict = EntryReadResult(self._quorum, entry_id)
        is_cut_off = False
        for position in self._quorum.write_set(entry_id):
            testimony = self._testimonies.get(position)
            if testimony is None:
                continue
            status = testimony.about(entry_id)
            if status is Status.OK:
                verdict.copy(position)
                self.found.append(testimony.copies[entry_id])
                break
            verdict.no_copy(position, status)
            is_cut_off = is_cut_off or status is Status.NOT_REACHED
        match verdict.verdict:
            case ReadResult.EXISTS:
                self.next_entry += 1
                self.is_decided = entry_id == self._last_wanted
                return True
            case ReadResult.NEVER_EXISTED:
                self.ends_ledger = self.is_decided = True
            case ReadResult.OPEN:
                self.is_decided = is_cut_off and bool(self.found)
        return False
