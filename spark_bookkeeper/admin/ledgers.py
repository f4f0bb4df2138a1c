"""Ledgers' metadata as documents with stable keys; the password stays out. Reads the metadata store only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from bookkeeper_metadata.errors import MetadataCorruptError, NoSuchLedgerError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.admin.replication import READS_MAX, describe_replication
from spark_bookkeeper.admin.text import printable
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.protocol.replication import away_members


def describe_ledger(
    ledger_id: int, metadata: LedgerMetadata, registered: Collection[str]
) -> dict[str, Any]:
    """All of one ledger's metadata; ``registered``: bookies that serve what they have."""
    return {
        **_state(ledger_id, metadata),
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "digest_type": metadata.digest_type.name,
        "created_ms": metadata.created_ms,
        **describe_replication(metadata, registered),
        "custom_metadata": {
            key: printable(value) for key, value in metadata.custom_metadata.items()
        },
        "fragments": [
            {**asdict(each), "away": list(away_members(metadata, each, registered))}
            for each in metadata.fragments
        ],
    }


def summarize_ledger(
    ledger_id: int, metadata: LedgerMetadata, registered: Collection[str]
) -> dict[str, Any]:
    """A ledger in a list of many."""
    return {
        **_state(ledger_id, metadata),
        "quorums": f"{metadata.ensemble_size}/{metadata.write_quorum}/{metadata.ack_quorum}",
        "fragments": len(metadata.fragments),
        **describe_replication(metadata, registered),
    }


async def newest_ledgers(
    client: LedgerClient, count: int, below: int | None = None
) -> list[dict[str, Any]]:
    """Summaries of the ledgers with the highest ids, descending; ``below``: of those with lower ones."""
    registered = {bookie.bookie_id for bookie in await client.bookies()}
    ledger_ids: list[int] = []
    async for ledger_id in client.cluster.ledgers.list_ids(is_descending=True):
        if below is None or ledger_id < below:
            ledger_ids.append(ledger_id)
        if len(ledger_ids) == count:
            break

    async def summarize(ledger_id: int) -> dict[str, Any] | None:
        try:
            metadata = (await client.cluster.ledgers.read(ledger_id)).metadata
        except NoSuchLedgerError:
            return None  # deleted since it was listed
        except MetadataCorruptError:
            return {"ledger_id": ledger_id, "state": "UNREADABLE", **_UNREADABLE}
        return summarize_ledger(ledger_id, metadata, registered)

    found = await each(summarize, ledger_ids, concurrency_max=READS_MAX)
    return [summary for summary in found if summary is not None]


_UNREADABLE = {"last_entry": None, "length": None, "quorums": None, "fragments": None} | {
    "away": (),
    "held": (),
}


def _state(ledger_id: int, metadata: LedgerMetadata) -> dict[str, Any]:
    """How both documents begin; only a closed ledger has a last entry and a length."""
    return {
        "ledger_id": ledger_id,
        "state": metadata.state.name,
        "last_entry": metadata.last_entry if metadata.is_closed else None,
        "length": metadata.length if metadata.is_closed else None,
    }
