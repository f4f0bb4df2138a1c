"""P8: from an append by a live writer to the entry in the hands of a tailing reader."""

from __future__ import annotations

import asyncio
import os
import time

from benchmarks.figures import Figure, percentile
from spark_bookkeeper import LocalCluster, aio
from spark_bookkeeper.blocking.loop_thread import shared_loop_thread

_SIZE = 1024
_RATES_PER_S = (20, 200, 2_000)
"""A writer at rest between entries, whose LAC goes by itself; and others, whose next entry brings it."""


async def _latencies(uri: str, per_s: int, seconds: float) -> list[float]:
    """Seconds from append to arrival, ascending; writer and reader are two clients on one loop."""
    count = max(10, int(per_s * seconds))
    began: list[float] = []
    arrived: list[float] = []
    async with aio.BookKeeper(uri) as writing, aio.BookKeeper(uri) as reading:
        writer = await writing.create_ledger()
        payload = os.urandom(_SIZE)
        await writer.append(payload)  # connects
        reader = await reading.open_ledger(writer.ledger_id)

        async def follow() -> None:
            async for _ in reader.tail(1):
                arrived.append(time.perf_counter())

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.2)
        due = time.perf_counter()
        for _ in range(count):
            due += 1 / per_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            began.append(time.perf_counter())
            writer.append_async(payload)
        await writer.flush()
        await asyncio.sleep(0.1)
        await writer.close()
        await following
    return sorted(end - start for start, end in zip(began, arrived, strict=True))


def p8(seconds: float) -> list[Figure]:
    """Tail latency at three paces, E=WQ=3 AQ=2, fsync on."""
    figures = []
    with LocalCluster(bookies=3) as cluster:
        for per_s in _RATES_PER_S:
            uri = cluster.metadata_service_uri
            latencies = shared_loop_thread().run(_latencies(uri, per_s, seconds))
            notes = {"p99_ms": percentile(latencies, 0.99) * 1e3}
            what = f"append to tail, {_SIZE} B at {per_s}/s, p50"
            figures.append(Figure("P8", what, percentile(latencies, 0.5) * 1e6, "us", notes=notes))
    return figures
