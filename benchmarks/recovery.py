"""P9: how long an open takes that has to recover the ledger, and a ledger's shortest life."""

from __future__ import annotations

import asyncio
import os
import time

from benchmarks.figures import Figure, percentile
from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.store.connect import connect
from spark_bookkeeper import LocalCluster, aio
from spark_bookkeeper.blocking.loop_thread import shared_loop_thread

_IN_FLIGHT = 1_000
_BATCH = 10_000


async def _leave_open(bk: aio.BookKeeper, entries: int) -> int:
    """A ledger whose writer went away with its last thousand entries on their way."""
    writer = await bk.create_ledger()
    payload = os.urandom(100)
    for first in range(0, entries - _IN_FLIGHT, _BATCH):
        await writer.append_many([payload] * min(_BATCH, entries - _IN_FLIGHT - first))
    pending = asyncio.ensure_future(writer.append_many([payload] * _IN_FLIGHT))
    await asyncio.sleep(0.002)
    writer.abandon(ClientClosedError("a writer that died"))
    await asyncio.gather(pending, return_exceptions=True)
    return writer.ledger_id


async def _recover(uri: str, ledger_id: int) -> tuple[float, int]:
    async with aio.BookKeeper(uri) as bk:
        await bk.bookies()  # connected, as somebody who runs already
        began = time.perf_counter()
        reader = await bk.open_ledger(ledger_id, recovery=True)
        return time.perf_counter() - began, reader.last_add_confirmed + 1


async def _recoveries(uri: str, sizes: list[int], rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    shortest = 0.0
    async with aio.BookKeeper(uri) as bk:
        for entries in sizes:
            taken: list[float] = []
            recovered = 0
            for _ in range(rounds):
                seconds, recovered = await _recover(uri, await _leave_open(bk, entries))
                taken.append(seconds)
            median = percentile(sorted(taken), 0.5) * 1e3
            shortest = shortest or median
            figures.append(
                Figure(
                    "P9",
                    f"open with recovery, {entries} entries, {_IN_FLIGHT} in flight",
                    median,
                    "ms",
                    shortest,
                    f"with {sizes[0]} entries",
                    {"max_ms": max(taken) * 1e3, "recovered": recovered},
                )
            )
    return figures


async def _life(uri: str, rounds: int) -> Figure:
    taken: list[float] = []
    async with aio.BookKeeper(uri) as bk:
        for _ in range(rounds):
            began = time.perf_counter()
            writer = await bk.create_ledger()
            await writer.append(b"x")
            await writer.close()
            taken.append(time.perf_counter() - began)
    floor = await _metadata_writes(uri, rounds)
    what = "create, append one entry, close"
    return Figure("P9", what, percentile(sorted(taken), 0.5) * 1e3, "ms", floor, "its znode writes")


async def _metadata_writes(uri: str, rounds: int) -> float:
    """Median milliseconds of the two metadata writes a ledger's life needs, and nothing else."""
    store, root = await connect(uri)
    root = f"{root}-benchmark"
    async with store:
        await store.create(root, b"")
        taken: list[float] = []
        for number in range(rounds):
            began = time.perf_counter()
            await store.create(f"{root}/{number}", bytes(200))
            await store.put(f"{root}/{number}", bytes(200), 0)
            taken.append(time.perf_counter() - began)
        return percentile(sorted(taken), 0.5) * 1e3


def p9(seconds: float) -> list[Figure]:
    """Recovery must not grow with the ledger; a short life costs its metadata and little more."""
    sizes = [size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= seconds * 250_000]
    rounds = max(3, int(seconds * 5))
    with LocalCluster(bookies=3) as cluster:
        uri = cluster.metadata_service_uri
        run = shared_loop_thread().run
        return [*run(_recoveries(uri, sizes or [1_000], min(rounds, 5))), run(_life(uri, rounds))]
