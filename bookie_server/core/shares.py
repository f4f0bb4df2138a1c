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

_IDS_AT_ONCE = 65_536
"""Those of a stripe are listed one by one."""


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

    def lacks(self, held: Sequence[IdRange]) -> bool:
        """Whether one of its entries is in none of the ranges."""
        firsts = range(self.fragment.first_entry, self.last_entry + 1, _IDS_AT_ONCE)
        return any(
            not_held(self.entry_ids(first, first + _IDS_AT_ONCE - 1), held, 1) for first in firsts
        )


def shares_of(metadata: LedgerMetadata) -> list[Share]:
    """Every member's share of every complete fragment, in the order of the entries."""
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    return [
        Share(fragment, last_entry, Stripe(size, quorum, position))
        for fragment, last_entry in zip(metadata.fragments, ends_of(metadata), strict=False)
        for position in range(size)
    ]


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
    return list(islice(_outside(entry_ids, islice(held, at, None)), count_max))


def _outside(entry_ids: Iterable[int], held: Iterator[IdRange]) -> Iterator[int]:
    part = next(held, None)
    for entry_id in entry_ids:
        while part is not None and part.last_entry < entry_id:
            part = next(held, None)
        if part is None or entry_id < part.first_entry:
            yield entry_id
