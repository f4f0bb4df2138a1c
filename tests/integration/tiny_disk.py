"""A bookie on a disk so small that a test fills it: a tmpfs, where mounting one is permitted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.ports import free_port
from tests.integration.processes import end_session, eventually

_MIB = 1024 * 1024


@contextmanager
def mounted(place: Path) -> Iterator[Path]:
    """A disk of 48 MiB at this place; the test is skipped where mounting one is not permitted."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=48m", "tiny", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mount is not permitted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


class Fourth:
    """A bookie of the cluster with directories of its own."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        taken = set[int]()
        self.port = free_port(taken)
        self.http = f"127.0.0.1:{free_port(taken)}"
        """Where it shows metrics and health."""
        self.bookie_id = f"127.0.0.1:{self.port}"
        self._uri = cluster.metadata_service_uri
        flags = {
            "--metadata-service-uri": self._uri,
            "--port": str(self.port),
            "--http-port": self.http.rpartition(":")[2],
            "--gc-interval-ms": "500",
            "--journal-directories": str(directory / "journal"),
            "--ledger-directories": str(directory / "ledgers"),
            "--journal-file-size-bytes": str(2 * _MIB),
            "--journal-zero-chunk-bytes": str(_MIB // 4),
            "--write-cache-size-bytes": str(_MIB),
            "--checkpoint-interval-ms": "500",
            "--reserve-for-fences-bytes": str(3 * _MIB),
            "--reserve-for-recovery-bytes": str(3 * _MIB),
            "--writable-margin-bytes": str(4 * _MIB),
        }
        self._words = [word for flag in flags.items() for word in flag]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bookie_server", *self._words],
            env=child_environment(),
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        end_session(self._uri, self.bookie_id)

    def state(self) -> str:
        """``writable``, by whom it is read-only, or nothing where it is not registered."""
        with BookKeeper(self._uri) as bk:
            for bookie in bk.bookies():
                if bookie.bookie_id == self.bookie_id:
                    return "writable" if bookie.writable else bookie.readonly_by
        return ""


@contextmanager
def fourth(cluster: LocalCluster, directory: Path) -> Iterator[Fourth]:
    """It runs and is writable, until the block ends."""
    bookie = Fourth(cluster, directory)
    try:
        assert eventually(lambda: bookie.state() == "writable", 60)
        yield bookie
    finally:
        bookie.kill()
