"""``ledgers verify --repair``: gives a ledger the copies that it was found to lack, and looks again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import SystemRandom

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper import aio
from spark_bookkeeper.cli.ledgers.verification import Verification, verify_one
from spark_bookkeeper.replication.auto_recovery import name_of_process
from spark_bookkeeper.replication.mending import LedgerMender


async def repair_ledgers(
    client: aio.BookKeeper, found: AsyncIterator[Verification], password: bytes
) -> AsyncIterator[Verification]:
    """The same; a ledger that lacks good copies is mended under the lock of auto-recovery, and verified again.

    What is wrong with it still, and why, is in the second outcome.
    """
    cluster = (await client.connect()).cluster
    marks = Underreplication(cluster.store, cluster.root, random=SystemRandom())
    mender = LedgerMender(cluster, LoopPace(0))
    async for before in found:
        if not before.needs_repair:
            yield before
            continue
        left = await _mend(marks, mender, before.ledger_id)
        after = await verify_one(client, before.ledger_id, password)
        after.repaired = before.bad_copies - after.bad_copies
        after.not_repaired = left
        yield after


async def _mend(marks: Underreplication, mender: LedgerMender, ledger_id: int) -> list[str]:
    """What could not be mended, a line each."""
    try:
        async with marks.lock(ledger_id, name_of_process()) as is_held:
            if not is_held:
                return ["auto-recovery is mending it now"]
            mended = await mender.mend(ledger_id)
    except BookKeeperError as error:
        return [f"{error.name}: {error}"]
    if mended.open_fragment is not None:
        return [*mended.left, "its writer may still replace a bookie that is away"]
    return mended.left
