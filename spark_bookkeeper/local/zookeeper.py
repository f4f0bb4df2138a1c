"""A genuine ZooKeeper from the jars in PySpark's wheel, on loopback, its data in a folder.

Only a server that answers counts as started. Data survive ``kill``: every write is on disk before it
is answered, and starting again on the same folder brings everything back. The port is drawn once
and stays, so clients find the server again.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Self

from spark_bookkeeper.local.errors import LocalStartError
from spark_bookkeeper.local.java import find_java, pyspark_jars
from spark_bookkeeper.local.ports import LOOPBACK, free_port, is_listening, taken
from spark_bookkeeper.local.process import LocalProcess, Popen

START_TIMEOUT_MS = 60_000
"""How long a start may take on a busy machine; an idle one needs about a second."""
STOP_TIMEOUT_S = 10.0
"""How long a SIGTERM may take before SIGKILL follows."""
TICK_MS = 500
"""ZooKeeper's unit of time: sessions end at a multiple of it, at the earliest after two."""

_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_JARS = ("zookeeper", "log4j", "slf4j", "netty", "metrics", "snappy", "commons-cli", "commons-io")
"""Those of PySpark's 200 jars that the server needs; opening all of them doubles its start time."""
_POLL_S = 0.02
# Where it differs from ZooKeeper's defaults: sessions could last no longer than 20 ticks, which are
# short here; one address could have 60 connections, and all come from one; each transaction log
# would take 64 MiB of disk from the start; and the admin server would want port 8080.
_CONFIG = f"""\
clientPort={{port}}
clientPortAddress={LOOPBACK}
dataDir={{directory}}
tickTime={TICK_MS}
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr,stat,mntr,cons
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
preAllocSize=1024
"""

# The checks whether the server is up are not logged: they would be most of the log. The first lines
# of a stack trace are enough.
_LOGGING = """\
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %-5p [%t] %c{1}: %m%n%ex{6}
logger.commands.name=org.apache.zookeeper.server.command
logger.commands.level=warn
logger.connections.name=org.apache.zookeeper.server.NIOServerCnxn
logger.connections.level=warn
"""


class ZooKeeperProcess(LocalProcess):
    """One server on ``directory``; ``popen`` spawns it (same arguments as ``subprocess.Popen``)."""

    def __init__(
        self,
        directory: str | Path,
        port: int | None = None,
        *,
        popen: Popen = partial(subprocess.Popen, stderr=subprocess.STDOUT),  # noqa: B008 - pure
    ) -> None:
        self.directory = Path(directory).absolute()
        self.port = free_port(set()) if port is None else port
        super().__init__("zookeeper", self.directory / "zookeeper.log", STOP_TIMEOUT_S, popen)

    @property
    def service(self) -> str:
        """``host:port``, where clients connect."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id of the server started last, ``None`` before the first start."""
        return None if self._process is None else self._process.pid

    def start(self, *, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Start on what the directory holds and wait until it answers; nothing if it runs.

        Raises:
            LocalStartError: it ended, or did not answer in time; carries the log's last lines.
            JavaNotFoundError: there is no Java to run it.
        """
        if self.is_running:
            return
        if is_listening(self.port):
            # Another server would answer in the place of ours.
            advice = "end it, or choose another with --port"
            raise LocalStartError("zookeeper", f"{taken(self.port)}; {advice}", "")
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        config = self._write("zoo.cfg", _CONFIG.format(port=self.port, directory=self.directory))
        logging = self._write("log4j2.properties", _LOGGING)
        process = self._spawn([str(find_java()), *_jvm_options(logging), _MAIN, str(config)])
        deadline = time.monotonic() + timeout_ms / 1000
        while not self._answers():
            if process.poll() is not None:
                raise self.start_error("the process ended")
            if time.monotonic() > deadline:
                self.kill()
                raise self.start_error(f"no answer on {self.service} within {timeout_ms} ms")
            time.sleep(_POLL_S)  # noqa: TID251 - waits for a foreign process, with a deadline

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path

    def _answers(self) -> bool:
        """Whether the server has loaded its data: only then ``srvr`` knows its mode."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as connection:
                connection.sendall(b"srvr")
                with connection.makefile("rb") as answer:
                    return b"Mode: " in answer.read()
        except OSError:
            return False


def _jvm_options(logging: Path) -> list[str]:
    """Small and quick to start; logs go to standard output."""
    jars = pyspark_jars()
    needed = sorted(str(jar) for name in _JARS for jar in jars.glob(f"{name}-*.jar"))
    return [
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        f"-Dlog4j2.configurationFile={logging}",
        "-Dzookeeper.admin.enableServer=false",
        "-cp",
        os.pathsep.join(needed),
    ]
