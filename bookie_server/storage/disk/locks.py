"""Locks on directories, so that two processes never work in the same."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from bookie_server.storage.disk.files import FileSystem

LOCK_NAME = "lock"


def lock_directories(files: FileSystem, directories: Iterable[str]) -> ExitStack:
    """Create missing directories and lock each of them; closing what is returned gives them up.

    Raises:
        BlockingIOError: another process has one of them; none is locked any more.
        OSError: one cannot be made.
    """
    with ExitStack() as locked:
        for directory in directories:
            files.make_directory(directory)
            locked.callback(files.lock(f"{directory}/{LOCK_NAME}").close)
        return locked.pop_all()
