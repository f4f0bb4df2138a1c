"""The one error hierarchy of the project: what happened, and what the caller may conclude.

Every class carries Apache BookKeeper's numeric ``code`` where Apache has one, the stable ``name``
that users see (``BK_…``), and two facts a caller acts on:

``retryable``
    Doing the same thing again can succeed.
``definite``
    It surely did not happen. ``False`` means "unknown": the effect may still become visible.

Errors take facts, not sentences, so they pickle between Spark's processes; the sentence is made in
``__str__``: lowercase, facts last as ``key=value``. Source of codes: ``BKException.Code``.
"""

from __future__ import annotations


class BookKeeperError(Exception):
    """Root of everything this project raises on purpose."""

    code: int = -999
    name: str = "BK_UNEXPECTED"
    retryable: bool = False
    definite: bool = False


class LedgerFencedError(BookKeeperError):
    """Another client is recovering this ledger; stop writing to it and open a new one."""

    code = -101
    name = "BK_FENCED"

    def __init__(self, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"ledger fenced by a recovering client. ledger_id={self.ledger_id}"


class LedgerClosedError(BookKeeperError):
    """The ledger is closed; entries already acknowledged are safe, this one was not written."""

    code = -11
    name = "BK_LEDGER_CLOSED"
    definite = True

    def __init__(self, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"ledger is closed. ledger_id={self.ledger_id}"


class NoSuchLedgerError(BookKeeperError):
    """No ledger of this id exists in the metadata."""

    code = -7
    name = "BK_NO_SUCH_LEDGER"
    definite = True

    def __init__(self, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"no such ledger. ledger_id={self.ledger_id}"


class LedgerExistsError(BookKeeperError):
    """A ledger of this id exists already; choose another id, or none to have one allocated."""

    code = -20
    name = "BK_LEDGER_EXISTS"
    definite = True

    def __init__(self, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"ledger exists already. ledger_id={self.ledger_id}"


class LedgerInUseError(BookKeeperError):
    """The ledger belongs to a log, which alone may delete it."""

    code = -100
    name = "BK_LEDGER_IN_USE"
    definite = True

    def __init__(self, ledger_id: int, log: str) -> None:
        super().__init__(ledger_id, log)
        self.ledger_id = ledger_id
        self.log = log

    def __str__(self) -> str:
        return f"ledger belongs to a log; delete or truncate the log instead. ledger_id={self.ledger_id} log={self.log}"


class NoSuchEntryError(BookKeeperError):
    """The entry lies outside what this ledger holds, as far as this reader may know."""

    code = -13
    name = "BK_NO_SUCH_ENTRY"
    definite = True

    def __init__(self, ledger_id: int, entry_id: int, last_add_confirmed: int) -> None:
        super().__init__(ledger_id, entry_id, last_add_confirmed)
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.last_add_confirmed = last_add_confirmed

    def __str__(self) -> str:
        return (
            "no such entry in this ledger. "
            f"ledger_id={self.ledger_id} entry_id={self.entry_id} last_add_confirmed={self.last_add_confirmed}"
        )


class EntryUnreadableError(BookKeeperError):
    """No replica could answer for an entry that should exist; it may be readable later."""

    code = -1
    name = "BK_ENTRY_UNREADABLE"
    retryable = True

    def __init__(self, ledger_id: int, entry_id: int, answers: tuple[str, ...]) -> None:
        super().__init__(ledger_id, entry_id, answers)
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.answers = answers

    def __str__(self) -> str:
        return (
            "no replica returned the entry. "
            f"ledger_id={self.ledger_id} entry_id={self.entry_id} answers={','.join(self.answers)}"
        )


class DigestMismatchError(BookKeeperError):
    """Every replica that answered returned bytes that do not match their digest."""

    code = -5
    name = "BK_DIGEST_MISMATCH"

    def __init__(self, ledger_id: int, entry_id: int, detail: str) -> None:
        super().__init__(ledger_id, entry_id, detail)
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.detail = detail

    def __str__(self) -> str:
        return f"entry does not match its digest: {self.detail}. ledger_id={self.ledger_id} entry_id={self.entry_id}"


class EntryTooLargeError(BookKeeperError, ValueError):
    """The payload exceeds what an entry may hold; split it."""

    code = -14
    name = "BK_ENTRY_TOO_LARGE"
    definite = True

    def __init__(self, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(size_bytes, size_bytes_max)
        self.size_bytes = size_bytes
        self.size_bytes_max = size_bytes_max

    def __str__(self) -> str:
        return f"payload exceeds the entry limit. size_bytes={self.size_bytes} size_bytes_max={self.size_bytes_max}"


class NotEnoughBookiesError(BookKeeperError):
    """Too few bookies are usable to go on; nothing acknowledged is lost."""

    code = -6
    name = "BK_NOT_ENOUGH_BOOKIES"
    retryable = True

    def __init__(self, needed: int, available: tuple[str, ...], detail: str = "") -> None:
        super().__init__(needed, available, detail)
        self.needed = needed
        self.available = available
        self.detail = detail

    def __str__(self) -> str:
        listed = ",".join(self.available) or "none"
        suffix = f" detail={self.detail}" if self.detail else ""
        return f"not enough bookies; start more or lower ensembleSize. needed={self.needed} available={listed}{suffix}"


class BookieUnavailableError(BookKeeperError):
    """The bookie could not be reached or went away before it answered."""

    code = -8
    name = "BK_BOOKIE_UNAVAILABLE"
    retryable = True

    def __init__(self, bookie_id: str, detail: str) -> None:
        super().__init__(bookie_id, detail)
        self.bookie_id = bookie_id
        self.detail = detail

    def __str__(self) -> str:
        return f"bookie unavailable: {self.detail}. bookie_id={self.bookie_id}"


class RequestTimeoutError(BookKeeperError):
    """No answer arrived in time; the effect may or may not have happened."""

    code = -23
    name = "BK_TIMEOUT"
    retryable = True

    def __init__(self, what: str, timeout_ms: int) -> None:
        super().__init__(what, timeout_ms)
        self.what = what
        self.timeout_ms = timeout_ms

    def __str__(self) -> str:
        return f"no answer in time. what={self.what} timeout_ms={self.timeout_ms}"


class AddQuorumTimeoutError(BookKeeperError):
    """An entry did not reach its ack quorum in time; its writer ended, recovery decides about it."""

    code = -21
    name = "BK_ADD_QUORUM_TIMEOUT"

    def __init__(self, ledger_id: int, timeout_ms: int) -> None:
        super().__init__(ledger_id, timeout_ms)
        self.ledger_id = ledger_id
        self.timeout_ms = timeout_ms

    def __str__(self) -> str:
        return (
            "an add did not reach its ack quorum in time; raise add_quorum_timeout_ms or look at the "
            f"bookies. ledger_id={self.ledger_id} timeout_ms={self.timeout_ms}"
        )


class UnauthorizedError(BookKeeperError):
    """The password does not open this ledger."""

    code = -102
    name = "BK_UNAUTHORIZED"
    definite = True

    def __init__(self, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"wrong ledger password; pass the one the ledger was created with. ledger_id={self.ledger_id}"


class LedgerRecoveryError(BookKeeperError):
    """Recovery met an answer it may not guess; the ledger stays IN_RECOVERY and loses nothing."""

    code = -10
    name = "BK_LEDGER_RECOVERY"
    retryable = True

    def __init__(self, ledger_id: int, detail: str) -> None:
        super().__init__(ledger_id, detail)
        self.ledger_id = ledger_id
        self.detail = detail

    def __str__(self) -> str:
        return f"ledger recovery could not finish; retry when its bookies are back: {self.detail}. ledger_id={self.ledger_id}"


class ClientClosedError(BookKeeperError):
    """This client or handle has been closed by its owner."""

    code = -19
    name = "BK_CLIENT_CLOSED"
    definite = True

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"already closed. what={self.what}"


class MetadataConflictError(BookKeeperError):
    """Somebody else changed the metadata first; read it again before you decide anew."""

    code = -17
    name = "BK_METADATA_CONFLICT"
    retryable = True
    definite = True

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(what, detail)
        self.what = what
        self.detail = detail

    def __str__(self) -> str:
        return f"metadata changed concurrently: {self.detail}. what={self.what}"


class MetadataUnavailableError(BookKeeperError):
    """The metadata store did not answer; a change sent to it may or may not have been applied."""

    code = -9
    name = "BK_METADATA_UNAVAILABLE"
    retryable = True

    def __init__(self, service: str, detail: str) -> None:
        super().__init__(service, detail)
        self.service = service
        self.detail = detail

    def __str__(self) -> str:
        return f"metadata service unavailable: {self.detail}. service={self.service}"


class MetadataCorruptError(BookKeeperError):
    """A stored metadata value does not parse or breaks its own rules; it was left as it is."""

    code = -107
    name = "BK_METADATA_CORRUPT"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return f"metadata cannot be understood: {self.detail}. path={self.path}"


class ClusterNotInitializedError(BookKeeperError):
    """The ledgers root has no LAYOUT: this is no BookKeeper cluster yet."""

    code = -18
    name = "BK_NOT_INITIALIZED"
    definite = True

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.root = root

    def __str__(self) -> str:
        return f"no cluster here; run `bookkeeper cluster init`. root={self.root}"


class ClusterExistsError(BookKeeperError):
    """The ledgers root has a LAYOUT already; nothing was changed."""

    name = "BK_CLUSTER_EXISTS"
    definite = True

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.root = root

    def __str__(self) -> str:
        return f"a cluster exists here already and is left as it is. root={self.root}"
