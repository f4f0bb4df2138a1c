"""What a cluster takes while it runs: disk, files, memory, descriptors, znodes; and whether it stays so."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from spark_bookkeeper import LocalCluster

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """All gauges at one moment, bookies and this process added up."""

    disk_mib: float
    """Of entry logs, indexes and journals, as the disk counts."""
    files: float
    bookie_rss_mib: float
    """Of the largest bookie."""
    client_rss_mib: float
    """Of this process, which plans, commits, collects and rewrites."""
    descriptors: float
    """Of the bookies and this process."""
    znodes: float


SLACK = Reading(64, 40, 48, 96, 60, 80)
"""What a gauge may differ by though nothing grows: a checkpoint, a file, a garbage collection."""


class Gauges:
    """Reads a cluster's gauges on and on, in a thread of its own."""

    def __init__(self, cluster: LocalCluster, every_s: float) -> None:
        self.readings: list[Reading] = []
        self._cluster = cluster
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="gauges")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; the readings stay."""
        self._is_over.set()
        self._thread.join()

    def growth(self) -> dict[str, tuple[float, float]]:
        """Medians of the third and the last quarter of the time, of those that grew."""
        quarter = len(self.readings) // 4
        third, last = self.readings[2 * quarter : 3 * quarter], self.readings[3 * quarter :]
        found = {}
        for name, slack in asdict(SLACK).items():
            before, after = _median(third, name), _median(last, name)
            if after > 1.25 * before + slack:
                found[name] = before, after
        return found

    def report(self) -> str:
        """The medians of the four quarters, gauge by gauge."""
        quarter = max(1, len(self.readings) // 4)
        quarters = [self.readings[at * quarter : (at + 1) * quarter] for at in range(4)]
        return "\n".join(
            f"{name:>15} " + " ".join(f"{_median(part, name):9.0f}" for part in quarters if part)
            for name in asdict(SLACK)
        )

    def _read_on(self) -> None:
        while not self._is_over.wait(self._every_s):
            # A bookie may be dead or a file gone at this moment; there is another one soon.
            with suppress(OSError, ValueError):
                self.readings.append(self._read())

    def _read(self) -> Reading:
        disk = files = descriptors = 0
        rss = [0.0]
        for bookie in self._cluster.bookies:
            for place in ("ledgers", "journal"):
                for path in (bookie.directory / place).iterdir():
                    with suppress(FileNotFoundError):
                        disk += path.stat().st_blocks * 512
                        files += 1
            with suppress(OSError):
                rss.append(_rss_mib(bookie.pid))
                descriptors += _descriptors(bookie.pid)
        own = os.getpid()
        return Reading(
            disk / MIB,
            files,
            max(rss),
            _rss_mib(own),
            descriptors + _descriptors(own),
            _znodes(self._cluster.zookeeper.service),
        )


def _median(readings: Sequence[Reading], name: str) -> float:
    return float(median(getattr(each, name) for each in readings))


def _rss_mib(pid: int | None) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no memory")


def _descriptors(pid: int | None) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _znodes(service: str) -> int:
    """What ZooKeeper's ``srvr`` command says."""
    host, port = service.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"srvr")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    for line in answer.decode().splitlines():
        if line.startswith("Node count:"):
            return int(line.split(":")[1])
    raise ValueError(f"no node count in {answer!r}")
