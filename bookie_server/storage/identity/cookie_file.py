"""The cookie files of a directory: whose it is, which of a set, and how often its bookie has started.

Every journal and ledger directory holds two: ``cookie``, written when a set of directories is made or
changed, and ``starts``, written by every start. Both are a line of JSON behind a line with its CRC-32C,
for an operator reads them, and are replaced whole: a crash leaves the old one or the new one.

A directory is known by the random id in its cookie, not by its path: disks may be mounted elsewhere.
The paths stand beside the ids for the sake of messages.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, get_type_hints

from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.wire.digest import crc32c

COOKIE_NAME = "cookie"
STARTS_NAME = "starts"
FORMAT_VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Member:
    """One directory of a set."""

    directory_id: str
    path: str
    """Where it was when the cookie was written."""


@dataclass(frozen=True, slots=True)
class DirectorySet:
    """The directories of one bookie, in the order of its settings."""

    revision: int
    """Grows with every change; after a crash within one, the highest holds."""
    journals: tuple[Member, ...]
    ledgers: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class DirectoryCookie:
    """What the cookie file of one directory says."""

    bookie_id: str
    cluster_id: str
    directory_id: str
    """This directory's own."""
    directories: DirectorySet


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a bookie, as counted on a disk.

    A number alone would not do: two starts under one id, on different disks, can count the same.
    """

    number: int
    start_id: str
    """Drawn at random by this start."""
    previous_id: str
    """Of the start before, as the metadata had it; empty for the first."""
    collections: int = 0
    """How often the bookie has set out to compare its ledgers with the metadata's, over its life."""


def instance_id_of(cluster_id: str, bookie_id: str) -> bytes:
    """What every journal, entry log and index of this bookie carries: 16 bytes, of cluster and name."""
    return uuid.uuid5(uuid.UUID(cluster_id), bookie_id).bytes


def write_cookie(files: FileSystem, directory: str, cookie: DirectoryCookie) -> None:
    """Replace a directory's cookie, durably.

    Raises:
        OSError: the old one or the new one is there.
    """
    _replace(files, directory, COOKIE_NAME, asdict(cookie))


def read_cookie(files: FileSystem, directory: str) -> DirectoryCookie:
    """Read a directory's cookie.

    Raises:
        DamagedFileError: it is there, but is none.
        OSError: it is not there, or cannot be read.
    """
    document = _read(files, directory, COOKIE_NAME)
    try:
        parts = document["directories"]
        directories = DirectorySet(
            parts["revision"],
            tuple(Member(**member) for member in parts["journals"]),
            tuple(Member(**member) for member in parts["ledgers"]),
        )
        return _typed(DirectoryCookie(**{**document, "directories": directories}))
    except (KeyError, TypeError) as cause:
        raise DamagedFileError(f"{directory}/{COOKIE_NAME}", f"no cookie: {cause!r}") from cause


def write_start(files: FileSystem, directory: str, start: Start) -> None:
    """Replace a directory's start counter, durably.

    Raises:
        OSError: the old one or the new one is there.
    """
    _replace(files, directory, STARTS_NAME, asdict(start))


def read_start(files: FileSystem, directory: str) -> Start:
    """Read a directory's start counter.

    Raises:
        DamagedFileError: it is there, but is none.
        OSError: it is not there, or cannot be read.
    """
    document = _read(files, directory, STARTS_NAME)
    try:
        return _typed(Start(**document))
    except TypeError as cause:
        path = f"{directory}/{STARTS_NAME}"
        raise DamagedFileError(path, f"no start counter: {cause}") from cause


def _typed(value: T) -> T:
    """The same, all of whose fields are of their types.

    Raises:
        TypeError: one is not, though the file's checksum holds: somebody made it so.
    """
    for name, kind in get_type_hints(type(value)).items():
        found = getattr(value, name)
        if isinstance(found, tuple):
            for each in found:
                _typed(each)
        elif kind in (int, str):
            if type(found) is not kind:
                raise TypeError(f"{name}={found!r:.80}")
        else:
            _typed(found)
    return value


def _replace(files: FileSystem, directory: str, name: str, document: Mapping[str, Any]) -> None:
    path, temporary = f"{directory}/{name}", f"{directory}/{name}.tmp"
    if f"{name}.tmp" in files.names(directory):
        files.delete(temporary)  # a crash came before its rename
    line = json.dumps({"format": FORMAT_VERSION, **document}).encode()
    with files.create(temporary) as file:
        file.write_at(0, [b"%08x\n%s\n" % (crc32c(line), line)])
        file.sync()
    files.rename(temporary, path)
    files.sync_dir(directory)


def _read(files: FileSystem, directory: str, name: str) -> dict[str, Any]:
    path = f"{directory}/{name}"
    with files.open(path) as file:
        content = file.read_at(0, file.size())
    checksum, _, line = content.rstrip(b"\n").partition(b"\n")
    if checksum != b"%08x" % crc32c(line):
        raise DamagedFileError(path, "checksum does not match")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as cause:
        raise DamagedFileError(path, f"not JSON: {cause}") from cause
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT_VERSION:
        raise DamagedFileError(path, "of another format, or written by a newer version")
    return document
