"""The bookies of a cluster as documents: what the metadata knows of each, and what it says of itself."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from spark_bookkeeper.ledger.client import BookieStatus, LedgerClient

if TYPE_CHECKING:
    from bookie_server.wire.messages import BookieInfo

ANSWER_TIMEOUT_S = 3.0
"""A bookie that says nothing for so long is shown without what only it knows."""


async def describe_bookies(client: LedgerClient) -> list[dict[str, Any]]:
    """Every bookie that ever belonged to the cluster, by id: its state, its ledgers, its disk.

    ``state`` is writable, readonly or away. What a bookie knows only itself is ``None`` where it does not answer.
    """
    known = await client.bookies(with_away=True)
    present = tuple(each.bookie_id for each in known if not each.is_away)
    await client.cluster.prepare(present)
    infos = await asyncio.gather(*(_ask(client, bookie_id) for bookie_id in present))
    info_of = dict(zip(present, infos, strict=True))
    return [_document(each, info_of.get(each.bookie_id)) for each in known]


async def _ask(client: LedgerClient, bookie_id: str) -> BookieInfo | None:
    try:
        return await asyncio.wait_for(client.cluster.client(bookie_id).info(), ANSWER_TIMEOUT_S)
    except TimeoutError:
        return None


def _document(bookie: BookieStatus, info: BookieInfo | None) -> dict[str, Any]:
    answers = info is not None
    return {
        **asdict(bookie),
        "state": _state(bookie),
        "answers": answers,
        "version": info.version if info else None,
        "ledger_count": info.ledger_count if info else None,
        "limbo_count": info.limbo_count if info else None,
        "disk_total_bytes": info.disk_total_bytes if info else None,
        "disk_free_bytes": info.disk_free_bytes if info else None,
    }


def _state(bookie: BookieStatus) -> str:
    if bookie.is_away:
        return "away"
    return "writable" if bookie.writable else "readonly"
