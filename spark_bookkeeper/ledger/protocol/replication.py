"""Which copies a ledger may lack, as far as its metadata and the registrations of this moment say.

Two things are known without asking a bookie. A member that is *away*, registered by no process now,
serves no copy. A member whose place was *held* when the ledger was created missed entries until it
was taken in; its name stays in the ledger's custom metadata, which Apache's clients carry along and
its re-replication leaves as it is. That is history: a copy that was made since does not undo it, and
a bookie that failed a writer later leaves no mark. What copies there are only reading them tells
(`bookkeeper ledgers verify`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bookkeeper_metadata.model import Fragment, LedgerMetadata
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig

HELD_MARK = "heldPlaces"
"""Custom metadata key of a ledger created with held places: their bookies' ids, comma-separated."""


def with_held_mark(custom: Mapping[str, bytes], held: Collection[str]) -> dict[str, bytes]:
    """The custom metadata of a ledger whose places for ``held`` bookies are theirs but empty."""
    return {**custom, HELD_MARK: ",".join(sorted(held)).encode()} if held else dict(custom)


def held_members(metadata: LedgerMetadata) -> tuple[str, ...]:
    """Members that were away when the ledger was created and hold entries of its first fragment."""
    marked = metadata.custom_metadata.get(HELD_MARK, b"").decode(errors="replace").split(",")
    # One that was replaced before anything was acknowledged has missed nothing.
    return tuple(each for each in marked if each in _holders(metadata, metadata.fragments[0]))


def away_members(
    metadata: LedgerMetadata, fragment: Fragment, registered: Collection[str]
) -> tuple[str, ...]:
    """Members that should hold entries of the fragment and are not among the ``registered``."""
    return tuple(each for each in _holders(metadata, fragment) if each not in registered)


def _holders(metadata: LedgerMetadata, fragment: Fragment) -> tuple[str, ...]:
    """The members of a fragment that are in the write set of an entry of it, in their order."""
    quorum = QuorumConfig.of(metadata)
    first = fragment.first_entry
    following = (each.first_entry for each in metadata.fragments if each.first_entry > first)
    end = next(following, metadata.last_entry + 1 if metadata.is_closed else None)
    # Write sets repeat after an ensemble's length. Of an open ledger's last fragment nobody here
    # knows how many entries it has.
    stop = first + quorum.ensemble_size
    ids = range(first, stop if end is None else min(stop, end))
    positions = {position for entry_id in ids for position in quorum.write_set(entry_id)}
    return tuple(fragment.ensemble[position] for position in sorted(positions))
