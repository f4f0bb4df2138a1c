"""P8: from an append by a live writer to the entry in the hands of a tailing reader.

Writer and reader are processes of their own, as they would be; both read the machine's monotonic
clock. ``python -m benchmarks.tailing URI LEDGER`` is the reader: it tails the ledger to its close
and prints when each entry arrived. How long the writer's own acknowledgements took, which are the first half of
the way, and what an entry cost each process is printed beside.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from benchmarks.figures import Figure, percentile
from benchmarks.ledgers import cpu_of
from benchmarks.processes import process_cpu_s
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


async def _latencies(
    cluster: LocalCluster, per_s: int, seconds: float, notes: dict[str, float]
) -> list[float]:
    """Seconds from append to arrival, ascending."""
    began: list[float] = []
    acknowledged: list[float] = []
    uri = cluster.metadata_service_uri
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
        count, reader_s = max(10, int(per_s * seconds)), process_cpu_s(reader.pid)
        with cpu_of(cluster, count, notes):
            due = time.monotonic()
            for _ in range(count):
                due += 1 / per_s
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                began.append(time.monotonic())
                adding = writer.append_async(payload)
                adding.add_done_callback(lambda _: acknowledged.append(time.monotonic()))
            await writer.flush()
            await asyncio.sleep(0.1)
        notes["reader_us"] = (process_cpu_s(reader.pid) - reader_s) / count * 1e6
        await writer.close()
        printed, _ = await reader.communicate()
    arrived = json.loads(printed)[1:]
    to_writer = sorted(end - start for start, end in zip(began, acknowledged, strict=True))
    notes["acknowledged_p50_ms"] = percentile(to_writer, 0.5) * 1e3
    return sorted(end - start for start, end in zip(began, arrived, strict=True))


def p8(seconds: float) -> list[Figure]:
    """Tail latency at three paces, E=WQ=3 AQ=2, fsync on."""
    figures = []
    with LocalCluster(bookies=3) as cluster:
        for per_s in _RATES_PER_S:
            notes: dict[str, float] = {}
            latencies = shared_loop_thread().run(_latencies(cluster, per_s, seconds, notes))
            notes["p99_ms"] = percentile(latencies, 0.99) * 1e3
            what = f"append to tail, {_SIZE} B at {per_s}/s, p50"
            figures.append(Figure("P8", what, percentile(latencies, 0.5) * 1e6, "us", notes=notes))
    return figures


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_arrivals(sys.argv[1], int(sys.argv[2])))))
