"""Where ledgers may be under-replicated, and what auto-recovery does about it, as documents with stable keys.

Reads the metadata store only: which copies are there, only reading them tells. See ``protocol.replication``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import SystemRandom
from typing import Any

from bookkeeper_metadata.election import elected_auditor
from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.underreplication import Underreplication
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


async def describe_auto_recovery(store: MetadataStore, root: str) -> dict[str, Any]:
    """Whether it is enabled, who is the auditor, how many ledgers are marked, and how many are being mended."""
    marks = marks_of(store, root)
    return {
        "is_enabled": await marks.is_enabled(),
        "auditor": await elected_auditor(store, root),
        "marked": len([each async for each in marks.list_marked_ledgers()]),
        "being_mended": len(await marks.list_locked_ledgers()),
    }


async def describe_marks(
    store: MetadataStore, root: str, count_max: int | None = None
) -> list[dict[str, Any]]:
    """The marked ledgers, or the first of them: whose copies are missing, since when, and what becomes of it."""
    marks = marks_of(store, root)
    locked, found = await marks.list_locked_ledgers(), list[dict[str, Any]]()
    async for ledger_id in marks.list_marked_ledgers():
        mark = await marks.read(ledger_id)
        if mark is None:
            continue  # mended since it was listed
        found.append(
            {
                "ledger_id": ledger_id,
                "bookies": list(mark.bookie_ids),
                "created_ms": mark.marked_ms,
                "state": "being mended" if ledger_id in locked else "waits",
            }
        )
        if len(found) == count_max:
            break
    return found


def marks_of(store: MetadataStore, root: str) -> Underreplication:
    """The marks of the cluster at ``root``."""
    return Underreplication(store, root, random=SystemRandom())
