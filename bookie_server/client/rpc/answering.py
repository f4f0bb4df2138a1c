"""Which of the sections that were sent an answer is for; of one connection, without any of it.

An answer of version 2 says ledger and entry, and nothing of which request it is for. So of two sections that hold the same
entry, as one that was given up and sent again, each is answered once all of its entries have been answered once for
itself, the earlier one first; and what is refused counts as refused to both. Version 3 has numbers.

Answers come in the order of the adds, mostly, and many at once: that costs the same as one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.messages import EncodedSection, SectionReply, Status
from bookie_server.wire.rpc.answer_runs import Answers
from bookie_server.wire.rpc.sections import EncodedAdds, block_of
from bookie_server.wire.rpc.statuses import RpcStatus, meaning_of


class SentSection:
    """A section that is being answered, entry by entry."""

    __slots__ = ("_answered", "_rest", "_status", "_wanted", "missing", "section")

    def __init__(self, section: EncodedSection, adds: EncodedAdds) -> None:
        self.section = section
        self._wanted: Sequence[int] = adds.numbers or adds.entry_ids
        """What the answers name, ascending."""
        self._answered = 0
        """So many of these have been answered, in order."""
        self._rest: set[int] | None = None
        """What is left to be answered, once it has come in another order."""
        self._status = RpcStatus.EOK
        self.missing = len(adds.entry_ids)
        """Answers to come."""

    def expects(self, name: int) -> bool:
        """Whether an answer that names this is to come."""
        if self._rest is not None:
            return name in self._rest
        at = bisect_left(self._wanted, name, self._answered)
        return at < len(self._wanted) and self._wanted[at] == name

    def take(self, first: int, count: int, status: RpcStatus) -> int:
        """Note the answer that names ``first``, which it expects, and those behind it; returns how many are its own."""
        if status is not RpcStatus.EOK:
            self.refuse(status)
        taken = self._take_in_order(first, count) if self._rest is None else 0
        if not taken:
            if self._rest is None:
                self._rest = set(self._wanted[self._answered :])
            self._rest.remove(first)
            taken = 1
        self.missing -= taken
        return taken

    def refuse(self, status: RpcStatus) -> None:
        """An entry is refused, or may be."""
        # What is to be sent again comes last: any other refusal is for good.
        if self._status in (RpcStatus.EOK, RpcStatus.ETOOMANYREQUESTS):
            self._status = status

    def reply(self) -> SectionReply:
        """The answer to the section as a whole."""
        section = self.section
        ids = section.ledger_id, section.first_entry, section.last_entry
        return SectionReply(*ids, section.is_recovery, _meaning_of_add(self._status))

    def _take_in_order(self, first: int, count: int) -> int:
        wanted, at = self._wanted, self._answered
        if wanted[at] != first:
            return 0
        taken = min(count, len(wanted) - at)
        if wanted[at + taken - 1] != first + taken - 1:
            taken = 1  # of a striped ledger: a bookie has some of the entries
        self._answered += taken
        return taken


def _meaning_of_add(status: RpcStatus) -> Status:
    """What a bookie's answer to an add means; one that denies what it was sent has not understood."""
    meaning = meaning_of(status)
    return Status.UNKNOWN if meaning.is_evidence_of_absence else meaning


class SentSections(ABC):
    """All that are not answered."""

    def are_free(self, adds: EncodedAdds) -> bool:
        """Whether no answers that could be taken for theirs are to come to others."""
        return True

    @abstractmethod
    def expect(self, sent: SentSection, adds: EncodedAdds) -> None:
        """Answers to these adds will come."""

    def take(self, answers: Answers) -> list[SentSection]:
        """The sections that have been answered with these.

        Raises:
            MalformedFrameError: nobody asked for one of them.
        """
        done: list[SentSection] = []
        first, left = answers.first, answers.entries
        while left:
            sent, taken = self._take(answers.ledger_id, first, left, answers.status)
            if not sent.missing:
                done.append(sent)
            first += taken
            left -= taken
        return done

    @abstractmethod
    def _take(
        self, ledger_id: int | None, first: int, count: int, status: RpcStatus
    ) -> tuple[SentSection, int]:
        """The section that expects the first, and how many of them are its own; forgets it once it is answered."""


@dataclass(slots=True)
class _OfLedger:
    sent: list[SentSection] = field(default_factory=list)
    """In the order in which they were."""
    last_entry: int = -1
    """The highest of them all."""
    are_mixed: bool = False
    """Some may have entries in common."""


class SectionsOfV2(SentSections):
    """By ledger and entry."""

    def __init__(self) -> None:
        self._ledgers: dict[int, _OfLedger] = {}

    def expect(self, sent: SentSection, adds: EncodedAdds) -> None:
        section = sent.section
        of_ledger = self._ledgers.setdefault(section.ledger_id, _OfLedger())
        of_ledger.are_mixed |= section.first_entry <= of_ledger.last_entry
        of_ledger.last_entry = max(of_ledger.last_entry, section.last_entry)
        of_ledger.sent.append(sent)

    def _take(
        self, ledger_id: int | None, first: int, count: int, status: RpcStatus
    ) -> tuple[SentSection, int]:
        of_ledger = _OfLedger() if ledger_id is None else self._ledgers.get(ledger_id, _OfLedger())
        asked = (sent for sent in of_ledger.sent if sent.expects(first))
        earliest = next(asked, None)
        if earliest is None:
            raise MalformedFrameError(f"an answer to what was not asked. entry_id={first}")
        if of_ledger.are_mixed:
            count = 1
            if status is not RpcStatus.EOK:
                # Refusals overtake grants, so it may be meant for any of them.
                for sent in asked:
                    sent.refuse(status)
        taken = earliest.take(first, count, status)
        if not earliest.missing:
            of_ledger.sent.remove(earliest)
            if not of_ledger.sent:
                del self._ledgers[earliest.section.ledger_id]
        return earliest, taken


class SectionsOfV3(SentSections):
    """By number."""

    def __init__(self) -> None:
        self._blocks: dict[int, SentSection] = {}

    def are_free(self, adds: EncodedAdds) -> bool:
        return block_of(adds.numbers[0]) not in self._blocks

    def expect(self, sent: SentSection, adds: EncodedAdds) -> None:
        self._blocks[block_of(adds.numbers[0])] = sent

    def _take(
        self, ledger_id: int | None, first: int, count: int, status: RpcStatus
    ) -> tuple[SentSection, int]:
        sent = self._blocks.get(block_of(first))
        # One of version 2 has no number.
        if sent is None or ledger_id is not None or not sent.expects(first):
            raise MalformedFrameError(f"an answer to what was not asked. number={first}")
        taken = sent.take(first, count, status)
        if not sent.missing:
            del self._blocks[block_of(first)]
        return sent, taken
