"""Spark drivers in processes of their own, told by tests what to run.

One Python process holds one kind of session: tests of a standalone cluster or of Spark Connect need
other processes than the one pytest runs in, and starting one for each test would cost ten seconds.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from spark_bookkeeper.demo.session import BRIEF_JAVA_OPTIONS
from spark_bookkeeper.demo.stream import kill_session
from spark_bookkeeper.local.environment import child_environment
from tests.patience import seconds
from tests.spark import driver_process

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
"""After which a driver is killed."""
CALL_TIMEOUT_S = 240.0
DRIVER_ENDED = "driver ended"
"""How the error of a call begins whose driver died."""
LOG_TAIL_CHARS = 6000
JAVA_OPTIONS = f"{BRIEF_JAVA_OPTIONS} -XX:+UseSerialGC"
"""Of a JVM that does little: it starts sooner and never gets as fast."""
SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class DriverError(Exception):
    """The call raised in the driver; the text is ``type: message`` of what it raised."""


class Driver:
    """One driver process; calls run one after the other. A ``with`` block starts and stops it."""

    def __init__(self, settings: Mapping[str, str], log: Path, **environment: str) -> None:
        self._settings = dict(settings)
        self._environment = {**spark_environment(), **environment}
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._pending: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()

    def __enter__(self) -> Driver:
        self.start()
        return self

    def start(self) -> None:
        """Start the process; again after :meth:`kill`."""
        if self._process is not None:
            self._end()
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, driver_process.__file__, json.dumps(self._settings)],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        ready: Future[Any] = Future()
        self._pending.put(ready)
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()
        try:
            ready.result(seconds(START_TIMEOUT_S))
        except BaseException:
            self._end()
            raise

    def __exit__(self, *_: object) -> None:
        self._end()

    def call(self, function: Callable[..., Any], **arguments: object) -> Any:
        """What ``function(session, **arguments)`` returns in the driver.

        Raises:
            DriverError: it raised there.
        """
        return self.begin(function, **arguments).result(seconds(CALL_TIMEOUT_S))

    def begin(self, function: Callable[..., Any], **arguments: object) -> Future[Any]:
        """The same call, not waited for."""
        assert self._process is not None
        assert self._process.stdin is not None
        outcome: Future[Any] = Future()
        self._pending.put(outcome)
        call = f"{function.__module__}:{function.__qualname__}"
        self._process.stdin.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        return outcome

    def kill(self) -> None:
        """End driver, JVM and Python workers at once, as when the machine dies."""
        assert self._process is not None
        kill_session(self._process.pid)

    def log(self) -> str:
        """What the driver, its JVM and its Python workers printed."""
        return self._log.read_text(errors="replace")

    def _read_answers(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                answer = json.loads(line)
                outcome = self._pending.get()
                if "error" in answer:
                    outcome.set_exception(DriverError(answer["error"]))
                else:
                    outcome.set_result(answer["result"])
        ended = DriverError(f"{DRIVER_ENDED}:\n{self.log()[-LOG_TAIL_CHARS:]}")
        while not self._pending.empty():
            self._pending.get().set_exception(ended)

    def _end(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(seconds(STOP_TIMEOUT_S))
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        assert self._reader is not None
        self._reader.join(seconds(STOP_TIMEOUT_S))


def spark_environment() -> dict[str, str]:
    """What a Spark of ours runs in: our packages and interpreter everywhere, loopback only."""
    return {**child_environment(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
