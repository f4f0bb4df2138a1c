"""Spark's own servers, each process a child of a guard: it ends with the tests."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spark_bookkeeper.local.guard import Guard, GuardedProcess
from spark_bookkeeper.local.java import pyspark_jars
from spark_bookkeeper.local.ports import LOOPBACK, free_port, is_listening
from tests.patience import seconds
from tests.spark.drivers import JAVA_OPTIONS, SETTINGS, spark_environment
from tests.spark.waits import wait_until

WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")
CORES_PER_WORKER = 2
STOP_TIMEOUT_S = 120.0


class Servers:
    """Processes that log to one folder; a ``with`` block stops them, the last one first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._guard = Guard()
        self._processes: list[GuardedProcess] = []

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        # Workers end their executors when asked to end, and not when killed.
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(seconds(STOP_TIMEOUT_S))
        self._guard.close()

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        """Start a ``command`` of Spark's folder ``bin``."""
        home = pyspark_jars().parent
        program, *arguments = command
        with (self._directory / f"{name}.log").open("wb") as log:
            started = self._guard.popen(
                [str(home / "bin" / program), *arguments],
                stdout=log,
                env={**environment, "SPARK_HOME": str(home)},
                cwd=self._directory,
            )
        self._processes.append(started)

    def wait_until(self, is_so: Callable[[], object], what: str) -> None:
        """Return once it is so; the error has the ends of their logs."""
        wait_until(is_so, what, self._have_ended)

    def _have_ended(self) -> str:
        if all(process.poll() is None for process in self._processes):
            return ""
        return str({log.name: log.read_text()[-3000:] for log in self._directory.glob("*.log")})


@contextmanager
def connect_server(directory: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A Connect server with two cores, as an administrator would start one; gives its address."""
    port = free_port(set())
    settings = {
        **SETTINGS,
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(directory / "scratch"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    command = ["spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    with Servers(directory) as servers:
        servers.start("server", command, {**spark_environment(), **environment})
        servers.wait_until(lambda: is_listening(port), "a Connect server")
        yield f"sc://{LOOPBACK}:{port}"


@contextmanager
def standalone_spark(directory: Path) -> Iterator[str]:
    """A cluster of one master and two workers that are different hosts; gives its master.

    Spark never runs a speculative copy on the host of the attempt it copies, so the workers have
    different loopback addresses.
    """
    ports: set[int] = set()
    port, page = free_port(ports), free_port(ports)
    environment = {
        **spark_environment(),
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    # What executors must find, sessions have to tell them (spark.executorEnv).
    del environment["PYTHONPATH"], environment["PYSPARK_PYTHON"]
    master = f"spark://{LOOPBACK}:{port}"
    with Servers(directory) as servers:

        def start(name: str, role: str, host: str, *more: str) -> None:
            command = ["spark-class", f"org.apache.spark.deploy.{role}", "--host", host, *more]
            servers.start(name, command, {**environment, "SPARK_LOCAL_IP": host})

        start("master", "master.Master", LOOPBACK, "--port", str(port), "--webui-port", str(page))
        # A worker whose first registration finds no master waits ten seconds for the next.
        servers.wait_until(lambda: is_listening(port) and is_listening(page), "a master")
        for host in WORKER_HOSTS:
            more = ["--port", "0", "--webui-port", "0", "--cores", str(CORES_PER_WORKER)]
            more += ["--memory", "1g", "--work-dir", str(directory / f"work-{host}"), master]
            start(f"worker-{host}", "worker.Worker", host, *more)
        servers.wait_until(lambda: _workers_alive(page) == len(WORKER_HOSTS), "the workers")
        yield master


def _workers_alive(page: int) -> int:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{page}/json/", timeout=seconds(5)) as facts:
            return int(json.load(facts)["aliveworkers"])
    except (OSError, ValueError):  # for a moment it answers with the page for people
        return 0
