"""What the bookies of a local cluster store, as their files say while they write and delete them."""

from __future__ import annotations

from contextlib import suppress

from spark_bookkeeper import LocalCluster
from spark_bookkeeper.local.bookie import LocalBookie


def log_bytes(cluster: LocalCluster) -> int:
    """What the entry logs of all bookies take."""
    return sum(log_bytes_of(bookie) for bookie in cluster.bookies)


def log_bytes_of(bookie: LocalBookie) -> int:
    """What the entry logs of one bookie take."""
    found = 0
    for path in (bookie.directory / "ledgers").glob("*.log"):
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found
