"""P10: many ledgers on real bookies: what each costs while it lives, and that nothing stays when it is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks.figures import Figure
from benchmarks.stored import log_bytes
from spark_bookkeeper import LocalCluster, aio

T = TypeVar("T")
IN_FLIGHT = 48
FEW = 100
PROBES = 200
PAYLOAD = b"x" * 100
SETTINGS = {"gc_interval_ms": 1_000, "checkpoint_interval_ms": 1_000}
DELETED_WITHIN_S = 120.0


def p10_ledgers(seconds: float) -> list[Figure]:
    """About 250 ledgers a second of ``seconds``, each with one entry; then all of them deleted."""
    return asyncio.run(_measure(max(1_000, round(250 * seconds))))


async def _measure(count: int) -> list[Figure]:
    with LocalCluster(bookies=3, bookie_settings=SETTINGS) as cluster:
        async with aio.BookKeeper(cluster.metadata_service_uri) as bk:
            ids = await _each(range(FEW), lambda _: _create(bk))
            await asyncio.sleep(3)
            empty_rss = _rss_kib(cluster)
            few_ms = await _probe(bk, ids)
            began = time.perf_counter()
            ids += await _each(range(count), lambda _: _create(bk))
            rate = count / (time.perf_counter() - began)
            await asyncio.sleep(3)
            full_rss = _rss_kib(cluster)
            many_ms = await _probe(bk, ids)
            began = time.perf_counter()
            await _each(ids, bk.delete_ledger)
            deleting_s = time.perf_counter() - began
            back_s = await _space_back(cluster)
            rest_rss = _rss_kib(cluster)
    notes = {
        "deleted_a_s": len(ids) / deleting_s,
        "space_back_after_s": back_s,
        "bookie_kib_a_ledger": (full_rss - empty_rss) / count,
        "bookie_rss_mib": full_rss / 1024,
        "bookie_rss_mib_after": rest_rss / 1024,
    }
    return [
        Figure("P10", f"{count} ledgers created, written, closed", rate, "/s", notes=notes),
        Figure("P10", "add, read of one among many", few_ms, "ms", many_ms, "with many ledgers"),
    ]


async def _each(items: Iterable[int], act: Callable[[int], Awaitable[T]]) -> list[T]:
    waiting = iter(items)
    found: list[T] = []

    async def work() -> None:
        for item in waiting:
            found.append(await act(item))

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return found


async def _create(bk: aio.BookKeeper) -> int:
    writer = await bk.create_ledger()
    await writer.append(PAYLOAD)
    await writer.close()
    return writer.ledger_id


async def _probe(bk: aio.BookKeeper, ids: list[int]) -> float:
    """Milliseconds of one add to a new ledger and one read of an old one."""
    taken = []
    writer = await bk.create_ledger()
    for number in range(PROBES):
        began = time.perf_counter()
        await writer.append(PAYLOAD)
        reader = await bk.open_ledger(ids[number * len(ids) // PROBES])
        async for _ in reader.read(0, 0):
            pass
        taken.append(1000 * (time.perf_counter() - began))
    await writer.close()
    await bk.delete_ledger(writer.ledger_id)
    return median(taken)


async def _space_back(cluster: LocalCluster) -> float:
    """Seconds until the bookies' entry logs take a tenth of what they did."""
    began, full = time.perf_counter(), log_bytes(cluster)
    # Nothing tells when files are gone.
    while log_bytes(cluster) > full // 10 and time.perf_counter() - began < DELETED_WITHIN_S:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    return time.perf_counter() - began


def _rss_kib(cluster: LocalCluster) -> float:
    """Of the largest bookie."""
    found = []
    for bookie in cluster.bookies:
        status = Path(f"/proc/{bookie.pid}/status").read_text().splitlines()
        found.append(float(next(line for line in status if "VmRSS" in line).split()[1]))
    return max(found)
