"""Who takes over what a bookie should hold, and what that changes in the metadata.

Pure. Source: Apache ``LedgerFragmentReplicator.updateEnsembleInfo``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import replace

from bookie_server.core.shares import Share, ends_of
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Stop
from spark_bookkeeper.ledger.protocol.placement import Sampler


def open_fragment(metadata: LedgerMetadata) -> Fragment | None:
    """The fragment that a writer, or a recovery, may still add to."""
    return None if metadata.is_closed else metadata.last_fragment


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


def with_members(
    metadata: LedgerMetadata, taken: Iterable[tuple[Share, str]]
) -> LedgerMetadata | Stop[str]:
    """The metadata with another bookie for each share that it has been given a copy of; stops where the
    metadata does not say any more what was copied."""
    fragments, ends = list(metadata.fragments), ends_of(metadata)
    for share, bookie_id in taken:
        first_entry = share.fragment.first_entry
        at = bisect_left(fragments, first_entry, key=lambda each: each.first_entry)
        if at == len(fragments) or fragments[at].first_entry != first_entry:
            return Stop("its fragment is gone")
        ensemble = list(fragments[at].ensemble)
        # By position: a writer's place in the ensemble says which entries are whose.
        if ensemble[share.position] != share.bookie_id:
            return Stop(f"its place is {ensemble[share.position]}'s by now")
        if bookie_id in ensemble:
            return Stop(f"{bookie_id} is a member by now")
        if ends[at : at + 1] != [share.last_entry]:
            return Stop("its fragment has another end by now")
        ensemble[share.position] = bookie_id
        fragments[at] = Fragment(first_entry, tuple(ensemble))
    return replace(metadata, fragments=tuple(fragments))
