"""P11: a bookie is lost, and everything it held is copied again: how fast, and what writers notice of it; and a scrape."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.disk import file_copy_mb_per_s
from benchmarks.figures import Figure
from benchmarks.processes import process_cpu_s
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper import LocalCluster, aio
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.replication.auto_recovery import run_auto_recovery
from spark_bookkeeper.replication.checking import find_ledgers_of
from spark_bookkeeper.replication.measures import ReplicationMeasures
from spark_bookkeeper.replication.settings import ReplicationSettings

PAYLOAD = os.urandom(64 * 1024)
BATCH = 64
IN_FLIGHT = 16
HEALED_WITHIN_S = 60
"""The pace at which writers must not notice much: what was lost is whole again after so long."""
SCRAPES = 200


def p11(seconds: float) -> list[Figure]:
    """64 MiB for each of ``seconds``, in one ledger, in 100 and in many; 16 are a GiB."""
    size_bytes = int(seconds * 64) << 20
    many = max(200, int(seconds * 625))
    figures = [_heal(size_bytes, ledgers) for ledgers in (1, 100, many)]
    return [*figures, _beside_writers(size_bytes, seconds), _scrape()]


@dataclass(frozen=True, slots=True)
class _Healing:
    """What it took, from when the metadata service had ended the lost bookie's session until no ledger named it."""

    noticed_s: float
    """Before that: from the bookie's death."""
    healed_s: float
    own_cpu_s: float
    """Of the process that heals."""
    bookies_cpu_s: float
    """Of those that are left, together."""


def _heal(size_bytes: int, ledgers: int) -> Figure:
    with LocalCluster(bookies=3) as cluster:
        copy = file_copy_mb_per_s(cluster.directory, size_bytes)
        healing = asyncio.run(_lose_and_heal(cluster, size_bytes, ledgers))
    what = f"{size_bytes >> 20} MiB in {ledgers} ledgers copied again"
    cpu_ms_per_mib = 1_000 * (1 << 20) / size_bytes
    notes = {
        "noticed_after_s": healing.noticed_s,
        "healed_after_s": healing.noticed_s + healing.healed_s,
        "healing_cpu_ms_per_mib": healing.own_cpu_s * cpu_ms_per_mib,
        "bookies_cpu_ms_per_mib": healing.bookies_cpu_s * cpu_ms_per_mib,
        "healing_cpu_ms_per_ledger": healing.own_cpu_s * 1_000 / ledgers,
    }
    rate = size_bytes / healing.healed_s / 1e6
    return Figure("P11", what, rate, "MB/s", copy, "a file's copy, synced", notes)


async def _lose_and_heal(cluster: LocalCluster, size_bytes: int, ledgers: int) -> _Healing:
    async with aio.BookKeeper(cluster.metadata_service_uri) as bk:
        await _write(bk, size_bytes, ledgers)
        cluster.add_bookie()
        lost = cluster.bookies[0]
        context, measures = (await bk.connect()).cluster, ReplicationMeasures()
        # A new cluster's first checks would be made meanwhile; and a loss is to be found when it is there to be found.
        settings = ReplicationSettings(
            bytes_per_second=0,
            poll_ms=20,
            replicas_check_interval_ms=0,
            ledgers_check_interval_ms=0,
        )
        healing = asyncio.create_task(
            run_auto_recovery(context, settings, holder="benchmark", measures=measures)
        )
        lost.kill()
        begun_s = time.perf_counter()
        await _wait_until_gone(context, lost.bookie_id)
        noticed_s, own_s, bookies_s = time.perf_counter(), time.process_time(), _cpu_s(cluster)
        while True:
            # Counted in this process: asking the metadata service would be half of the work.
            while measures.mended.count < ledgers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            healed = _Healing(
                noticed_s - begun_s,
                time.perf_counter() - noticed_s,
                time.process_time() - own_s,
                _cpu_s(cluster) - bookies_s,
            )
            if await _is_whole(context, lost.bookie_id):
                break
        healing.cancel()
        with suppress(asyncio.CancelledError):
            await healing
        return healed


def _cpu_s(cluster: LocalCluster) -> float:
    """Of the bookies that live."""
    return sum(process_cpu_s(bookie.pid) for bookie in cluster.bookies if bookie.pid)


