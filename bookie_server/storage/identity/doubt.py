"""Doubt: a directory whose records are kept although nothing says any more that they are all there.

A directory that lost its cookie or its start counter may be an old copy, and its records look sound.
Where an operator has them kept, a mark goes into the directory before the new cookie does: from its
first durable byte on every start finds damage, and the bookie denies nothing, until the storage itself
has recorded that damage is unanswered. What the records hold is true whenever they were written; only
what is not among them says nothing.
"""

from __future__ import annotations

from bookie_server.storage.disk.files import FileSystem

_NAME = "doubtful"


def mark_doubtful(files: FileSystem, directory: str) -> None:
    """Say durably that records of the directory may be missing; idempotent.

    Raises:
        OSError: it may or may not be said.
    """
    if not is_doubtful(files, directory):
        files.create(f"{directory}/{_NAME}").close()
    files.sync_dir(directory)


def is_doubtful(files: FileSystem, directory: str) -> bool:
    """Whether records may be missing, which the storage has not recorded yet."""
    return _NAME in files.names(directory)


def unmark_doubtful(files: FileSystem, directory: str) -> None:
    """Call it once the storage has durably recorded that damage is unanswered; idempotent.

    Raises:
        OSError: the mark may still be there; then the next start finds damage again.
    """
    if is_doubtful(files, directory):
        files.delete(f"{directory}/{_NAME}")
        files.sync_dir(directory)
