"""Which stored entries the last look at them could not read. Pure.

They are neither held nor absent: a reader is told nothing of them, whoever copies entries is told that
they are wanted, and a copy from elsewhere may replace them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

IDS_MAX = 250_000
"""Entries kept in mind; further ones are found by a later look, when these are mended."""


class DamagedEntries:
    """Of one bookie; in memory only, for the next look finds them again."""

    def __init__(self) -> None:
        self._ids: dict[int, set[int]] = {}
        self._count = 0

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
        new = set(entry_ids).difference(self.of(ledger_id))
        kept = list(new)[: IDS_MAX - self._count]
        if kept:
            self._ids.setdefault(ledger_id, set()).update(kept)
            self._count += len(kept)

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

    def forget(self, ledger_id: int) -> None:
        """The ledger is deleted."""
        self._count -= len(self._ids.pop(ledger_id, ()))
