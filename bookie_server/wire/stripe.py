"""Which entries of a striped ledger one bookie of its ensemble holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stripe:
    """The ids a reader expects of one bookie: position ``index`` of an ensemble."""

    ensemble_size: int
    write_quorum: int
    index: int

    def __post_init__(self) -> None:
        if (
            not 1 <= self.write_quorum <= self.ensemble_size
            or not 0 <= self.index < self.ensemble_size
        ):
            raise ValueError(
                "a stripe needs 1 <= write_quorum <= ensemble_size and 0 <= index < ensemble_size; "
                f"ensemble_size={self.ensemble_size} write_quorum={self.write_quorum} index={self.index}"
            )

    def wants(self, entry_id: int) -> bool:
        """Whether this bookie is in the entry's write set (Apache's RoundRobinDistributionSchedule)."""
        return (self.index - entry_id) % self.ensemble_size < self.write_quorum

    def rank(self, entry_id: int) -> int:
        """How many ids of ``0..entry_id`` are wanted."""
        periods, rest = divmod(entry_id + 1, self.ensemble_size)
        # By arithmetic, not by trying: a peer names the ensemble's size, up to 2^32.
        first = self.index - self.write_quorum + 1
        partial = max(0, min(self.index + 1, rest) - max(first, 0))
        if first < 0:
            partial += max(0, rest - (first + self.ensemble_size))
        return periods * self.write_quorum + partial

    def next(self, entry_id: int) -> int:
        """The first wanted id from ``entry_id`` on."""
        distance = (self.index - entry_id) % self.ensemble_size
        return entry_id + max(0, distance - self.write_quorum + 1)

    def select(self, ids: Sequence[int]) -> Sequence[int]:
        """The wanted ones of ``ids``."""
        if not ids or self.write_quorum == self.ensemble_size:
            return ids
        if isinstance(ids, range) and ids.step % self.ensemble_size == 0:
            return ids if self.wants(ids[0]) else ()
        # Mostly a peer asks for what this bookie should have, and gets
        # it whole; or for so little that a look at each id is work for nothing.
        count = self.rank(ids[-1]) - self.rank(ids[0] - 1)
        if not count:
            return ()
        if count == len(ids) == ids[-1] - ids[0] + 1:
            return ids
        return [entry_id for entry_id in ids if self.wants(entry_id)]


EVERY_ID = Stripe(1, 1, 0)
"""No striping: every id is wanted."""
