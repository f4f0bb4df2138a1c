"""What storage raises on purpose; everything else that escapes it is a defect."""

from __future__ import annotations

from bookkeeper_metadata.errors import BookKeeperError


class StorageFailedError(BookKeeperError):
    """A write or sync failed, so nothing more may be acknowledged; the bookie must stop.

    After a failed fsync the kernel may have dropped the dirty pages and cleared the error: trying
    again would report success for bytes that are gone. A restart replays what is really on disk.
    """

    name = "BK_STORAGE_FAILED"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return f"storage failed, the bookie must stop: {self.detail}. path={self.path}"


class StorageRefusedError(BookKeeperError):
    """These directories cannot be this bookie's storage; nothing was changed."""

    name = "BK_STORAGE_REFUSED"
    definite = True

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return f"storage refuses to open: {self.detail}. path={self.path}"


class DamagedFileError(BookKeeperError):
    """A stored file does not pass its checksums; what it holds is unknown, not absent."""

    name = "BK_STORAGE_DAMAGED"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return f"stored file is damaged: {self.detail}. path={self.path}"
