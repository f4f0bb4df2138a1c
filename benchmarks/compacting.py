"""P10: what compaction and optimize take of those who write meanwhile, how soon space is back, what bookies write.

The writer's speed without them is the mean of before and after, for a cluster does not stay the same.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.stored import log_bytes
from spark_bookkeeper import BookKeeper, LocalCluster

LEDGERS = 8
"""Side by side in every entry log; one of them stays."""
PAYLOAD = bytes(64 * 1024)
BATCH = 64
COPIES = 3
RANGE_ENTRIES = 16
"""A MiB."""
SETTINGS = {"gc_interval_ms": 1_000}
BACK_WITHIN_S = 120.0
WINDOW_S = 20.0
"""How long somebody writes, at least: a fraction of a minute, in which a GiB is to be given back."""
MIB = 1024 * 1024


def p10_compaction(seconds: float) -> list[Figure]:
    """Stores 100 MiB a bookie for each of ``seconds``, deletes seven of eight ledgers, and writes meanwhile."""
    with (
        LocalCluster(bookies=3, bookie_settings=SETTINGS) as cluster,
        BookKeeper(cluster.metadata_service_uri) as bk,
    ):
        written = _written_bytes(cluster)
        dead = _fill(bk, rounds=max(1, round(100 * seconds * MIB / LEDGERS / BATCH / len(PAYLOAD))))
        # All that was written rests in entry logs then, as far as it is more than a cache's worth.
        time.sleep(12)
        stored = log_bytes(cluster)
        amplification = (_written_bytes(cluster) - written) / stored
        alone = _write(bk, lambda taken_s, _: taken_s < WINDOW_S)
        full = log_bytes(cluster)
        for ledger_id in dead:
            bk.delete_ledger(ledger_id)
        wanted = stored * (LEDGERS - 1) / LEDGERS * 0.9
        back_s = 0.0

        def goes_on(taken_s: float, added: int) -> bool:
            nonlocal back_s
            if not back_s and full + added - log_bytes(cluster) >= wanted:
                back_s = taken_s
            return taken_s < (WINDOW_S if back_s else BACK_WITHIN_S)

        beside = _write(bk, goes_on)
        alone = (alone + _write(bk, lambda taken_s, _: taken_s < WINDOW_S)) / 2
    notes = {
        "freed_mib": wanted / MIB,
        "space_back_after_s": back_s,
        "written_a_stored_byte": amplification,
        # Every byte of a journal is filled with a zero ahead of its use.
        "without_zeros": (amplification + 1) / 2,
    }
    name = "64 KiB append_many while 7 of 8 ledgers are deleted and their logs rewritten"
    return [Figure("P10", name, beside, "MB/s", alone, "with nothing to rewrite", notes)]


def p10_optimize_beside(seconds: float) -> list[Figure]:
    """Rewrites ranges of a MiB, 20 for each of ``seconds``, and writes meanwhile; at a pace that frees a GiB of
    the bookies' disks a minute."""
    with (
        LocalCluster(bookies=3, bookie_settings=SETTINGS) as cluster,
        BookKeeper(cluster.metadata_service_uri) as bk,
    ):
        ranges = max(32, round(20 * seconds))
        log = bk.create_log("small")
        for _ in range(ranges):
            with log.writer() as writer:
                writer.append_many([PAYLOAD] * RANGE_ENTRIES)
        alone = _write(bk, lambda taken_s, _: taken_s < WINDOW_S)
        began = time.perf_counter()
        with _optimize(cluster.metadata_service_uri) as optimize:
            beside = _write(bk, lambda _, __: optimize.poll() is None)
            failed = optimize.wait()
        taken_s = time.perf_counter() - began
        alone = (alone + _write(bk, lambda taken_s, _: taken_s < WINDOW_S)) / 2
        left = len(log.ledgers())
    if failed:
        raise RuntimeError(f"optimize ended with {failed}")
    notes = {"ranges": ranges, "left": left, "mib_a_s": ranges / taken_s}
    name = "64 KiB append_many while optimize frees a GiB of disk a minute"
    return [Figure("P10", name, beside, "MB/s", alone, "with nothing to rewrite", notes)]


def _optimize(uri: str) -> subprocess.Popen[bytes]:
    script = Path(sys.executable).with_name("bookkeeper")
    command = [str(script), "logs", "optimize", "small", "--metadata-service-uri", uri]
    return subprocess.Popen([*command, "--bytes-per-second", str(1024 * MIB // COPIES // 60)])


def _fill(bk: BookKeeper, rounds: int) -> list[int]:
    """Ids of the ledgers that are to go."""
    writers = [bk.create_ledger() for _ in range(LEDGERS)]
    for _ in range(rounds):
        for writer in writers:
            writer.append_many([PAYLOAD] * BATCH)
    for writer in writers:
        writer.close()
    return [writer.ledger_id for writer in writers[1:]]


def _write(bk: BookKeeper, goes_on: Callable[[float, int], bool]) -> float:
    """MB a second of a writer, until ``goes_on`` of the seconds and the bytes on all bookies says no."""
    added, began = 0, time.perf_counter()
    with bk.create_ledger() as writer:
        while goes_on(time.perf_counter() - began, COPIES * added):
            writer.append_many([PAYLOAD] * BATCH)
            added += BATCH * len(PAYLOAD)
        return added / (time.perf_counter() - began) / 1e6


def _written_bytes(cluster: LocalCluster) -> int:
    """What all bookies have sent to the disk so far."""
    found = 0
    for bookie in cluster.bookies:
        lines = Path(f"/proc/{bookie.pid}/io").read_text().splitlines()
        found += int(next(line for line in lines if line.startswith("write_bytes")).split()[1])
    return found
