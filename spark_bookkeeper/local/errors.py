"""What can go wrong with processes on this machine, with the end of the process's own log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bookkeeper_metadata.foundation.errors import BookKeeperError

LOG_TAIL_LINES = 20
"""Lines at the end of a failed process's log that its error shows."""


class LocalStartError(BookKeeperError):
    """A process of the local cluster did not come up; its log's last lines say why."""

    name = "BK_LOCAL_START"
    retryable = True

    what: str
    detail: str
    log_tail: str
    message = "{what} did not start: {detail}."

    def __str__(self) -> str:
        return super().__str__() + (f"\n{self.log_tail}" if self.log_tail else "")


class LocalDirectoryInUseError(BookKeeperError):
    """Another local cluster runs in this directory; stop that one or choose another directory."""

    name = "BK_LOCAL_DIRECTORY_IN_USE"
    definite = True

    directory: str
    message = "another local cluster runs in this directory. directory={directory}"


class LocalDirectoryError(BookKeeperError):
    """A directory cannot be made or written to; choose another, or change what is in the way."""

    name = "BK_LOCAL_DIRECTORY"
    definite = True

    directory: str
    detail: str
    message = (
        "directory cannot be made or written to; choose another: {detail}. directory={directory}"
    )


@contextmanager
def directory_refusals(directory: Path) -> Iterator[None]:
    """Report errors of a block that makes ``directory`` and its first file by one name.

    Raises:
        LocalDirectoryError: the operating system refuses it.
    """
    try:
        yield
    except OSError as cause:
        detail = f"{cause.strerror or cause} ({cause.filename})" if cause.filename else str(cause)
        raise LocalDirectoryError(str(directory), detail) from cause


def log_tail(path: Path) -> str:
    """The last lines of a log file, empty when there is none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return "".join(deque(lines, maxlen=LOG_TAIL_LINES)).rstrip()
    except FileNotFoundError:
        return ""
