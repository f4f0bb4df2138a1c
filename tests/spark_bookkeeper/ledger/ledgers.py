"""What tests of ledgers do again and again: read all, leave an entry at some bookies only."""

from __future__ import annotations

import asyncio

from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.read_handle import ReadHandle
from tests.doubles.bookies import Faults
from tests.doubles.cluster import InProcessCluster


async def read_all(reader: ReadHandle) -> list[bytes]:
    """Every confirmed entry's payload."""
    return [bytes(entry.payload) async for entry in reader.read(0, reader.last_add_confirmed)]


async def read_ledger(client: LedgerClient, ledger_id: int) -> list[bytes]:
    """As a reader that opens it now sees it."""
    return await read_all(await client.open_ledger(ledger_id))


async def settle_adds(cluster: InProcessCluster) -> None:
    """Let every add that reached a bookie become durable."""
    await asyncio.sleep(0)
    for bookie in cluster.bookies.values():
        await bookie.wait_until_settled()
    await asyncio.sleep(0)


async def open_ledger_with_tail(
    cluster: InProcessCluster, client: LedgerClient, *, tail_on: set[int]
) -> tuple[int, list[Faults]]:
    """Two acknowledged entries, then one that reached only the positions in ``tail_on``."""
    writer = await client.create_ledger()
    faults = cluster.ensemble_faults(writer.metadata.last_fragment.ensemble)
    await writer.append_many([b"0", b"1"])
    for position, fault in enumerate(faults):
        fault.drops_writes = position not in tail_on
    writer.append_async(b"tail").add_done_callback(lambda f: f.cancelled() or f.exception())
    await settle_adds(cluster)
    for fault in faults:
        fault.drops_writes = False
    return writer.ledger_id, faults
