"""What copies a ledger should have, and what may be changed in its metadata to name others.

Pure. Only *complete* fragments are copied: no writer adds to them any more. Those are all fragments of
a closed ledger, and of any other all but the last, whose entries are acknowledged: a writer changes
its ensemble behind its last acknowledged entry. Source: Apache ``LedgerFragment``,
``LedgerFragmentReplicator.updateEnsembleInfo``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from bookie_server.wire.messages import IdRange
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Stop
from spark_bookkeeper.ledger.protocol.placement import Sampler
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig


@dataclass(frozen=True, slots=True)
class Share:
    """What one member of an ensemble should hold of a complete fragment."""

    fragment: Fragment
    position: int
    last_entry: int
    """Of the fragment; before its first entry where it is empty."""
    stripe: Stripe | None
    """Which of its entries; ``None``: all."""

    @property
    def bookie_id(self) -> str:
        """Whose share it is."""
        return self.fragment.ensemble[self.position]

    def entry_ids(self, first_entry: int, last_entry: int) -> Sequence[int]:
        """The entries of these that belong to it."""
        first = max(first_entry, self.fragment.first_entry)
        ids = range(first, min(last_entry, self.last_entry) + 1)
        return ids if self.stripe is None else self.stripe.select(ids)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to hold: a short fragment of a striped ledger leaves some idle."""
        first = self.fragment.first_entry
        nearest = first if self.stripe is None else self.stripe.next(first)
        return nearest > self.last_entry


def shares_of(metadata: LedgerMetadata) -> list[Share]:
    """Every member's share of every complete fragment, in the order of the entries."""
    quorum = QuorumConfig.of(metadata)
    return [
        Share(fragment, position, last_entry, quorum.stripe_of(position))
        for fragment, last_entry in zip(metadata.fragments, _ends(metadata), strict=False)
        for position in range(quorum.ensemble_size)
    ]


def _ends(metadata: LedgerMetadata) -> list[int]:
    """The last entry of each complete fragment."""
    ends = [each.first_entry - 1 for each in metadata.fragments[1:]]
    return [*ends, metadata.last_entry] if metadata.is_closed else ends


def open_fragment(metadata: LedgerMetadata) -> Fragment | None:
    """The fragment that a writer, or a recovery, may still add to."""
    return None if metadata.is_closed else metadata.last_fragment


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


def choose_target(
    fragment: Fragment,
    writable: Collection[str],
    random: Sampler,
    *,
    own: str | None = None,
    refused: Collection[str] = (),
) -> str | None:
    """Who takes over a share: the bookie beside which we run, else any that is writable; ``None``: nobody.

    A member of the ensemble never does, for it would hold two copies and count as two bookies.
    """
    candidates = sorted(set(writable).difference(fragment.ensemble, refused))
    if own in candidates:
        return own
    return random.sample(candidates, 1)[0] if candidates else None


def with_member(
    metadata: LedgerMetadata, share: Share, bookie_id: str
) -> LedgerMetadata | Stop[str]:
    """The metadata with another bookie for a share that it has been given a copy of; stops where the
    metadata does not say any more what was copied."""
    first_entries = [each.first_entry for each in metadata.fragments]
    if share.fragment.first_entry not in first_entries:
        return Stop("its fragment is gone")
    at = first_entries.index(share.fragment.first_entry)
    fragment = metadata.fragments[at]
    # By position: a writer's place in the ensemble says which entries are whose.
    if fragment.ensemble[share.position] != share.bookie_id:
        return Stop(f"its place is {fragment.ensemble[share.position]}'s by now")
    if bookie_id in fragment.ensemble:
        return Stop(f"{bookie_id} is a member by now")
    if _ends(metadata)[at : at + 1] != [share.last_entry]:
        return Stop("its fragment has another end by now")
    ensemble = list(fragment.ensemble)
    ensemble[share.position] = bookie_id
    changed = replace(fragment, ensemble=tuple(ensemble))
    fragments = (*metadata.fragments[:at], changed, *metadata.fragments[at + 1 :])
    return replace(metadata, fragments=fragments)
