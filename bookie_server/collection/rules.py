"""Which ledgers are gone: two ascending streams compared, the bookie's ledgers and the metadata's.

Pure. A ledger that a bookie holds and the metadata does not list may be gone. Around the gone ones the
comparison keeps which of them have no known ledger between them, so that one tombstone can cover a
stretch of ids: a bookie in a large cluster holds one ledger of many.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


class ListingOutOfOrderError(Exception):
    """The metadata's listing does not ascend: what it leaves out is not known to be gone."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A ledger that is held and was not listed."""

    ledger_id: int
    is_next: bool
    """No ledger that is held or listed lies between the gone one before and this one."""


class Comparison:
    """Feed it the listing in its order; ``finish`` says what is gone."""

    def __init__(self, held: Sequence[int], pending: Sequence[int] = ()) -> None:
        """Both ascend, and are of before the listing began: the bookie's ledgers, and the ids under
        which a ledger may be created at any moment, which count as listed."""
        self._held = held
        self._at = 0
        self._pending = pending
        self._next_pending = 0
        self._last_listed = -1
        self._is_next = False
        self._stretches: list[tuple[int, int, bool]] = []
        """Of ``held``: where ledgers that are gone begin and end, and whether the first is next."""

    def see(self, listed: int) -> None:
        """The next listed id.

        Raises:
            ListingOutOfOrderError: it does not lie behind the one before.
        """
        if listed <= self._last_listed:
            raise ListingOutOfOrderError(f"{listed} behind {self._last_listed}")
        self._last_listed = listed
        self._pass_pending(bisect_left(self._pending, listed, self._next_pending))
        self._pass_known(listed)

    def see_hidden(self, first: int, last: int) -> None:
        """All ids from ``first`` to ``last`` may be listed: the next part of the list is hidden from us.

        Raises:
            ListingOutOfOrderError: it does not lie behind the one before.
        """
        if not self._last_listed < first <= last:
            raise ListingOutOfOrderError(f"{first} to {last} behind {self._last_listed}")
        self._last_listed = last
        self._pass_pending(bisect_left(self._pending, first, self._next_pending))
        self._pass_gone(bisect_left(self._held, first, self._at))
        self._at = bisect_right(self._held, last, self._at)
        self._is_next = False

    def finish(self) -> list[Gone]:
        """What is gone, ascending; the listing has ended by itself. Of a million it takes seconds: use a thread."""
        self._pass_pending(len(self._pending))
        self._pass_gone(len(self._held))
        return [
            Gone(self._held[at], at > first or is_next)
            for first, until, is_next in self._stretches
            for at in range(first, until)
        ]

    def _pass_pending(self, until: int) -> None:
        for ledger_id in self._pending[self._next_pending : until]:
            self._pass_known(ledger_id)
        self._next_pending = until

    def _pass_known(self, ledger_id: int) -> None:
        self._pass_gone(bisect_left(self._held, ledger_id, self._at))
        if self._at < len(self._held) and self._held[self._at] == ledger_id:
            self._at += 1
        self._is_next = False

    def _pass_gone(self, until: int) -> None:
        if self._at < until:
            self._stretches.append((self._at, until, self._is_next))
            self._is_next = True
        self._at = until


def still_gone(gone: Sequence[Gone], before: Sequence[Gone], bound: int) -> list[Gone]:
    """The gone ledgers that were gone ``before``, too, and whose ids lie below ``bound``.

    A stretch of ids is kept together only where nothing was left out of it.
    """
    known = {each.ledger_id for each in before}
    return _only(gone, [each.ledger_id in known and each.ledger_id < bound for each in gone])


def confirmed(gone: Sequence[Gone], are_gone: Sequence[bool]) -> list[Gone]:
    """Those of which it was confirmed, one by one."""
    return _only(gone, are_gone)


def _only(gone: Sequence[Gone], wanted: Sequence[bool]) -> list[Gone]:
    found: list[Gone] = []
    is_next = False
    for each, is_wanted in zip(gone, wanted, strict=True):
        is_next = is_next and each.is_next
        if is_wanted:
            found.append(Gone(each.ledger_id, is_next))
            is_next = True
        else:
            is_next = False
    return found


def tombstones(gone: Sequence[Gone], others: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges that cover the ``gone`` ledgers, and of other ids those of which nothing is known.

    ``others``: what else is held at this moment, or is on its way, ascending.
    """
    ranges: list[tuple[int, int]] = []
    for each in gone:
        if each.is_next and ranges and not _is_between(others, ranges[-1][1], each.ledger_id):
            ranges[-1] = ranges[-1][0], each.ledger_id
        else:
            ranges.append((each.ledger_id, each.ledger_id))
    return ranges


def _is_between(ascending: Sequence[int], low: int, high: int) -> bool:
    at = bisect_left(ascending, low + 1)
    return at < len(ascending) and ascending[at] < high
