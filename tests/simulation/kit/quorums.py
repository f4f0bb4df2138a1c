"""Who has to hold an entry, worked out by hand: a mistake in the product's must not blind a checker."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

from bookkeeper_metadata.model import LedgerMetadata


def write_set(metadata: LedgerMetadata, entry: int) -> list[str]:
    """The bookies that have to store an entry, worked out by hand."""
    ensemble: tuple[str, ...] = ()
    for fragment in metadata.fragments:
        if fragment.first_entry <= entry:
            ensemble = fragment.ensemble
    return _cohort(metadata, ensemble, entry)


def no_ack_quorum_without(metadata: LedgerMetadata, bookies: Collection[str]) -> bool:
    """Whether every set of bookies that could acknowledge an entry of the last fragment holds one
    of these: the wording of the specification, tried out.
    """
    ensemble = metadata.fragments[-1].ensemble
    return all(
        any(bookie in bookies for bookie in quorum)
        for entry in range(metadata.ensemble_size)
        for quorum in combinations(_cohort(metadata, ensemble, entry), metadata.ack_quorum)
    )


def _cohort(metadata: LedgerMetadata, ensemble: tuple[str, ...], entry: int) -> list[str]:
    size = metadata.ensemble_size
    return [ensemble[(entry + offset) % size] for offset in range(metadata.write_quorum)]
