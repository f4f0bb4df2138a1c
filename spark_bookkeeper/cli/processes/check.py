"""``bookkeeper bookie --check``: judges a bookie's directories and prints what it found."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bookie_server.settings import StorageSettings

_MIB = 1024 * 1024


def check_directories(directories: Sequence[str], storage: StorageSettings | None) -> bool:
    """Judge these directories, or those of the settings, in their order; returns whether all is well.

    Raises:
        StorageRefusedError: a bookie runs on one of them.
        ValueError: they cannot be the directories of one bookie.
        OSError: one cannot be read.
    """
    from bookie_server.storage.check.judgement import judge_directories
    from bookie_server.storage.check.roles import assign_roles
    from bookie_server.storage.disk.errors import StorageRefusedError
    from bookie_server.storage.disk.real_files import RealFileSystem, keep_bookies_off

    files = RealFileSystem()
    settings = storage or assign_roles(files, [os.path.abspath(each) for each in directories])
    try:
        kept = keep_bookies_off(settings.directories)
    except BlockingIOError as cause:
        text = "a bookie runs on it; stop it first"
        raise StorageRefusedError(str(cause.filename), text) from cause
    with kept:
        result = judge_directories(files, settings, progress=_Progress())
    for kind, paths in (
        ("journal", settings.journal_directories),
        ("ledgers", settings.ledger_directories),
    ):
        for path in paths:
            click.echo(f"{kind}  {path}")
    for note in result.notes:
        click.echo(f"note: {note}")
    for problem in result.problems:
        click.echo(f"PROBLEM: {problem}")
    click.echo(
        f"{result.ledgers} ledgers; {result.blocks} stored blocks compared with their checksums, "
        f"{result.bytes_checked} bytes"
    )
    click.echo(
        f"{result.start}. Whether the cluster knows a later start, only its metadata tells: "
        "`bookkeeper cookies show`"
    )
    return result.is_sound


class _Progress:
    """A line on a terminal that grows with the bytes read."""

    def __init__(self) -> None:
        self._mib = -1

    def __call__(self, bytes_read: int) -> None:
        if bytes_read // _MIB != self._mib and sys.stderr.isatty():
            self._mib = bytes_read // _MIB
            click.echo(f"\r{self._mib} MiB read", err=True, nl=False)
