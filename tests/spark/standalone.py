"""A standalone Spark cluster on this machine: one master, two workers that are different hosts.

Spark never runs a speculative copy on the host of the attempt it copies, so the workers have
different loopback addresses. All processes are children of a guard and end with the tests.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

from spark_bookkeeper.local.guard import Guard, GuardedProcess
from spark_bookkeeper.local.java import pyspark_jars
from spark_bookkeeper.local.ports import LOOPBACK, free_port, is_listening
from tests.patience import Deadline, seconds
from tests.spark.drivers import spark_environment

WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")
CORES_PER_WORKER = 2
START_TIMEOUT_S = 120.0
_DEPLOY = "org.apache.spark.deploy"


class StandaloneSpark:
    """The master's and the workers' processes, from start to stop of a ``with`` block."""

    def __init__(self, directory: Path) -> None:
        ports: set[int] = set()
        self._directory = directory
        self._port = free_port(ports)
        self._page = free_port(ports)
        self._guard: Guard | None = None
        self._processes: list[GuardedProcess] = []

    @property
    def master(self) -> str:
        """What a session names as its master."""
        return f"spark://{LOOPBACK}:{self._port}"

    def __enter__(self) -> StandaloneSpark:
        self._guard = Guard()
        try:
            self._start("master", "master.Master", LOOPBACK, self._port, self._page)
            # A worker whose first registration finds no master waits ten seconds for the next.
            self._wait_until(lambda: is_listening(self._port) and is_listening(self._page))
            for number, host in enumerate(WORKER_HOSTS):
                more = ["--cores", str(CORES_PER_WORKER), "--memory", "1g"]
                more += ["--work-dir", str(self._directory / f"work-{number}"), self.master]
                self._start(f"worker-{number}", "worker.Worker", host, 0, 0, *more)
            self._wait_until(lambda: self._workers_alive() == len(WORKER_HOSTS))
        except BaseException:
            self._guard.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._guard is not None
        # Workers end their executors when asked to end, and not when killed.
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(seconds(START_TIMEOUT_S))
        self._guard.close()

    def _start(self, name: str, role: str, host: str, port: int, page: int, *more: str) -> None:
        assert self._guard is not None
        home = pyspark_jars().parent
        command = [str(home / "bin" / "spark-class"), f"{_DEPLOY}.{role}", "--host", host]
        command += ["--port", str(port), "--webui-port", str(page), *more]
        environment = {
            **spark_environment(),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        # What executors must find, sessions have to tell them (spark.executorEnv).
        del environment["PYTHONPATH"], environment["PYSPARK_PYTHON"]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes.append(self._guard.popen(command, stdout=log, env=environment))

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = Deadline(START_TIMEOUT_S)
        while not is_so():
            ended = [each for each in self._processes if each.poll() is not None]
            if ended or deadline.has_passed:
                logs = {each.name: each.read_text()[-2000:] for each in self._logs()}
                raise AssertionError(f"the standalone cluster did not start: {logs}")
            threading.Event().wait(0.1)

    def _workers_alive(self) -> int:
        try:
            with urllib.request.urlopen(
                f"http://{LOOPBACK}:{self._page}/json/", timeout=seconds(5)
            ) as page:
                return int(json.load(page)["aliveworkers"])
        except OSError:
            return 0

    def _logs(self) -> list[Path]:
        return sorted(self._directory.glob("*.log"))
