"""Roles: which of some directories are journals and which hold ledgers, in the order a bookie had them.

By what each says of itself: its cookie, else the place that another's cookie names, else the files in
it. So directories can be checked without the bookie's settings; whether those list them in the right
order only a check with the settings tells.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.identity.cookie_file import (
    COOKIE_NAME,
    DirectoryCookie,
    DirectorySet,
    Member,
    read_cookie,
)
from bookie_server.storage.identity.inspection import JOURNAL, LEDGER
from bookie_server.storage.index.directory import NAME as INDEX_NAME
from bookie_server.storage.journal.journal_file import file_ids
from bookie_server.storage.logs.entry_log import log_ids

Role = tuple[str, int]
"""``JOURNAL`` or ``LEDGER``, and the place among its kind."""
_LAST = 2**31


def assign_roles(files: FileSystem, directories: Sequence[str]) -> StorageSettings:
    """Settings that name these directories as the bookie did that made them.

    Raises:
        ValueError: there are not both journals and ledgers, or one is named twice.
        OSError: a directory is not there or cannot be read.
    """
    cookies = {path: _cookie_of(files, path) for path in directories}
    known: dict[str, Role] = {}
    sets = sorted((each.directories for each in cookies.values() if each), key=_revision_of)
    for found in sets:
        for kind, index, member in _members(found):
            # A path is no directory's name; it counts only where nothing in it says otherwise.
            known[os.path.abspath(member.path)] = kind, index
    roles: dict[str, Role] = {}
    for path in directories:
        role = _role_of(files, path, cookies[path], known)
        if role is None:
            # Empty, and nobody knows of it: a new bookie's, journals first in the command.
            has_journal = any(kind == JOURNAL for kind, _ in roles.values())
            role = (LEDGER if has_journal else JOURNAL), _LAST
        roles[path] = role
    ordered = sorted(directories, key=lambda path: roles[path][1])
    return StorageSettings(
        journal_directories=tuple(path for path in ordered if roles[path][0] == JOURNAL),
        ledger_directories=tuple(path for path in ordered if roles[path][0] == LEDGER),
    )


def _cookie_of(files: FileSystem, path: str) -> DirectoryCookie | None:
    if COOKIE_NAME not in files.names(path):
        return None
    try:
        return read_cookie(files, path)
    except DamagedFileError:
        return None  # the check reports it


def _revision_of(directories: DirectorySet) -> int:
    return directories.revision


def _members(directories: DirectorySet) -> Iterator[tuple[str, int, Member]]:
    for kind, members in ((JOURNAL, directories.journals), (LEDGER, directories.ledgers)):
        for index, member in enumerate(members):
            yield kind, index, member


def _role_of(
    files: FileSystem, path: str, cookie: DirectoryCookie | None, known: dict[str, Role]
) -> Role | None:
    if cookie is not None:
        for kind, index, member in _members(cookie.directories):
            if member.directory_id == cookie.directory_id:
                return kind, index
    if (role := known.get(os.path.abspath(path))) is not None:
        return role
    if file_ids(files, path):
        return JOURNAL, _LAST
    return (LEDGER, _LAST) if log_ids(files, path) or INDEX_NAME in files.names(path) else None
