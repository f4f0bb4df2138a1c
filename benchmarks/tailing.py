"""P8: from an append by a live writer to the entry in the hands of a tailing reader.

Writer and reader are processes of their own, as they would be; both read the machine's monotonic
clock. ``python -m benchmarks.tailing URI LEDGER`` is the reader: it tails the ledger to its close
and prints when each entry arrived.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from benchmarks.figures import Figure, percentile
from spark_bookkeeper import LocalCluster, aio
from spark_bookkeeper.blocking.loop_thread import shared_loop_thread

_SIZE = 1024
_RATES_PER_S = (20, 200, 2_000)
"""A writer at rest between entries, whose LAC goes by itself; and others, whose next entry brings it."""


async def _arrivals(uri: str, ledger_id: int) -> list[float]:
    arrived: list[float] = []
    async with aio.BookKeeper(uri) as client:
        reader = await client.open_ledger(ledger_id)
        async for entry in reader.tail(0):
            arrived.append(time.monotonic())
            if entry.entry_id == 0:
                sys.stdout.write("ready\n")
                sys.stdout.flush()
    return arrived


async def _latencies(uri: str, per_s: int, seconds: float) -> list[float]:
    """Seconds from append to arrival, ascending."""
    began: list[float] = []
    async with aio.BookKeeper(uri) as client:
        writer = await client.create_ledger()
        payload = os.urandom(_SIZE)
        await writer.append(payload)  # connects
        reader = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.tailing", uri, str(writer.ledger_id)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert reader.stdout is not None
        await reader.stdout.readline()
        due = time.monotonic()
        for _ in range(max(10, int(per_s * seconds))):
            due += 1 / per_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            began.append(time.monotonic())
            writer.append_async(payload)
        await writer.flush()
        await asyncio.sleep(0.1)
        await writer.close()
        printed, _ = await reader.communicate()
    arrived = json.loads(printed)[1:]
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


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_arrivals(sys.argv[1], int(sys.argv[2])))))
