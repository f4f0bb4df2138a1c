"""Three Kafka brokers as users start them: KRaft, three copies, two of them in sync, and no fsync.

They promise less about a power cut than our bookies do; the table says so.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Self

from benchmarks.spark_peers.artifacts import SparkArtifacts
from spark_bookkeeper.local.errors import LocalStartError, log_tail
from spark_bookkeeper.local.guard import Guard
from spark_bookkeeper.local.ports import LOOPBACK, free_port
from spark_bookkeeper.local.process import LocalProcess

BROKERS = 3
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
_FORMAT_TIMEOUT_S = 60.0
_CONFIG = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/logs
num.partitions=2
default.replication.factor={brokers}
min.insync.replicas=2
offsets.topic.replication.factor={brokers}
transaction.state.log.replication.factor={brokers}
transaction.state.log.min.isr=2
"""


class Broker(LocalProcess):
    """One broker, which is a controller too."""

    def __init__(
        self, guard: Guard, artifacts: SparkArtifacts, directory: Path, node: int, port: int
    ) -> None:
        super().__init__(
            f"Kafka broker {node}", directory / "broker.log", STOP_TIMEOUT_S, guard.popen
        )
        self._artifacts = artifacts
        self._guard = guard
        self.directory = directory
        self.config = directory / "server.properties"
        self.port = port

    def format(self, cluster_id: str) -> None:
        """Make its storage.

        Raises:
            LocalStartError: it failed.
        """
        log_path = self.directory / "format.log"
        tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self.config))
        with log_path.open("wb") as log:
            process = self._guard.popen(self._command(*tool), stdout=log)
        try:
            code: int | None = process.wait(_FORMAT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            raise LocalStartError("Kafka broker", f"format ended with {code}", log_tail(log_path))

    def spawn(self) -> None:
        """Start its process and do not wait."""
        self._spawn(self._command("kafka.Kafka", str(self.config)), cwd=self.directory)

    def wait_until_open(self, until_s: float) -> None:
        """Wait until it takes connections.

        Raises:
            LocalStartError: it ended, or does not by ``until_s`` of the monotonic clock.
        """
        while True:
            try:
                socket.create_connection((LOOPBACK, self.port), timeout=1).close()
            except OSError:
                if not self.is_running or time.monotonic() > until_s:
                    raise self.start_error("it takes no connections") from None
                time.sleep(0.2)
            else:
                return

    def _command(self, main: str, *arguments: str) -> list[str]:
        jars = f"{self._artifacts.kafka}/*"
        return [str(self._artifacts.java), "-Xmx1g", "-cp", jars, main, *arguments]


class KafkaCluster:
    """Brokers that live as long as the ``with`` block."""

    def __init__(self, artifacts: SparkArtifacts) -> None:
        self._artifacts = artifacts
        self.servers = ""
        """Where they are, as clients take it."""

    def __enter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="bookkeeper-kafka-"))
        self._guard = Guard(remove=self.directory)
        try:
            self._start()
        except BaseException:
            self._guard.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._guard.close()

    def _start(self) -> None:
        taken: set[int] = set()
        ports = [(free_port(taken), free_port(taken)) for _ in range(BROKERS)]
        voters = ",".join(f"{n}@{LOOPBACK}:{ports[n - 1][1]}" for n in range(1, BROKERS + 1))
        cluster_id = urlsafe_b64encode(uuid.UUID(bytes=os.urandom(16)).bytes).decode().rstrip("=")
        brokers: list[Broker] = []
        for node, (port, controller) in enumerate(ports, start=1):
            directory = self.directory / f"broker{node}"
            directory.mkdir()
            broker = Broker(self._guard, self._artifacts, directory, node, port)
            text = _CONFIG.format(
                node=node,
                voters=voters,
                host=LOOPBACK,
                port=port,
                controller=controller,
                directory=directory,
                brokers=BROKERS,
            )
            broker.config.write_text(text, encoding="utf-8")
            broker.format(cluster_id)
            brokers.append(broker)
        for broker in brokers:
            broker.spawn()
        until_s = time.monotonic() + START_TIMEOUT_S
        for broker in brokers:
            broker.wait_until_open(until_s)
        self.servers = ",".join(f"{LOOPBACK}:{broker.port}" for broker in brokers)
