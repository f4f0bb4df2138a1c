"""What the bookies of a local cluster store, as their files say while they write and delete them."""

from __future__ import annotations

from contextlib import suppress

from spark_bookkeeper import LocalCluster


def log_bytes(cluster: LocalCluster) -> int:
    """What the entry logs of all bookies take."""
    found = 0
    for bookie in cluster.bookies:
        for path in (bookie.directory / "ledgers").glob("*.log"):
            with suppress(FileNotFoundError):
                found += path.stat().st_size
    return found
