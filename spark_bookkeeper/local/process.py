"""A process of a local cluster, which can be ended in every way and spawned again on the same data."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from spark_bookkeeper.local.errors import LocalStartError, log_tail


class ChildProcess(Protocol):
    """The part of ``subprocess.Popen`` that is used here, which a substitute must have."""

    pid: int
    returncode: Any

    def poll(self) -> int | None:
        """The exit code, ``None`` while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once it has one; ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal; nothing happens to a process that has ended."""


Popen = Callable[..., ChildProcess]
"""Spawns a process; same arguments as ``subprocess.Popen``, but ``stdout`` is for errors too."""


class LocalProcess:
    """At most one process at a time; each appends to the log of those before it."""

    def __init__(self, what: str, log_path: Path, stop_timeout_s: float, popen: Popen) -> None:
        """``what`` names it in errors; ``stop_timeout_s`` is the longest it may take to end."""
        self._what = what
        self.log_path = log_path
        """What it prints; restarts append to it."""
        self._stop_timeout_s = stop_timeout_s
        self._popen = popen
        self._process: ChildProcess | None = None
        self._is_ended = False
        """Whether it was asked to end, here."""

    @property
    def has_died(self) -> bool:
        """Whether its process has ended although nobody asked it to, here."""
        return self._process is not None and not self._is_ended and not self.is_running

    @property
    def exit_code(self) -> int | None:
        """Of its latest process, negative for a signal; ``None`` while that runs, or if there was none."""
        return self._process.poll() if self._process is not None else None

    @property
    def is_running(self) -> bool:
        """Whether its process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Send SIGTERM and wait until it has ended; one that does not in time is killed. Idempotent.

        A paused one is resumed first. A bookie finishes its requests.
        """
        if self._process is not None:
            self.begin_stop()
            try:
                self._process.wait(self._stop_timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def begin_stop(self) -> None:
        """The first half of :meth:`stop`, so that several processes end at the same time.

        Sends SIGTERM once per process: a second one would cut a bookie's draining short.
        """
        if not self._is_ended:
            self._is_ended = True
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a paused one takes the SIGTERM only now

    def kill(self) -> None:
        """SIGKILL, like a crash: what was not synced is lost. Returns once the process is gone."""
        self._is_ended = True
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open and it answers no request until :meth:`resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def start_error(self, detail: str) -> LocalStartError:
        """The error of a start that failed because of ``detail``; carries its log's last lines."""
        return LocalStartError(self._what, detail, log_tail(self.log_path))

    def _spawn(self, command: Sequence[str], **options: Any) -> ChildProcess:
        self._is_ended = False
        with self.log_path.open("ab") as log:
            process = self._popen(command, stdout=log, **options)
        self._process = process
        return process

    def _signal(self, sig: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(sig)
