"""Inspection: what every directory says of itself, found out without changing anything."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.identity.cookie_file import (
    COOKIE_NAME,
    STARTS_NAME,
    DirectoryCookie,
    Start,
    read_cookie,
    read_start,
)
from bookie_server.storage.index.directory import NAME as INDEX_NAME
from bookie_server.storage.journal.journal import file_ids
from bookie_server.storage.logs.entry_log import log_ids

JOURNAL = "journal"
LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class FoundDirectory:
    """One directory of the settings, as it is now."""

    path: str
    kind: str
    """``JOURNAL`` or ``LEDGER``."""
    index: int
    """Its place among the directories of its kind."""
    cookie: DirectoryCookie | None = None
    start: Start | None = None
    """The latest start that was counted in it."""
    has_records: bool = False
    """Journals, entry logs or an index are in it, whoever wrote them."""
    damage: str = ""
    """Why its cookie or its start counter cannot be believed."""


def inspect(files: FileSystem, settings: StorageSettings) -> tuple[FoundDirectory, ...]:
    """Look at all directories; one that does not exist is empty.

    Raises:
        OSError: a directory or a file in it cannot be read.
    """
    named = [(JOURNAL, path, i) for i, path in enumerate(settings.journal_directories)]
    named += [(LEDGER, path, i) for i, path in enumerate(settings.ledger_directories)]
    return tuple(_look(files, kind, path, index) for kind, path, index in named)


def _look(files: FileSystem, kind: str, path: str, index: int) -> FoundDirectory:
    try:
        names = files.names(path)
    except FileNotFoundError:
        return FoundDirectory(path, kind, index)
    has_records = bool(file_ids(files, path) or log_ids(files, path) or INDEX_NAME in names)
    cookie, start, damage = None, None, ""
    try:
        if COOKIE_NAME in names:
            cookie = read_cookie(files, path)
        if STARTS_NAME in names:
            start = read_start(files, path)
    except DamagedFileError as error:
        damage = str(error)
    return FoundDirectory(path, kind, index, cookie, start, has_records, damage)
