"""Where ledgers may be under-replicated, as documents with stable keys; see ``protocol.replication``.

Reads the metadata store only: which copies are there, only reading them tells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.protocol.replication import away_members, held_members

READS_MAX = 64
"""Ledgers' metadata read at a time."""


def describe_replication(
    metadata: LedgerMetadata, registered: Collection[str]
) -> dict[str, list[str]]:
    """``away``: bookies that should hold entries and are not registered; ``held``: at its creation."""
    away = {b for each in metadata.fragments for b in away_members(metadata, each, registered)}
    return {"away": sorted(away), "held": list(held_members(metadata))}


async def describe_short_ledgers(
    client: LedgerClient, ledger_ids: Iterable[int]
) -> list[dict[str, Any]]:
    """Those of the ledgers that may lack copies, with why; one that is gone lacks nothing."""
    registered = {bookie.bookie_id for bookie in await client.bookies()}

    async def describe(ledger_id: int) -> dict[str, Any]:
        try:
            metadata = (await client.cluster.ledgers.read(ledger_id)).metadata
        except NoSuchLedgerError:
            return {}
        found = describe_replication(metadata, registered)
        return {"ledger_id": ledger_id, **found} if any(found.values()) else {}

    return [found for found in await each(describe, ledger_ids, concurrency_max=READS_MAX) if found]
