"""What TLS costs: the same ledgers on two clusters side by side, one behind TLS with certificates of clients, in turns."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import trustme

from benchmarks.figures import Figure
from benchmarks.ledgers import append_in_batches, cpu_of
from bookie_server.client.settings import ConnectionSettings
from spark_bookkeeper import LocalCluster, aio
from spark_bookkeeper.blocking.loop_thread import shared_loop_thread
from spark_bookkeeper.settings import ClientSettings

ROUNDS = 5
WORKLOADS = ((1024, 1_000, 20_000), (65_536, 100, 800), (1 << 20, 16, 80))
"""Bytes of an entry, entries in flight, entries a second of the run."""


def tls_files(place: Path) -> dict[str, Any]:
    """Settings of a bookie, and of a client, that has a certificate."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", common_name="benchmark")
    paths = [place / name for name in ("trust.pem", "own.pem", "own.key")]
    authority.cert_pem.write_to_path(paths[0])
    paths[1].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(paths[2])
    names = ("tls_trust_path", "tls_certificate_path", "tls_key_path")
    return {name: str(path) for name, path in zip(names, paths, strict=True)}


async def _written(
    cluster: LocalCluster, connection: ConnectionSettings, size: int, count: int, window: int
) -> tuple[float, dict[str, float]]:
    """Adds a second, and the CPU of each, in microseconds."""
    notes: dict[str, float] = {}
    settings = ClientSettings(connection=connection)
    async with aio.BookKeeper(cluster.metadata_service_uri, settings=settings) as bk:
        writer = await bk.create_ledger()
        payload = os.urandom(size)
        await append_in_batches(writer, payload, count // 4, window)
        started = time.perf_counter()
        with cpu_of(cluster, count, notes):
            await append_in_batches(writer, payload, count, window)
        rate = count / (time.perf_counter() - started)
        await writer.close()
    return rate, notes


def over_tls(seconds: float) -> list[Figure]:
    """Adds over TLS, held against clear text: the median of alternated rounds."""
    figures = []
    with (
        tempfile.TemporaryDirectory() as place,
        LocalCluster(bookies=3) as clear,
        LocalCluster(bookies=3, bookie_settings=(files := tls_files(Path(place)))) as secured,
    ):
        sides = ((clear, ConnectionSettings()), (secured, ConnectionSettings(**files)))
        for size, window, per_s in WORKLOADS:
            count = int(per_s * seconds / 2)
            rates: list[list[float]] = [[], []]
            notes: dict[str, float] = {}
            for _ in range(ROUNDS):
                for index, (cluster, connection) in enumerate(sides):
                    written = _written(cluster, connection, size, count, window)
                    rate, spent = shared_loop_thread().run(written)
                    rates[index].append(rate)
                    notes |= {
                        f"{'tls' if index else 'clear'}_{name}": us for name, us in spent.items()
                    }
            ratios = [tls / plain for plain, tls in zip(*rates, strict=True)]
            plain, tls = (statistics.median(each) for each in rates)
            notes["worst"] = min(ratios)
            what = f"append_many {size} B over TLS, {window} in flight"
            figures.append(Figure("TLS", what, tls, "adds/s", plain, "clear text", notes))
    return figures
