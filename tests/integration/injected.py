"""A bookie process whose system calls fail when a test says so: strace, attached while it runs.

The counter of ``when`` is each thread's own, so the n-th call of a thread is hit, whichever it is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.processes import eventually
from tests.patience import seconds

_SMALL = {
    "--journal-file-size-bytes": "65536",
    "--journal-zero-chunk-bytes": "8192",
    "--write-cache-size-bytes": "16384",
    "--checkpoint-interval-ms": "100",
    "--block-size-bytes": "512",
}
"""So that a few dozen entries roll journals and complete checkpoints."""


def why_not() -> str:
    """Why calls cannot be made to fail here; empty if they can."""
    if shutil.which("strace") is None:
        return "there is no strace on this machine"
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        done = subprocess.run(
            ["timeout", "1", "strace", "-p", str(sleeping.pid)], capture_output=True, check=False
        )
    finally:
        sleeping.kill()
        sleeping.wait()
    if b"attached" in done.stderr:
        return ""
    return f"strace may not attach here: {done.stderr.decode(errors='replace').strip()}"


class InjectedBookie:
    """A bookie on directories of its own, in a cluster that others keep."""

    def __init__(self, uri: str, bookie_id: str, directory: Path) -> None:
        self.bookie_id = bookie_id
        self._directory = directory
        self._log = directory / "log"
        self._calls = directory / "calls"
        flags = {
            **_SMALL,
            "--metadata-service-uri": uri,
            "--port": bookie_id.rpartition(":")[2],
            "--journal-directories": str(directory / "journal"),
            "--ledger-directories": str(directory / "ledgers"),
        }
        words = [word for flag in flags.items() for word in flag]
        self._command = [sys.executable, "-m", "bookie_server", *words]
        self.process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        """What the bookie has said."""
        return self._log.read_text(encoding="utf-8")

    def start(self) -> None:
        """Until it is ready; a predecessor's session may have to expire."""
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(self._command, stderr=log, stdout=log)
        assert eventually(lambda: "bookie ready" in self.log, 60), self.log

    def has_struck(self) -> bool:
        """Whether a call was made to fail, or to wait."""
        calls = self._calls.read_text(encoding="utf-8", errors="replace")
        return "(INJECTED)" in calls or "(DELAYED)" in calls

    @contextmanager
    def injecting(self, call: str, fault: str, nth: int) -> Iterator[None]:
        """Inside, each thread's ``nth`` such call fails: ``error=EIO``, ``signal=KILL``."""
        command = ["strace", "-f", "-p", str(self.process.pid), "-o", str(self._calls)]
        command += ["-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={nth}"]
        told = self._directory / "strace"
        with told.open("wb") as errors:
            tracer = subprocess.Popen(command, stderr=errors)
        try:
            assert eventually(lambda: b"attached" in told.read_bytes(), 30), told.read_text()
            yield
        finally:
            tracer.terminate()
            try:
                tracer.wait(seconds(10))
            except subprocess.TimeoutExpired:
                # strace that detaches from a process which is just ending waits for its main thread,
                # and that for the threads which strace has stopped: for ever.
                tracer.kill()
                tracer.wait()

    def end(self) -> None:
        """As SIGKILL; nothing if it has ended."""
        self.process.kill()
        self.process.wait()
