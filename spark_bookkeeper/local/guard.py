"""The launcher's side of the guard: processes that never outlive whoever started them.

:class:`Guard` starts one guard process (see :mod:`spark_bookkeeper.local.guard_process`, which
explains why it exists) and asks it to start, signal and reap everything else.
:class:`GuardedProcess` is the part of ``subprocess.Popen`` that a local cluster uses.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from spark_bookkeeper.local import guard_process

STOP_TIMEOUT_S = 10.0
"""Longest the guard may take to kill its children and end."""

_POLL_INTERVAL_S = 0.02


class GuardedProcess:
    """A child of the guard; behaves like the ``subprocess.Popen`` of a child of our own."""

    def __init__(self, guard: Guard, command: Sequence[str], pid: int) -> None:
        self._guard = guard
        self.args = list(command)
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended it), ``None`` while it runs."""
        if self.returncode is None:
            self.returncode = self._guard.request({"do": "poll", "pid": self.pid})["returncode"]
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has one; ``timeout`` in seconds.

        Raises:
            subprocess.TimeoutExpired: it still runs after ``timeout``.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (returncode := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(_POLL_INTERVAL_S)
        return returncode

    def send_signal(self, sig: int) -> None:
        """Send ``sig``; nothing happens to a process that has ended."""
        if self.returncode is None:
            request = {"do": "signal", "pid": self.pid, "signal": int(sig)}
            self.returncode = self._guard.request(request)["returncode"]

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Guard:
    """Owns the guard process. Closing it kills every process it started; safe for several threads.

    ``remove`` is a directory that the guard deletes when it ends, whatever ends it short of a
    SIGKILL of the guard itself: how a temporary cluster cleans up after a killed launcher.
    """

    def __init__(self, *, remove: Path | None = None) -> None:
        ours, theirs = socket.socketpair()
        # Only the guard keeps its end: with a copy of it here we would never see that the guard is
        # gone.
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",  # only the standard library, even if the environment names other folders
                    guard_process.__file__,
                    str(theirs.fileno()),
                    str(os.getpid()),
                    *([] if remove is None else [str(remove)]),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # the terminal's Ctrl-C is for the launcher alone
            )
        self._control = ours
        self._reader = ours.makefile("rb")
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def pid(self) -> int:
        """The guard's own process id, the parent of everything it started."""
        return self._process.pid

    def popen(
        self,
        command: Sequence[str],
        *,
        stdout: IO[Any] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> GuardedProcess:
        """Start ``command`` as a child of the guard, with an empty standard input.

        ``stdout`` is an open file for all that it prints, errors included (the child gets its own
        duplicate); ``None``: nobody reads it. ``env`` of ``None`` is ours.

        Raises:
            OSError: the command could not be started, or the guard is gone.
        """
        request = {
            "do": "spawn",
            "command": [os.fspath(part) for part in command],
            "env": dict(os.environ if env is None else env),
            "cwd": os.fspath(cwd) if cwd is not None else os.getcwd(),
        }
        with open(os.devnull, "wb") as devnull:
            pid = self.request(request, [(stdout or devnull).fileno()])["pid"]
        return GuardedProcess(self, command, pid)

    def request(self, request: Mapping[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        """Send one request to the guard and return its answer.

        Raises:
            OSError: the guard could not do it, or is gone (then so are its children).
        """
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            if self._is_closed:
                raise ProcessLookupError("the guard process has been closed")
            # Descriptors travel with the first byte; what does not fit at once follows plainly.
            sent = socket.send_fds(self._control, [line], fds) if fds else 0
            self._control.sendall(line[sent:])
            answer = self._reader.readline()
        if not answer:
            raise ProcessLookupError("the guard process ended, and with it all it had started")
        decoded: dict[str, Any] = json.loads(answer)
        if "error" in decoded:
            raise OSError(decoded["error"])
        return decoded

    def close(self) -> None:
        """Kill what still runs, wait for the guard's end. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._reader.close()
            self._control.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel kills its children with it
            self._process.wait()