async def _write(bk: aio.BookKeeper, size_bytes: int, ledgers: int) -> None:
    each_bytes, waiting = size_bytes // ledgers, iter(range(ledgers))

    async def work() -> None:
        for _ in waiting:
            async with await bk.create_ledger() as writer:
                left = each_bytes
                while left > 0:
                    count = max(1, min(BATCH, left // len(PAYLOAD)))
                    payload = PAYLOAD[: min(left, len(PAYLOAD))]
                    await writer.append_many([payload] * count)
                    left -= count * len(payload)

    await asyncio.gather(*(work() for _ in range(min(ledgers, IN_FLIGHT))))


async def _wait_until_gone(context: LedgerContext, bookie_id: str) -> None:
    """Wait until the metadata service has ended the bookie's session."""
    gone = asyncio.Event()

    def look(writable: frozenset[str], readonly: frozenset[str]) -> None:
        if bookie_id not in writable | readonly:
            gone.set()

    stop = await context.registry.watch(look)
    await gone.wait()
    stop()


async def _is_whole(context: LedgerContext, lost: str) -> bool:
    """Whether no ledger names the lost bookie and no mark is left."""
    marks = Underreplication(context.store, context.root, random=context.random)
    is_marked = [each async for each in marks.list_marked_ledgers()]
    return not is_marked and not await find_ledgers_of(context, lost)


def _beside_writers(size_bytes: int, seconds: float) -> Figure:
    """A writer at full speed, alone and while a bookie is healed at a pace."""
    with LocalCluster(bookies=3) as cluster:
        return asyncio.run(_write_beside(cluster, size_bytes, max(seconds, 5.0)))


async def _write_beside(cluster: LocalCluster, size_bytes: int, seconds: float) -> Figure:
    async with aio.BookKeeper(cluster.metadata_service_uri) as bk:
        await _write(bk, size_bytes, 20)
        cluster.add_bookie()
        lost = cluster.bookies[0]
        lost.kill()
        context, measures = (await bk.connect()).cluster, ReplicationMeasures()
        await _wait_until_gone(context, lost.bookie_id)
        async with await bk.create_ledger() as writer:
            await _rate(writer, 2)
            alone = await _rate(writer, seconds)
            settings = ReplicationSettings(
                bytes_per_second=max(1, (1 << 30) // HEALED_WITHIN_S), poll_ms=100
            )
            healing = asyncio.create_task(
                run_auto_recovery(context, settings, holder="benchmark", measures=measures)
            )
            while not measures.pace.begun_bytes:  # noqa: ASYNC110 - it is only counted
                await asyncio.sleep(0.05)
            before_bytes, begun_s = measures.pace.begun_bytes, time.perf_counter()
            beside = await _rate(
                writer, min(seconds, size_bytes / ((1 << 30) / HEALED_WITHIN_S) / 2)
            )
            copied = (measures.pace.begun_bytes - before_bytes) / (time.perf_counter() - begun_s)
            healing.cancel()
            with suppress(asyncio.CancelledError):
                await healing
    notes = {"healed_mb_a_s": copied / 1e6}
    return Figure(
        "P11", "append_many 64 KiB while it is healed", beside, "MB/s", alone, "alone", notes
    )


async def _rate(writer: aio.WriteHandle, seconds: float) -> float:
    begun_s, entries = time.perf_counter(), 0
    pending = [asyncio.ensure_future(writer.append_many([PAYLOAD] * 8)) for _ in range(8)]
    while time.perf_counter() - begun_s < seconds:
        await pending.pop(0)
        entries += 8
        pending.append(asyncio.ensure_future(writer.append_many([PAYLOAD] * 8)))
    await asyncio.gather(*pending)
    return (entries + 64) * len(PAYLOAD) / (time.perf_counter() - begun_s) / 1e6


def _scrape() -> Figure:
    """What a scrape costs a bookie that is asked without a pause: most of them are shown the last one again."""
    with LocalCluster(bookies=1) as cluster:
        (bookie,) = cluster.bookies
        assert bookie.pid is not None
        size_bytes = 0
        before_s, begun_s = process_cpu_s(bookie.pid), time.perf_counter()
        for _ in range(SCRAPES):
            with urllib.request.urlopen(f"{bookie.http_address}/metrics") as answer:
                size_bytes = len(answer.read())
        took_s = time.perf_counter() - begun_s
        cpu_ms = (process_cpu_s(bookie.pid) - before_s) / SCRAPES * 1_000
    notes = {"answered_after_ms": took_s / SCRAPES * 1_000, "bytes": float(size_bytes)}
    return Figure(
        "P11", "a scrape of a bookie without a pause, CPU", cpu_ms * 1_000, "us", notes=notes
    )
