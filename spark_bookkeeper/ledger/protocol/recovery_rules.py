"""Recovery's rules: how far a ledger reached, decided from what its bookies answer.

Three rules, each a lost ledger when broken (reliability: #2614, #2615, BOOKKEEPER-355, -581):

* Fencing is complete when the bookies that have *not* answered can no longer form an ack quorum
  in any write set (:class:`FenceProgress`). The recovery starts at the highest LAC in an answer, and never
  below the last fragment's first entry - 1, for what lies before is confirmed by its being there.
* An entry exists if *one* copy verifies; it never existed if a coverage of its write set says so
  and no bookie has it; anything else is *unknown* and aborts the recovery (:class:`EntryReadResult`).
* The ledger ends before the first entry that never existed, whatever lies behind the gap
  (:class:`RecoveryWindow`).

Source: BookKeeperProtocol.tla; Apache ``ReadLastConfirmedOp``, ``LedgerRecoveryOp``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, unique

from bookie_server.wire.messages import IdRange, Status
from bookie_server.wire.record import Run
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import NO_ENTRY_ID
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig

GivenUp = Mapping[int, Sequence[IdRange]]
"""By position in the ensemble: what a bookie has listed whose other entries are given up."""
NOTHING: GivenUp = {}


class FenceProgress:
    """Answers to a (fencing) LAC read of one ensemble; ``given_up`` as in :class:`EntryReadResult`."""

    def __init__(self, quorum: QuorumConfig, given_up: GivenUp = NOTHING) -> None:
        self._quorum = quorum
        self._given_up = given_up
        self._answered: set[int] = set()
        self.last_add_confirmed = NO_ENTRY_ID
        """Highest LAC in a verified answer so far."""
        self.is_unauthorized = False

    def on_answer(self, position: int, status: Status, last_add_confirmed: int) -> None:
        """Note a bookie's answer; only proof counts towards coverage.

        ``OK`` must have been verified by the caller: an answer whose digest is wrong is UNKNOWN.
        """
        if status is Status.UNAUTHORIZED:
            self.is_unauthorized = True
        # "I do not have this ledger" is an answer too: such a bookie has stored the fence as well,
        # and takes no add of the old writer. An error or a time-out proves nothing.
        is_proof = status is Status.OK or status.is_evidence_of_absence
        # In limbo it takes no add of a writer, whether it knows of the fence or not.
        if is_proof or (status is Status.UNKNOWN and position in self._given_up):
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
    """The write set's answers about one entry of a fenced ledger, and what follows from them.

    ``given_up``: by the positions of bookies that may have lost entries, what they list; an operator has decided that
    the rest is lost. Then the ledger ends before an entry that no bookie of its write set has, if each of
    them has said so; none may be silent, nor unable to give what it has listed.
    """

    quorum: QuorumConfig
    entry_id: int
    given_up: GivenUp = field(default_factory=dict)
    has_copy: bool = False
    negatives: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)

    def copy(self, position: int) -> None:
        """Note that this position returned a copy that verified."""
        self._from_write_set(position)
        self.has_copy = True

    def no_copy(self, position: int, status: Status) -> None:
        """Note that this position returned no valid copy; only an explicit denial counts as absence."""
        self._from_write_set(position)
        if status.is_evidence_of_absence:
            self.negatives.add(position)
        elif status is Status.UNKNOWN and not _may_have(self.given_up.get(position), self.entry_id):
            self.lost.add(position)

    @property
    def result(self) -> ReadResult:
        """One copy proves that the entry exists; only a coverage of denials proves that it never did."""
        if self.has_copy:
            return ReadResult.EXISTS
        if len(self.negatives) >= self.quorum.coverage:
            return ReadResult.NEVER_EXISTED
        if self.lost and len(self.negatives | self.lost) == self.quorum.write_quorum:
            return ReadResult.NEVER_EXISTED
        return ReadResult.OPEN

    def _from_write_set(self, position: int) -> None:
        invariant(
            position in self.quorum.write_set(self.entry_id),
            "only bookies of its write set answer for an entry",
        )


def _may_have(listed: Sequence[IdRange] | None, entry_id: int) -> bool:
    """Whether a bookie may have the entry that it does not give; ``None``: it has not said what it has."""
    if listed is None:
        return True
    at = bisect_left(listed, entry_id, key=lambda part: part.last_entry)
    return at < len(listed) and listed[at].first_entry <= entry_id


@dataclass(frozen=True, slots=True)
class BookieAnswer:
    """What one bookie answered about a range of entries."""

    copies: Mapping[int, Run]
    """By entry id: a record that verified."""
    damaged: frozenset[int]
    """Entries it sent with a wrong digest: whatever else it says, it once had them."""
    missing: tuple[IdRange, ...]
    """What it said about entries it did not send."""

    def about(self, entry_id: int) -> Status:
        """OK for a copy that verified; UNKNOWN for an entry the bookie said nothing about."""
        if entry_id in self.copies:
            return Status.OK
        # A damaged copy is not a denial: the bookie stored the entry once and may have acknowledged
        # it.
        said = (p.status for p in self.missing if p.first_entry <= entry_id <= p.last_entry)
        return Status.UNKNOWN if entry_id in self.damaged else next(said, Status.UNKNOWN)


class RecoveryWindow:
    """Decides consecutive entries, in order, as the bookies' answers come in.

    It waits for no answer it does not need: one copy decides that an entry exists, a coverage of
    denials that the ledger ends before it. ``given_up`` as in :class:`EntryReadResult`.
    """

    def __init__(
        self,
        quorum: QuorumConfig,
        first_entry: int,
        last_entry: int,
        given_up: GivenUp = NOTHING,
    ) -> None:
        self._quorum = quorum
        self._given_up = given_up
        self._last_wanted = last_entry
        self._answers: dict[int, BookieAnswer] = {}
        self.next_entry = first_entry
        """The first entry that is not decided."""
        self.found: list[Run] = []
        """A copy of each entry before it, one record each."""
        self.ends_ledger = False
        """Whether ``next_entry`` never existed."""
        self.is_decided = False
        """Whether more answers can add nothing: the ledger's end or the last wanted entry was reached,
        or a full reply cut the rest of the window off, which has to be asked for again."""

    def on_answer(self, position: int, answer: BookieAnswer) -> None:
        """Take the one answer of a position of the ensemble."""
        invariant(position not in self._answers, "every bookie answers once")
        self._answers[position] = answer
        while not self.is_decided and self._decide_next():
            pass

    def _decide_next(self) -> bool:
        """Decide the first undecided entry if the answers allow it; returns whether it exists."""
        entry_id = self.next_entry
        # Built anew for each decision: there are at most WQ answers to look at, and no state of one
        # entry can leak into the next.
        entry = EntryReadResult(self._quorum, entry_id, self._given_up)
        is_cut_off = False
        for position in self._quorum.write_set(entry_id):
            answer = self._answers.get(position)
            if answer is None:
                continue
            status = answer.about(entry_id)
            if status is Status.OK:
                entry.copy(position)
                # One valid copy is enough, even if it was never acknowledged: exposing it is
                # allowed, losing an acknowledged one is not.
                self.found.append(answer.copies[entry_id])
                break
            entry.no_copy(position, status)
            is_cut_off = is_cut_off or status is Status.NOT_REACHED
        match entry.result:
            case ReadResult.EXISTS:
                self.next_entry += 1
                self.is_decided = entry_id == self._last_wanted
                return True
            case ReadResult.NEVER_EXISTED:
                self.ends_ledger = self.is_decided = True
            case ReadResult.OPEN:
                # Replies are bounded. Entries behind a full reply are asked for in the next window,
                # but only if this one brought something, or recovery would ask for ever.
                self.is_decided = is_cut_off and bool(self.found)
        return False
