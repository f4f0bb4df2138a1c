"""What storage raises on purpose; everything else that escapes it is a defect."""

from __future__ import annotations

from bookkeeper_metadata.foundation.errors import BookKeeperError


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
