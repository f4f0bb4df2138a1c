"""The auto-recovery of a local cluster: the process that an operator would run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bookkeeper_metadata.foundation.tls.settings import TLS_VARIABLES
from spark_bookkeeper.local.bookie import http_address_of
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.guard import Guard
from spark_bookkeeper.local.process import LocalProcess

STOP_TIMEOUT_S = 15.0
"""Longest it may take to end after SIGTERM; what it was copying then is copied again."""
LOST_BOOKIE_DELAY_MS = 10_000
"""A local cluster starts bookies again that die, within seconds."""


class LocalAutoRecovery(LocalProcess):
    """Made by :class:`spark_bookkeeper.local.cluster.LocalCluster`, which owns the guard."""

    def __init__(
        self,
        guard: Guard,
        *,
        directory: Path,
        metadata_service_uri: str,
        http_port: int,
        lost_bookie_delay_ms: int,
        settings: Mapping[str, Any],
    ) -> None:
        """``settings`` are the bookies'; of these it has those that are for every process."""
        log_path = directory / "autorecovery.log"
        super().__init__("auto-recovery", log_path, STOP_TIMEOUT_S, guard.popen)
        self._metadata_service_uri = metadata_service_uri
        self._http_port = http_port
        self._lost_bookie_delay_ms = lost_bookie_delay_ms
        self._shared = {name: settings[name] for name in TLS_VARIABLES if name in settings}
        self.http_address = http_address_of(self._shared, http_port)
        """Where it shows metrics and health."""

    def start(self) -> None:
        """Start it; nothing if it runs. It needs nothing but the metadata service, whenever that comes."""
        if self.is_running:
            return
        command = [sys.executable, "-m", "spark_bookkeeper.cli", "autorecovery"]
        command += ["--metadata-service-uri", self._metadata_service_uri]
        command += ["--lost-bookie-delay-ms", str(self._lost_bookie_delay_ms)]
        command += ["--http-port", str(self._http_port)]
        variables = {TLS_VARIABLES[name]: str(value) for name, value in self._shared.items()}
        self._spawn(command, env={**child_environment(), **variables})
