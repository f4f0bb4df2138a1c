"""Inspection: what every directory says of itself, found out without changing anything."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.stamps import SECTOR_SIZE
from bookie_server.storage.identity.cookie_file import (
    COOKIE_NAME,
    STARTS_NAME,
    DirectoryCookie,
    Start,
    read_cookie,
    read_start,
)
from bookie_server.storage.index.directory import NAME as INDEX_NAME
from bookie_server.storage.index.header import FILE_MAGIC, parse_header
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    file_ids,
    file_name,
    parse_file_header,
)
from bookie_server.storage.logs.entry_log import log_ids

JOURNAL = "journal"
LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where records were written, by their own word."""

    instance_id: bytes
    """See ``instance_id_of``."""
    kind: str
    index: int
    """Place of their directory among those of its kind."""


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
    origin: Origin | None = None
    """What its records say, where no cookie does."""


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
    origin = _origin(files, path) if has_records and cookie is None else None
    return FoundDirectory(path, kind, index, cookie, start, has_records, damage, origin)


def _origin(files: FileSystem, path: str) -> Origin | None:
    """What the first sound header of an index or a journal says; ``None`` where there is none."""
    if INDEX_NAME in files.names(path):
        with files.open(f"{path}/{INDEX_NAME}") as file:
            found = parse_header(file.read_at(0, SECTOR_SIZE))
        if found is not None and found.magic == FILE_MAGIC:
            return Origin(found.instance_id, LEDGER, found.directory_index)
    for file_id in file_ids(files, path):
        with files.open(f"{path}/{file_name(file_id)}") as file:
            header = parse_file_header(file.read_at(0, BLOCK_SIZE))
        if header is not None:
            return Origin(header.instance_id, JOURNAL, header.journal_index)
    return None
