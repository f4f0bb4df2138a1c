"""What each bookie should hold of a ledger, by its metadata. Pure.

Only *complete* fragments are anybody's share: no writer adds to them any more. Those are all fragments of
a closed ledger, and of any other all but the last, whose entries are acknowledged: a writer changes
its ensemble behind its last acknowledged entry. Source: Apache ``LedgerFragment``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from bookie_server.wire.messages import IdRange
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.model import Fragment, LedgerMetadata


@dataclass(frozen=True, slots=True)
class Share:
    """What one member of an ensemble should hold of a complete fragment."""

    fragment: Fragment
    last_entry: int
    """Of the fragment; before its first entry where it is empty."""
    stripe: Stripe
    """Whose it is, and which of the entries."""

    @property
    def position(self) -> int:
        """In the ensemble."""
        return self.stripe.index

    @property
    def bookie_id(self) -> str:
        """Whose share it is."""
        return self.fragment.ensemble[self.position]

    def entry_ids(self, first_entry: int, last_entry: int) -> Sequence[int]:
        """The entries of these that belong to it."""
        first = max(first_entry, self.fragment.first_entry)
        return self.stripe.select(range(first, min(last_entry, self.last_entry) + 1))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to hold: a short fragment of a striped ledger leaves some idle."""
        return self.stripe.next(self.fragment.first_entry) > self.last_entry

    @property
    def ends(self) -> tuple[int, ...]:
        """Its first and its last entry, or its only one, or none."""
        if self.is_empty:
            return ()
        first = self.stripe.next(self.fragment.first_entry)
        # Of as many entries as there are bookies, each holds some.
        last = self.entry_ids(self.last_entry - self.stripe.ensemble_size + 1, self.last_entry)[-1]
        return (first,) if first == last else (first, last)

    def wants(self, entry_id: int) -> bool:
        """Whether this entry belongs to it."""
        is_inside = self.fragment.first_entry <= entry_id <= self.last_entry
        return is_inside and self.stripe.wants(entry_id)

    def lacks(self, held: Sequence[IdRange]) -> bool:
        """Whether one of its entries is in none of the ranges, which ascend; by arithmetic, for they may be 10^9."""
        begin, end = self.fragment.first_entry, self.last_entry + 1
        missing = self._count(begin, end)
        for part in held[bisect_left(held, begin, key=lambda part: part.last_entry) :]:
            if part.first_entry >= end:
                break
            begin = max(begin, part.first_entry)
            stop = min(part.last_entry + 1, end)
            missing -= self._count(begin, stop) if begin < stop else 0
            begin = max(begin, stop)
        return missing > 0

    def _count(self, begin: int, end: int) -> int:
        """How many of ``begin..end - 1`` belong to it."""
        return self.stripe.rank(end - 1) - self.stripe.rank(begin - 1)


def shares_of(metadata: LedgerMetadata) -> list[Share]:
    """Every member's share of every complete fragment, in the order of the entries."""
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    return [
        Share(fragment, last_entry, Stripe(size, quorum, position))
        for fragment, last_entry in zip(metadata.fragments, ends_of(metadata), strict=False)
        for position in range(size)
    ]


def shares_by_bookie(metadata: LedgerMetadata) -> dict[str, list[Share]]:
    """The shares in which there is something to hold, by who should hold it."""
    found: dict[str, list[Share]] = {}
    for share in shares_of(metadata):
        if not share.is_empty:
            found.setdefault(share.bookie_id, []).append(share)
    return found


def ends_of(metadata: LedgerMetadata) -> list[int]:
    """The last entry of each complete fragment."""
    ends = [each.first_entry - 1 for each in metadata.fragments[1:]]
    return [*ends, metadata.last_entry] if metadata.is_closed else ends


def not_held(entry_ids: Sequence[int], held: Sequence[IdRange], count_max: int) -> Sequence[int]:
    """The first of the ids, ascending, that are in none of the ranges, ascending as well."""
    if not entry_ids:
        return ()
    at = bisect_left(held, entry_ids[0], key=lambda part: part.last_entry)
    if at == len(held) or held[at].first_entry > entry_ids[-1]:
        return entry_ids[:count_max]
    return list(islice(_outside(entry_ids, held, at), count_max))


def _outside(entry_ids: Iterable[int], held: Sequence[IdRange], at: int) -> Iterator[int]:
    for entry_id in entry_ids:
        while at < len(held) and held[at].last_entry < entry_id:
            at += 1
        if at == len(held) or entry_id < held[at].first_entry:
            yield entry_id
