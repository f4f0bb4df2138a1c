"""P10: what a bookie that was killed takes to start again, for each GiB of journal it has to read."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import google_crc32c

from benchmarks.figures import Figure
from benchmarks.processes import process_cpu_s
from spark_bookkeeper import LocalCluster, aio

GIB = 1024**3
RUN_BYTES = 4 * 1024 * 1024
SETTINGS = {
    # All that is written stays in the journal.
    "checkpoint_interval_ms": 3_600_000,
    "write_cache_size_bytes": GIB,
    "journal_file_size_bytes": 16 * 1024 * 1024,
}


WRITERS = 100
"""Of entries that are sent alone: one is on its way for each."""


def p10_start(seconds: float) -> list[Figure]:
    """Each kind is written for so long, and read again by a bookie that begins anew."""
    return [
        asyncio.run(_measure(what, size, writers, seconds))
        for what, size, writers in (
            ("64 KiB entries in runs", 64 * 1024, 1),
            ("1 KiB entries in runs", 1024, 1),
            ("100-byte entries, each sent alone", 100, WRITERS),
        )
    ]


async def _measure(what: str, size: int, writers: int, seconds: float) -> Figure:
    with LocalCluster(bookies=1, bookie_settings=SETTINGS) as cluster:
        (bookie,) = cluster.bookies
        assert bookie.pid is not None
        empty_s = process_cpu_s(bookie.pid)
        async with aio.BookKeeper(cluster.metadata_service_uri) as bk:
            handles = [
                await bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
                for _ in range(writers)
            ]
            batch = [bytes(size)] * (1 if writers > 1 else RUN_BYTES // size)
            ends = time.perf_counter() + seconds
            added = await asyncio.gather(*(_add(handle, batch, ends) for handle in handles))
            # Before the ledgers are closed, which takes its time.
            bookie.kill()
        pass_s, gib = _pass(bookie.directory / "journal")
        bookie.start()
        spent_s = process_cpu_s(bookie.pid) - empty_s
    notes = {"journal_mib": gib * 1024, "us_an_entry": spent_s / sum(added) * 1e6}
    name = f"CPU of a start behind {what}"
    passing = pass_s / gib * 1000
    return Figure("P10", name, spent_s / gib * 1000, "ms/GiB", passing, "reading, CRC32C", notes)


async def _add(writer: aio.WriteHandle, batch: list[bytes], ends: float) -> int:
    """How many entries became durable until then."""
    added = 0
    while time.perf_counter() < ends:
        added += len(await writer.append_many(batch))
    return added


def _pass(directory: Path) -> tuple[float, float]:
    """CPU seconds of reading a directory's files, and of one checksum over them; their GiB.

    What was filled with zeros ahead of its use counts, too: at most a file of 16 MiB.
    """
    size, began = 0, time.process_time()
    for path in directory.iterdir():
        with path.open("rb") as file:
            while piece := file.read(1024 * 1024):
                google_crc32c.value(piece)
                size += len(piece)
    return time.process_time() - began, size / GIB
