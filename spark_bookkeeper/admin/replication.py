"""Where ledgers may be under-replicated, and what auto-recovery does about it, as documents with stable keys.

Reads the metadata store only: which copies are there, only reading them tells. See ``protocol.replication``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import SystemRandom
from typing import Any

from bookkeeper_metadata.election import elected_auditor
from bookkeeper_metadata.errors import MetadataCorruptError, NoSuchLedgerError
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
    return await _describe_switch(store, root) | {
        "marked": len([each async for each in marks_of(store, root).list_marked_ledgers()])
    }


async def describe_healing(
    store: MetadataStore, root: str, *, count_max: int, marks_max: int
) -> dict[str, Any]:
    """The same with the first ``marks_max`` marks; ``marked`` counts no further than ``count_max``."""
    ledger_ids = []
    async for ledger_id in marks_of(store, root).list_marked_ledgers():
        ledger_ids.append(ledger_id)
        if len(ledger_ids) == count_max:
            break
    return await _describe_switch(store, root) | {
        "marked": len(ledger_ids),
        "counts_at_most": count_max,
        "marks": await _describe_marks(store, root, ledger_ids[:marks_max]),
    }


async def _describe_switch(store: MetadataStore, root: str) -> dict[str, Any]:
    marks = marks_of(store, root)
    return {
        "is_enabled": await marks.is_enabled(),
        "auditor": await elected_auditor(store, root),
        "being_mended": len(await marks.list_locked_ledgers()),
    }


async def describe_marks(store: MetadataStore, root: str) -> list[dict[str, Any]]:
    """The marked ledgers: whose copies are missing, since when, and what becomes of it."""
    found = [each async for each in marks_of(store, root).list_marked_ledgers()]
    return await _describe_marks(store, root, found)


async def _describe_marks(
    store: MetadataStore, root: str, ledger_ids: Iterable[int]
) -> list[dict[str, Any]]:
    marks = marks_of(store, root)
    locked = await marks.list_locked_ledgers()

    async def describe(ledger_id: int) -> dict[str, Any] | None:
        state = "being mended" if ledger_id in locked else "waits"
        bookie_ids, marked_ms = list[str](), None
        try:
            mark = await marks.read(ledger_id)
        except MetadataCorruptError as corrupt:
            state = f"cannot be read: {corrupt}"
        else:
            if mark is None:
                return None  # mended since it was listed
            bookie_ids, marked_ms = list(mark.bookie_ids), mark.marked_ms
        return {
            "ledger_id": ledger_id,
            "bookies": bookie_ids,
            "created_ms": marked_ms,
            "state": state,
        }

    found = await each(describe, ledger_ids, concurrency_max=READS_MAX)
    return [document for document in found if document is not None]


def marks_of(store: MetadataStore, root: str) -> Underreplication:
    """The marks of the cluster at ``root``."""
    return Underreplication(store, root, random=SystemRandom())
