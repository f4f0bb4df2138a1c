"""P4, P5, P6: one ledger on three bookies, E=WQ=3 AQ=2, fsync on, CRC32C."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.disk import REPLICA_WRITES, file_read_mb_per_s, synced_write_mb_per_s
from benchmarks.figures import Figure, percentile
from benchmarks.processes import process_cpu_s
from spark_bookkeeper import BookKeeper, LocalCluster, WriteHandle, aio
from spark_bookkeeper.blocking.add_future import AddFuture
from spark_bookkeeper.blocking.loop_thread import shared_loop_thread


@contextmanager
def cpu_of(cluster: LocalCluster, entries: int, notes: dict[str, float]) -> Iterator[None]:
    """Puts the CPU of an entry, on the client and on a bookie, into ``notes``."""
    pids = [bookie.pid for bookie in cluster.bookies if bookie.pid]
    before, own = [process_cpu_s(pid) for pid in pids], time.process_time()
    yield
    spent = [process_cpu_s(pid) - start for pid, start in zip(pids, before, strict=True)]
    notes["client_us"] = (time.process_time() - own) / entries * 1e6
    notes["bookie_us"] = max(spent) / entries * 1e6


async def append_in_batches(
    writer: aio.WriteHandle, payload: bytes, count: int, window: int
) -> None:
    """``count`` entries in batches of a tenth of the window, a window in flight."""
    batch = max(1, window // 10)
    pending: deque[asyncio.Task[range]] = deque()
    for _ in range(count // batch):
        if len(pending) * batch >= window:
            await pending.popleft()
        pending.append(asyncio.ensure_future(writer.append_many([payload] * batch)))
    await asyncio.gather(*pending)


async def _many(cluster: LocalCluster, size: int, count: int, window: int) -> Figure:
    notes: dict[str, float] = {}
    async with aio.BookKeeper(cluster.metadata_service_uri) as bk:
        writer = await bk.create_ledger()
        payload = os.urandom(size)
        await append_in_batches(writer, payload, count // 4, window)
        started = time.perf_counter()
        with cpu_of(cluster, count, notes):
            await append_in_batches(writer, payload, count, window)
        rate = count / (time.perf_counter() - started)
        await writer.close()
    notes["MB/s"] = rate * size / 1e6
    return Figure("P4", f"append_many {size} B, {window} in flight", rate, "adds/s", notes=notes)


def _append(writer: WriteHandle, payload: bytes, latencies: list[float] | None) -> AddFuture[int]:
    """Append, and note how long the acknowledgement took where that is wanted."""
    began = time.perf_counter()
    future = writer.append_async(payload)
    if latencies is not None:
        future.add_done_callback(lambda _: latencies.append(time.perf_counter() - began))
    return future


def _async(cluster: LocalCluster, size: int, count: int, window: int) -> Figure:
    notes: dict[str, float] = {}
    with BookKeeper(cluster.metadata_service_uri) as bk, bk.create_ledger() as writer:
        payload = os.urandom(size)
        latencies: list[float] = []

        def run(count: int) -> None:
            slots = threading.Semaphore(window)
            for index in range(count):
                slots.acquire()
                future = _append(writer, payload, latencies if index % 16 == 0 else None)
                future.add_done_callback(lambda _: slots.release())
            writer.flush()

        run(count // 4)
        latencies.clear()
        started = time.perf_counter()
        with cpu_of(cluster, count, notes):
            run(count)
        rate = count / (time.perf_counter() - started)
    latencies.sort()
    notes["p50_ms"] = percentile(latencies, 0.5) * 1e3
    notes["p99_ms"] = percentile(latencies, 0.99) * 1e3
    return Figure("P4", f"append_async {size} B, {window} in flight", rate, "adds/s", notes=notes)


def _paced(cluster: LocalCluster, size: int, per_s: int, seconds: float) -> Figure:
    with BookKeeper(cluster.metadata_service_uri) as bk, bk.create_ledger() as writer:
        latencies = sorted(_paced_latencies(writer, os.urandom(size), per_s, seconds))
    notes = {"p99_ms": percentile(latencies, 0.99) * 1e3}
    what = f"append_async {size} B paced at {per_s}/s, p50"
    return Figure("P4", what, percentile(latencies, 0.5) * 1e6, "us", notes=notes)


def _paced_latencies(
    writer: WriteHandle, payload: bytes, per_s: int, seconds: float
) -> list[float]:
    latencies: list[float] = []
    step, due = 10 / per_s, time.perf_counter()
    for _ in range(int(per_s * seconds / 10)):
        due += step
        time.sleep(max(0.0, due - time.perf_counter()))
        for _ in range(10):
            _append(writer, payload, latencies)
    writer.flush()
    return latencies


def p4(seconds: float) -> list[Figure]:
    """Small adds: rate through both ways of appending, and latency at a steady pace."""
    scale = seconds / 2
    with LocalCluster(bookies=3) as cluster:
        return [
            shared_loop_thread().run(_many(cluster, 1024, int(100_000 * scale), 1_000)),
            _async(cluster, 1024, int(100_000 * scale), 1_000),
            _async(cluster, 100, int(300_000 * scale), 5_000),
            _paced(cluster, 1024, 10_000, seconds),
        ]


def p5(seconds: float) -> list[Figure]:
    """Large adds against the disk: fdatasync's rate over the writes each byte costs."""
    figures = []
    with LocalCluster(bookies=3) as cluster:
        for size, window, count in ((65_536, 100, 2_000), (1 << 20, 16, 200)):
            entries = int(count * seconds)
            figure = shared_loop_thread().run(_many(cluster, size, entries, window))
            disk = synced_write_mb_per_s(cluster.directory, 1 << 20) / REPLICA_WRITES
            what = f"append_many {size >> 10} KiB, {window} in flight"
            notes = {key: figure.notes[key] for key in ("client_us", "bookie_us")}
            rate = figure.notes["MB/s"]
            figures.append(Figure("P5", what, rate, "MB/s", disk, "disk's fdatasync / 6", notes))
    return figures


async def _write_for_reading(uri: str, size: int, total: int) -> int:
    async with aio.BookKeeper(uri) as bk:
        writer = await bk.create_ledger()
        await append_in_batches(writer, os.urandom(size), total // size, max(10, (1 << 24) // size))
        await writer.close()
        return writer.ledger_id


async def _read(uri: str, ledger_id: int) -> float:
    async with aio.BookKeeper(uri) as bk:
        reader = await bk.open_ledger(ledger_id)
        started, size = time.perf_counter(), 0
        async for run in reader.read_runs(0, reader.last_add_confirmed):
            size += run.size_bytes
        return size / (time.perf_counter() - started) / 1e6


def p6(seconds: float) -> list[Figure]:
    """Sequential read of a closed ledger: from entry logs not in the page cache, then again."""
    figures = []
    with LocalCluster(bookies=3) as cluster:
        ceiling = file_read_mb_per_s(cluster.directory)
        uri = cluster.metadata_service_uri
        for size in (1024, 65_536, 1 << 20):
            ledger_id = shared_loop_thread().run(
                _write_for_reading(uri, size, int(seconds * 64) << 20)
            )
            for bookie in cluster.bookies:
                bookie.stop()  # it checkpoints; written directly, nothing is cached
                bookie.start()
            for when in ("cold", "warm"):
                rate = shared_loop_thread().run(_read(uri, ledger_id))
                what = f"read {size} B entries, {when}"
                figures.append(Figure("P6", what, rate, "MB/s", ceiling, "a plain file read, warm"))
    return figures
