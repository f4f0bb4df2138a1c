"""Quorum arithmetic: which bookies hold an entry, and how many answers prove something.

An entry's *write set* are WQ consecutive positions of the ensemble, starting at ``entry id mod E``
(round robin); it is acknowledged once any AQ of them stored it. Everything recovery may conclude
rests on one question: can the bookies that have *not* answered still form an ack quorum?
Source: Apache ``RoundRobinDistributionSchedule``; ``HasQuorumCoverage`` in BookKeeperProtocol.tla
(Vanlightly/bookkeeper-tlaplus).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import LedgerMetadata


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """E, WQ and AQ of a ledger: 1 <= AQ <= WQ <= E."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> QuorumConfig:
        """The quorums of a ledger, which never change."""
        return cls(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """Ensemble positions that hold ``entry_id``, in the order a reader asks them."""
        first = entry_id % self.ensemble_size
        return tuple((first + i) % self.ensemble_size for i in range(self.write_quorum))

    @property
    def is_striped(self) -> bool:
        """Whether some bookie of the ensemble holds only part of the entries."""
        return self.ensemble_size > self.write_quorum

    def stripe_of(self, position: int) -> Stripe | None:
        """The entries that the bookie at this position holds; ``None``: all of them."""
        return Stripe(self.ensemble_size, self.write_quorum, position) if self.is_striped else None

    @property
    def coverage(self) -> int:
        """:func:`coverage_threshold` of one write set."""
        return coverage_threshold(self.write_quorum, self.ack_quorum)

    def covers(self, responders: AbstractSet[int]) -> bool:
        """Whether every possible ack quorum of every write set holds one of these positions."""
        return self._each_holds(self.coverage, responders)

    def can_acknowledge(
        self, positions: AbstractSet[int], first_entry: int = 0, last_entry: int | None = None
    ) -> bool:
        """Whether each of these entries (by default: any entry) has an ack quorum in ``positions``."""
        return self._each_holds(self.ack_quorum, positions, first_entry, last_entry)

    def _each_holds(
        self,
        count: int,
        positions: AbstractSet[int],
        first_entry: int = 0,
        last_entry: int | None = None,
    ) -> bool:
        """Whether ``count`` of the ``positions`` are in the write set of each of these entries."""
        # Write sets repeat after an ensemble's length; all are one when nothing is striped.
        kinds = self.ensemble_size if self.is_striped else 1
        if last_entry is not None:
            kinds = min(kinds, last_entry - first_entry + 1)
        return all(
            sum(position in positions for position in self.write_set(first_entry + kind)) >= count
            for kind in range(kinds)
        )


def coverage_threshold(cohort_size: int, ack_quorum: int) -> int:
    """Smallest number of bookies that intersects every possible ack quorum of the cohort.

    Used twice. Fencing: once this many bookies of an entry's write set refuse adds, it can no
    longer reach its ack quorum. Recovery reads: once this many of them answered "no such entry",
    it was never acknowledged and the ledger ends before it.

    Source: ``HasQuorumCoverage`` in Vanlightly/bookkeeper-tlaplus, BookKeeperProtocol.tla.
    """
    invariant(1 <= ack_quorum <= cohort_size, "an ack quorum is a non-empty part of its cohort")
    threshold = cohort_size - ack_quorum + 1
    # One bookie fewer would leave a whole ack quorum untouched: that is what "smallest" means.
    invariant(cohort_size - threshold < ack_quorum, "the rest is too few to acknowledge")
    invariant(cohort_size - (threshold - 1) >= ack_quorum, "one fewer would not be enough")
    return threshold
