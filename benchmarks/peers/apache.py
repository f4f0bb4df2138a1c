"""A cluster of Apache's: ZooKeeper and bookies as processes of their own, as a local cluster of ours is.

Directories are temporary and beside ours, on the same disk; the processes belong to a guard and end
with whoever started them. Settings are Apache's defaults but for what a loopback address and several
bookies on one disk need, and for what makes both sides promise the same: every add is synced before
it is acknowledged, and space of deleted ledgers is looked for as often as our bookies do.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

from benchmarks.peers.artifacts import CLIENT_CLASS, Artifacts
from benchmarks.peers.commands import CommandedClient
from spark_bookkeeper.local.bookie import wait_until_serving
from spark_bookkeeper.local.errors import LocalStartError, log_tail
from spark_bookkeeper.local.guard import Guard
from spark_bookkeeper.local.ports import LOOPBACK, free_port
from spark_bookkeeper.local.process import LocalProcess
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess

FORMAT_TIMEOUT_S = 180.0
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 20.0

_OPENED = ("java.nio", "jdk.internal.misc", "java.io", "java.util.zip", "java.lang", "sun.nio.ch")
_MEMORY = ("-Xmx1g", "-XX:MaxDirectMemorySize=1500m")
JAVA_OPTIONS = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    *_MEMORY,
)
"""What Apache's own scripts open for Netty, and room enough that no side is short of memory."""

_CONFIG = f"""\
metadataServiceUri={{uri}}
bookiePort={{port}}
advertisedAddress={LOOPBACK}
allowLoopback=true
journalDirectories={{directory}}/journal
ledgerDirectories={{directory}}/ledgers
journalSyncData=true
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
dbStorage_writeCacheMaxSizeMb=256
dbStorage_readAheadCacheMaxSizeMb=128
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
gcWaitTime=30000
journalMaxBackups=0
httpServerEnabled=false
"""


class ApacheBookie(LocalProcess):
    """One bookie, on a port and a directory of its own."""

    def __init__(self, guard: Guard, artifacts: Artifacts, directory: Path, port: int) -> None:
        self.bookie_id = f"{LOOPBACK}:{port}"
        log_path = directory / "bookie.log"
        super().__init__(f"Apache bookie {port}", log_path, STOP_TIMEOUT_S, guard.popen)
        self._artifacts = artifacts
        self._directory = directory
        self.config = directory / "bookie.conf"
        self._port = port
        self.metadata_service_uri = ""
        """The cluster it registers with."""
        self.spawned_ms = 0
        """Wall clock of the last spawn, milliseconds since the epoch."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def configure(self, uri: str, settings: Mapping[str, str]) -> None:
        """Write its configuration; the cluster is formatted with that of the first."""
        self._directory.mkdir()
        self.metadata_service_uri = uri
        text = _CONFIG.format(uri=uri, port=self._port, directory=self._directory)
        text += "".join(f"{name}={value}\n" for name, value in settings.items())
        self.config.write_text(text, encoding="utf-8")

    def spawn(self) -> None:
        """Start its process and do not wait."""
        self.spawned_ms = int(time.time() * 1000)
        main = "org.apache.bookkeeper.server.Main"
        command = self._artifacts.command(main, "--conf", str(self.config), options=JAVA_OPTIONS)
        self._spawn(command, cwd=self._directory)

    def start(self) -> None:
        """Start it on its directory and port, and wait until it serves; nothing if it runs."""
        if not self.is_running:
            self.spawn()
            wait_until_serving([self], START_TIMEOUT_S)

    def failure(self) -> LocalStartError | None:
        """Why the process is gone, if it is."""
        if self.is_running:
            return None
        return self.start_error(f"its process ended with exit code {self.exit_code}")


class ApacheBookies:
    """Bookies in a cluster that is there, whoever made it; they live as long as the ``with`` block.

    ``settings`` go into every bookie's configuration, by Apache's names.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        uri: str,
        count: int = 3,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.metadata_service_uri = uri
        self._artifacts = artifacts
        self._count = count
        self._settings = settings
        self.bookies: list[ApacheBookie] = []

    def __enter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="bookkeeper-apache-"))
        self._guard = Guard(remove=self.directory)
        try:
            self._start()
        except BaseException:
            self._guard.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        # All at the same time; what they have not written yet will not be missed.
        self._guard.close()

    def _start(self) -> None:
        ports: set[int] = set()
        for index in range(self._count):
            directory = self.directory / f"bookie{index}"
            bookie = ApacheBookie(self._guard, self._artifacts, directory, free_port(ports))
            bookie.configure(self.metadata_service_uri, self._settings)
            self.bookies.append(bookie)
        self._prepare()
        for bookie in self.bookies:
            bookie.spawn()
        wait_until_serving(self.bookies, START_TIMEOUT_S)

    def _prepare(self) -> None:
        """What the cluster needs before its bookies: nothing, for others have seen to it."""


class ApacheCluster(ApacheBookies):
    """Three bookies and a ZooKeeper of their own."""

    def __init__(
        self,
        artifacts: Artifacts,
        bookies: int = 3,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(artifacts, "", bookies, settings)

    def client(self) -> CommandedClient:
        """A new process of Apache's Java client."""
        return java_client(self._artifacts, self.metadata_service_uri, self.directory)

    def _start(self) -> None:
        self.zookeeper = ZooKeeperProcess(
            self.directory / "zookeeper", free_port(set()), popen=self._guard.popen
        )
        self.zookeeper.start()
        self.metadata_service_uri = f"zk+hierarchical://{LOOPBACK}:{self.zookeeper.port}/ledgers"
        super()._start()

    def _prepare(self) -> None:
        """Write the cluster's first nodes into ZooKeeper, which no bookie does by itself."""
        shell = "org.apache.bookkeeper.bookie.BookieShell"
        config = str(self.bookies[0].config)
        command = self._artifacts.command(shell, "-conf", config, "initnewcluster")
        with (self.directory / "format.log").open("wb") as log:
            process = self._guard.popen(command, stdout=log)
        try:
            code: int | None = process.wait(FORMAT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            detail = f"initnewcluster ended with {code} (None: not within {FORMAT_TIMEOUT_S:.0f} s)"
            raise LocalStartError("Apache cluster", detail, log_tail(self.directory / "format.log"))


def java_client(artifacts: Artifacts, uri: str, directory: Path) -> CommandedClient:
    """A new process of Apache's Java client, on whosever bookies; its log goes into the directory."""
    return CommandedClient(
        "Apache BookKeeper",
        artifacts.command(CLIENT_CLASS, uri, options=JAVA_OPTIONS),
        directory / "client.log",
        dict(os.environ),
    )
