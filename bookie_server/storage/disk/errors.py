"""What storage raises on purpose; everything else that escapes it is a defect."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper_metadata.foundation.errors import BookKeeperError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class StorageFailedError(BookKeeperError):
    """A write or sync failed, so nothing more may be acknowledged; the bookie must stop.

    After a failed fsync the kernel may have dropped the dirty pages and cleared the error: trying
    again would report success for bytes that are gone. A restart replays what is really on disk.
    """

    name = "BK_STORAGE_FAILED"

    path: str
    detail: str
    message = "storage failed, the bookie must stop: {detail}. path={path}"


class StorageRefusedError(BookKeeperError):
    """The directories are not this bookie's, or not readable by this version; nothing was changed."""

    name = "BK_STORAGE_REFUSED"
    definite = True

    path: str
    detail: str
    message = "storage refuses to open: {detail}. path={path}"


class DamagedFileError(BookKeeperError):
    """A stored file does not pass its checksums; what it holds is unknown, not absent."""

    name = "BK_STORAGE_DAMAGED"

    path: str
    detail: str
    message = "stored file is damaged: {detail}. path={path}"


class NoRoomError(BookKeeperError):
    """The disk is full, or a quota used up; nothing is relied on that was to be written.

    Unlike after a failed sync of something that stays, the same may be tried again: nothing that
    was written so far is built upon.
    """

    name = "BK_DISK_FULL"
    retryable = True

    path: str
    detail: str
    message = "no room on the disk: {detail}. path={path}"


def is_no_room(error: OSError) -> bool:
    """Whether a file operation failed because the disk or a quota is full."""
    return error.errno in _NO_ROOM


@contextmanager
def repeatable(path: str) -> Iterator[None]:
    """Around what may be done again when there is room: a full disk within is a ``NoRoomError``.

    That is to say, writes in places that nothing refers to yet, and syncs of files that are thrown
    away if they fail. Never a sync of a file that is kept: its error may be another write's.
    """
    try:
        yield
    except OSError as cause:
        if is_no_room(cause):
            raise NoRoomError(path, str(cause)) from cause
        raise
