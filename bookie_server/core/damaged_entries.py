"""Which stored entries the last look at them could not read. Pure.

They are neither held nor absent: a reader is told nothing of them, whoever copies entries is told that
they are wanted, and a copy from elsewhere may replace them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

IDS_MAX = 250_000
"""Entries kept in mind; further ones are found by a later look, when these are mended or have had their turn."""
_Place = tuple[int, int]
"""A ledger and an entry of it."""


class DamagedEntries:
    """Of one bookie; in memory only, for the next look finds them again."""

    def __init__(self) -> None:
        self._ids: dict[int, set[int]] = {}
        self._count = 0
        self._first: _Place = (0, 0)
        """Where the turn begins; it goes on behind the last ledger with the first one."""
        self._left_out: _Place | None = None
        """The first for which there was no room in this turn: neither is there for those behind it."""

    def __len__(self) -> int:
        return self._count

    @property
    def ledgers(self) -> Sequence[int]:
        """The ledgers that have any, in no order."""
        return tuple(self._ids)

    def of(self, ledger_id: int) -> AbstractSet[int]:
        """Those of one ledger."""
        return self._ids.get(ledger_id, frozenset())

    def add(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """These could not be read."""
        kept = set(entry_ids).difference(self.of(ledger_id))
        if self._left_out is not None:
            end = self._order(self._left_out)
            kept = {each for each in kept if self._order((ledger_id, each)) < end}
        if kept:
            self._ids.setdefault(ledger_id, set()).update(kept)
            self._count += len(kept)
        if self._count > IDS_MAX:
            # By the tenth: to find out whose turn comes last is not cheap.
            self._leave_out(self._count - IDS_MAX + IDS_MAX // 10)

    def begin_turn(self) -> None:
        """All that is stored is about to be looked at: what had no room the last time comes first.

        What is known stays known, until there is need of its room.
        """
        if self._left_out is not None:
            self._first, self._left_out = self._left_out, None

    def discard(self, ledger_id: int, entry_ids: Sequence[int]) -> None:
        """None of these, ascending, is damaged: each could be read, or was replaced, or is not stored at all."""
        known = self._ids.get(ledger_id)
        if known is None or not entry_ids:
            return
        before = len(known)
        # The shorter way round: a span may be of 10^9 entries, and there may be thousands of spans.
        if len(entry_ids) < before:
            known.difference_update(entry_ids)
        else:
            first, last = entry_ids[0], entry_ids[-1]
            is_range = len(entry_ids) == last - first + 1
            among = range(first, last + 1) if is_range else set(entry_ids)
            known.difference_update([each for each in known if each in among])
        self._count -= before - len(known)
        if not known:
            del self._ids[ledger_id]
        self._look_for_room()

    def forget(self, ledger_id: int) -> None:
        """The ledger is deleted."""
        self._count -= len(self._ids.pop(ledger_id, ()))
        self._look_for_room()

    def _look_for_room(self) -> None:
        if self._count < IDS_MAX // 2:
            self.begin_turn()

    def _order(self, place: _Place) -> tuple[bool, _Place]:
        """By which it is compared: when its turn comes."""
        return place < self._first, place

    def _leave_out(self, count: int) -> None:
        """Forget so many of those whose turn comes last."""
        for ledger_id, ids in self._by_turn_backwards():
            out = ids[-count:]
            if out:
                self._left_out = (ledger_id, out[0])
                self._ids[ledger_id].difference_update(out)
                if not self._ids[ledger_id]:
                    del self._ids[ledger_id]
                self._count -= len(out)
                count -= len(out)
            if not count:
                return

    def _by_turn_backwards(self) -> Iterator[tuple[int, list[int]]]:
        """Ledgers and their entries, which ascend; the last ledger first."""
        first_ledger, first_entry = self._first
        # It may begin in the midst of a ledger, and ends there.
        split = sorted(self.of(first_ledger))
        yield first_ledger, [each for each in split if each < first_entry]
        others = self._ids.keys() - {first_ledger}
        for ledger_id in sorted(others, key=lambda id: self._order((id, 0)), reverse=True):
            yield ledger_id, sorted(self._ids[ledger_id])
        yield first_ledger, [each for each in split if each >= first_entry]
