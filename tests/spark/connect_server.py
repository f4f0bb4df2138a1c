"""A Spark Connect server in a process of its own, as an administrator would start one."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from spark_bookkeeper.local.guard import Guard
from spark_bookkeeper.local.java import pyspark_jars
from spark_bookkeeper.local.ports import LOOPBACK, free_port, is_listening
from tests.patience import Deadline, seconds
from tests.spark.drivers import spark_environment

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """A server with two cores and ``environment``, from start to stop of a ``with`` block."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = dict(environment)
        self._port = free_port(set())
        self._guard: Guard | None = None

    @property
    def remote(self) -> str:
        """What a client connects to."""
        return f"sc://{LOOPBACK}:{self._port}"

    def __enter__(self) -> ConnectServer:
        home = pyspark_jars().parent
        command = [str(home / "bin" / "spark-submit"), "--class", _CLASS]
        for key, value in self._settings().items():
            command += ["--conf", f"{key}={value}"]
        environment = {**spark_environment(), **self._environment, "SPARK_HOME": str(home)}
        output = self._directory / "server.log"
        self._guard = Guard()
        with output.open("wb") as log:
            self._process = self._guard.popen(
                command, stdout=log, env=environment, cwd=self._directory
            )
        deadline = Deadline(START_TIMEOUT_S)
        while not is_listening(self._port):
            if self._process.poll() is not None or deadline.has_passed:
                self._guard.close()
                raise AssertionError(f"no Connect server: {output.read_text()[-3000:]}")
            threading.Event().wait(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._guard is not None
        self._process.terminate()
        self._process.wait(seconds(STOP_TIMEOUT_S))
        self._guard.close()

    def _settings(self) -> dict[str, str]:
        return {
            "spark.master": "local[2]",
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.local.dir": str(self._directory / "scratch"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(self._directory / "warehouse"),
            "spark.ui.enabled": "false",
        }
