"""Who takes over what a bookie should hold, and what that changes in the metadata.

Pure. Source: Apache ``LedgerFragmentReplicator.updateEnsembleInfo``.
"""

from __future__ import annotations

from collections.abc import Collection
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
    if ends_of(metadata)[at : at + 1] != [share.last_entry]:
        return Stop("its fragment has another end by now")
    ensemble = list(fragment.ensemble)
    ensemble[share.position] = bookie_id
    changed = replace(fragment, ensemble=tuple(ensemble))
    fragments = (*metadata.fragments[:at], changed, *metadata.fragments[at + 1 :])
    return replace(metadata, fragments=fragments)
