"""One bookie process of a local cluster: the same server as in production, on loopback.

A bookie keeps its port, its id (``127.0.0.1:port``) and its directory for life, through kills and
restarts. It counts as started once *this* process has registered in ZooKeeper and answers requests;
a registration left over by the process before it proves nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bookie_server.settings import REPLACE_FLAG
from bookkeeper_metadata.foundation.invariant import invariant
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.errors import LocalStartError
from spark_bookkeeper.local.guard import Guard
from spark_bookkeeper.local.ports import LOOPBACK, is_listening, taken
from spark_bookkeeper.local.process import LocalProcess
from spark_bookkeeper.local.readiness import run_in_thread, wait_until_ready

START_TIMEOUT_S = 60.0
"""Longest a bookie may take to replay, register and answer, the expiry of the session of a killed
predecessor included."""
STOP_TIMEOUT_S = 15.0
"""Longest a bookie may take to end after SIGTERM (it drains for 10 s at most)."""


class LocalBookie(LocalProcess):
    """A bookie process that can be killed, stopped, paused and started again; see the module.

    Made by :class:`spark_bookkeeper.local.cluster.LocalCluster`, which owns the guard.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        port: int,
        http_port: int,
        socket_port: int,
        rpc_port: int,
        directory: Path,
        metadata_service_uri: str,
        settings: Mapping[str, Any],
    ) -> None:
        self.port = port
        self.http_address = http_address_of(settings, http_port)
        """Where it shows metrics and health; another one whenever the cluster is started."""
        self._http_port = http_port
        self.socket_port = socket_port
        """Where it is reached over plain sockets; another one whenever the cluster is started."""
        self.rpc_port = rpc_port
        """Where Apache's clients reach it."""
        self.bookie_id = f"{LOOPBACK}:{port}"
        log_path = directory / "bookie.log"
        super().__init__(f"bookie {self.bookie_id}", log_path, STOP_TIMEOUT_S, guard.popen)
        self.directory = directory
        """Configuration, log, journal and ledgers of this bookie."""
        self.metadata_service_uri = metadata_service_uri
        """The cluster it registers with."""
        self._settings = settings
        self.spawned_ms = 0
        """Wall clock of the last spawn, milliseconds since the epoch."""

    def __repr__(self) -> str:
        state = f"pid={self.pid}" if self.is_running else "down"
        return f"LocalBookie({self.bookie_id}, {state})"

    @property
    def pid(self) -> int | None:
        """The process id, ``None`` while it is down."""
        return self._process.pid if self._process is not None and self.is_running else None

    def start(self, *, replace_lost_directories: bool = False) -> None:
        """Start it on its directory and port and wait until it serves; nothing if it runs.

        ``replace_lost_directories``: what is missing of its directories is lost. A cluster that is
        started never says so by itself.

        Raises:
            LocalStartError: it ended, or did not serve in time; carries its log's last lines.
        """
        if not self.is_running:
            self.spawn(replace_lost_directories=replace_lost_directories)
            wait_until_serving([self])

    def spawn(self, *, replace_lost_directories: bool = False) -> None:
        """Start the process without waiting; :func:`wait_until_serving` waits for several at once.

        Raises:
            LocalStartError: another process has its port.
        """
        invariant(not self.is_running, "two processes on one directory would destroy it")
        if is_listening(self.port):
            # No other port will do: it is in the bookie's id, and in the metadata of its ledgers.
            advice = "end it: the cluster's directory, which has its data, says this port"
            raise LocalStartError(self._what, f"{taken(self.port)}; {advice}", "")
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "bookie.toml"
        config.write_text(self._config(), encoding="utf-8")
        # Taken before: a registration counts only if it is younger than this.
        self.spawned_ms = int(time.time() * 1000)
        command = [sys.executable, "-m", "bookie_server", "--config", str(config)]
        if replace_lost_directories:
            command.append(REPLACE_FLAG)
        self._spawn(command, env=child_environment(), cwd=self.directory)

    def failure(self) -> LocalStartError | None:
        """Why the process is gone, if it is."""
        if self.is_running:
            return None
        return self.start_error(f"its process ended with exit code {self.exit_code}")

    def _config(self) -> str:
        settings = {
            "bookie_id": self.bookie_id,
            "host": LOOPBACK,
            "port": self.port,
            "http_port": self._http_port,
            "socket_port": self.socket_port,
            "rpc_port": self.rpc_port,
            "metadata_service_uri": self.metadata_service_uri,
            "journal_directories": [str(self.directory / "journal")],
            "ledger_directories": [str(self.directory / "ledgers")],
            **self._settings,
        }
        # JSON's strings, numbers, booleans and lists of strings are TOML's too.
        return "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


def http_address_of(settings: Mapping[str, Any], port: int) -> str:
    """Where a local process with these settings shows metrics and health."""
    scheme = "https" if settings.get("tls_certificate_path") else "http"
    return f"{scheme}://{LOOPBACK}:{port}"


class SpawnedBookie(Protocol):
    """What is needed of a process that was spawned to tell when it serves; of Apache's bookies, too."""

    bookie_id: str
    metadata_service_uri: str
    spawned_ms: int

    def failure(self) -> LocalStartError | None: ...

    def start_error(self, detail: str) -> LocalStartError: ...


def wait_until_serving(
    bookies: Sequence[SpawnedBookie], timeout_s: float = START_TIMEOUT_S
) -> None:
    """Wait until every spawned bookie serves.

    Raises:
        LocalStartError: of the first that ended or is not ready after ``timeout_s``.
    """
    if not bookies:
        return

    def check() -> None:
        for bookie in bookies:
            if (failure := bookie.failure()) is not None:
                raise failure

    uri = bookies[0].metadata_service_uri
    spawned_ms = {bookie.bookie_id: bookie.spawned_ms for bookie in bookies}
    missing = run_in_thread(wait_until_ready(uri, spawned_ms, check, timeout_s))
    for bookie in bookies:
        if reason := missing.get(bookie.bookie_id):
            raise bookie.start_error(f"{reason} after {timeout_s:.0f} s")
