"""The guard: starts a local cluster's processes and outlives their launcher just long enough.

Whoever starts a local cluster may be killed with SIGKILL at any moment and can then clean up
nothing. So it starts nothing itself: this small process does, on its behalf, as the parent of them
all. When its launcher goes, however that happens, it kills every child, removes the launcher's
temporary directory and ends. When the guard itself is killed, the kernel kills the children
(PR_SET_PDEATHSIG; safe here and not in the launcher, because it follows the death of the spawning
*thread*, and this process has only one).

It decides nothing else: no restarts, no readiness. It is run by its path, isolated and on the
standard library alone, so it starts in some ten milliseconds and has no threads.

One request at a time arrives as a JSON line on the socket given by its number, with the file
for the child's output attached to ``spawn``; each is answered with one JSON line.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from typing import Any

PARENT_CHECK_INTERVAL_S = 0.5
"""How often the guard checks that its launcher lives: a fork of it may hold the socket open."""

_PR_SET_PDEATHSIG = 1
_FDS_PER_REQUEST_MAX = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class _Guard:
    """The children by process id, and how to clean up when the launcher is gone."""

    def __init__(self, control: socket.socket, launcher_pid: int, remove: str | None) -> None:
        self._control = control
        self._launcher_pid = launcher_pid
        self._remove = remove
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._pid = os.getpid()

    def serve(self) -> None:
        """Answer requests until the launcher closes its end or dies; then leave nothing behind."""
        try:
            while (request := self._receive()) is not None:
                body, fds = request
                try:
                    answer = self._answer(json.loads(body), fds)
                except OSError as cause:
                    answer = {"error": f"{type(cause).__name__}: {cause}"}
                finally:
                    for fd in fds:
                        os.close(fd)
                self._control.sendall(json.dumps(answer).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            return  # the launcher died in mid-request: go on to clean up
        finally:
            self._end_children()
            if self._remove is not None:
                shutil.rmtree(self._remove, ignore_errors=True)

    def _receive(self) -> tuple[bytes, list[int]] | None:
        """One whole request with its file descriptors; ``None`` once the launcher is gone."""
        line = b""
        fds: list[int] = []
        while not line.endswith(b"\n"):
            if not select.select([self._control], [], [], PARENT_CHECK_INTERVAL_S)[0]:
                # A process whose parent has died gets another one.
                if os.getppid() != self._launcher_pid:
                    return None
                continue
            received, received_fds, _, _ = socket.recv_fds(
                self._control, 65536, _FDS_PER_REQUEST_MAX
            )
            fds += received_fds
            if not received:
                return None
            line += received
        return line, fds

    def _answer(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        if request["do"] == "spawn":
            child = subprocess.Popen(
                request["command"],
                cwd=request["cwd"],
                env=request["env"],
                stdin=subprocess.DEVNULL,
                stdout=fds[0],
                stderr=subprocess.STDOUT,
                preexec_fn=self._die_with_the_guard,
            )
            self._children[child.pid] = child
            return {"pid": child.pid}
        child = self._children[request["pid"]]
        if request["do"] == "signal":
            # Popen never signals a child it has reaped, so a recycled process id is never hit.
            child.send_signal(request["signal"])
        return {"returncode": child.poll()}

    def _die_with_the_guard(self) -> None:
        """In the child, before exec: have the kernel kill it when the guard dies."""
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._pid:  # it died between fork and prctl
                os._exit(1)

    def _end_children(self) -> None:
        for child in self._children.values():
            # All are killed before one is waited for, so that they end at the same time.
            if child.poll() is None:
                child.kill()
        for child in self._children.values():
            child.wait()


def main() -> None:
    """``guard_process.py CONTROL_FD LAUNCHER_PID [DIRECTORY_TO_REMOVE]``."""
    control_fd, launcher_pid, *remove = sys.argv[1:]
    with socket.socket(fileno=int(control_fd)) as control:
        _Guard(control, int(launcher_pid), remove[0] if remove else None).serve()


if __name__ == "__main__":
    main()
