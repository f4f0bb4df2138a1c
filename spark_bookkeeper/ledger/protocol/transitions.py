"""What a writer and a recovery may make of a ledger's metadata, given how it stands now.

Each is decided anew whenever a compare-and-set was lost, on what is there then. OPEN belongs to the
writer, IN_RECOVERY to any recovering client, CLOSED to none: it is never left, and its last entry never
changes. Source: Apache ``LedgerHandle.ensembleChangeLoop``, ``doAsyncCloseInternal``,
``LedgerRecoveryOp.closeAndCallback``; BookKeeperProtocol.tla.
"""

from __future__ import annotations

from dataclasses import replace

from bookkeeper_metadata.errors import MetadataConflictError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import Fragment, LedgerMetadata, LedgerState, Stop
from spark_bookkeeper.ledger.errors import LedgerFencedError


def put_in_force(
    ledger_id: int, metadata: LedgerMetadata, first_entry: int, ensemble: tuple[str, ...]
) -> LedgerMetadata | Stop[BookKeeperError]:
    """A writer's ensemble change; stops where a recovery or a close has ended its turn."""
    # Closed: by a recovery, too, for the writer's own close ends its changes first. What is in flight may be kept.
    if metadata.is_closed or metadata.state is LedgerState.IN_RECOVERY:
        return Stop(LedgerFencedError(ledger_id))
    return metadata.with_ensemble(first_entry, ensemble)


def closed_by_writer(
    ledger_id: int,
    metadata: LedgerMetadata,
    last_entry: int,
    length: int,
    ended: BookKeeperError | None,
) -> LedgerMetadata | Stop[BookKeeperError]:
    """A writer's close; ``ended`` is why it stopped writing, if it had to.

    The protocol page has a writer withdraw from a recovery; Apache's closes over it.
    """
    if metadata.state is LedgerState.IN_RECOVERY:
        return Stop(LedgerFencedError(ledger_id))
    if not metadata.is_closed:
        return metadata.closed(last_entry, length)
    # Our own close whose reply was lost, or a recovery that came to the same end: done.
    if metadata.last_entry == last_entry:
        return metadata
    # A fenced writer expects another end than its own: a recovery may keep entries that were
    # stored and never acknowledged.
    if isinstance(ended, LedgerFencedError):
        return Stop(ended)
    detail = f"closed at {metadata.last_entry}, written to {last_entry}"
    return Stop(MetadataConflictError(f"ledger {ledger_id}", detail))


def marked_in_recovery(metadata: LedgerMetadata) -> LedgerMetadata:
    """How a recovery begins; one that is under way is joined, a closed ledger is left alone."""
    return metadata if metadata.is_closed else metadata.in_recovery()


def closed_by_recovery(
    metadata: LedgerMetadata,
    read_from: Fragment,
    written_to: tuple[Fragment, ...],
    last_entry: int,
    length: int,
) -> LedgerMetadata | Stop[Fragment]:
    """A recovery's close, with the ensembles it wrote back to in place of the one it read from.

    Another recoverer's or the writer's end stands. Fragments before the last may be re-replicated
    meanwhile; when the last one changed, the recovery has not read all it needs and stops.
    """
    if metadata.is_closed:
        return metadata
    # A writer's ensemble change won just before IN_RECOVERY did. Its new bookies may hold
    # acknowledged entries that were not asked for.
    if metadata.last_fragment != read_from:
        return Stop(metadata.last_fragment)
    # Taken from the metadata as it is now, so that a replication that finished meanwhile is not
    # undone.
    fragments = (*metadata.fragments[:-1], *written_to)
    return replace(metadata, fragments=fragments).closed(last_entry, length)
