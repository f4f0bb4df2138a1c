"""What can go wrong with a ledger's entries: writing, reading, fencing and recovering them."""

from __future__ import annotations

from bookkeeper_metadata.foundation.errors import BookKeeperError


class LedgerFencedError(BookKeeperError):
    """Another client is recovering this ledger; stop writing to it and open a new one."""

    code = -101
    name = "BK_FENCED"

    ledger_id: int
    message = "ledger fenced by a recovering client. ledger_id={ledger_id}"


class LedgerDeletedError(BookKeeperError):
    """The ledger was deleted, and its bookies know it: its id takes no entry any more."""

    name = "BK_LEDGER_DELETED"

    ledger_id: int
    message = (
        "ledger was deleted; what it held is gone, and nothing can be written under its id. "
        "ledger_id={ledger_id}"
    )


class LedgerClosedError(BookKeeperError):
    """The ledger is closed; entries already acknowledged are safe, this one was not written."""

    code = -11
    name = "BK_LEDGER_CLOSED"
    definite = True

    ledger_id: int
    message = "ledger is closed. ledger_id={ledger_id}"


class LedgerInUseError(BookKeeperError):
    """The ledger belongs to a log, which alone may delete it."""

    code = -100
    name = "BK_LEDGER_IN_USE"
    definite = True

    ledger_id: int
    log: str
    message = (
        "ledger belongs to a log; delete or truncate the log instead. ledger_id={ledger_id} "
        "log={log}"
    )


class NoSuchEntryError(BookKeeperError):
    """The entry lies outside what this ledger holds, as far as this reader may know."""

    code = -13
    name = "BK_NO_SUCH_ENTRY"
    definite = True

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    message = (
        "no such entry in this ledger. ledger_id={ledger_id} entry_id={entry_id} "
        "last_add_confirmed={last_add_confirmed}"
    )


class EntryUnreadableError(BookKeeperError):
    """No replica could answer for an entry that should exist; it may be readable later."""

    code = -1
    name = "BK_ENTRY_UNREADABLE"
    retryable = True

    ledger_id: int
    entry_id: int
    answers: tuple[str, ...]
    message = (
        "no replica returned the entry. ledger_id={ledger_id} entry_id={entry_id} answers={answers}"
    )


class DigestMismatchError(BookKeeperError):
    """Every replica that answered returned bytes that do not match their digest."""

    code = -5
    name = "BK_DIGEST_MISMATCH"

    ledger_id: int
    entry_id: int
    detail: str
    message = "entry does not match its digest: {detail}. ledger_id={ledger_id} entry_id={entry_id}"


class EntryTooLargeError(BookKeeperError, ValueError):
    """The payload exceeds what an entry may hold; split it."""

    code = -14
    name = "BK_ENTRY_TOO_LARGE"
    definite = True

    size_bytes: int
    size_bytes_max: int
    message = (
        "payload exceeds the entry limit. size_bytes={size_bytes} size_bytes_max={size_bytes_max}"
    )


class NotEnoughBookiesError(BookKeeperError):
    """Too few bookies are usable to go on; nothing acknowledged is lost."""

    code = -6
    name = "BK_NOT_ENOUGH_BOOKIES"
    retryable = True

    needed: int
    available: tuple[str, ...]
    away: tuple[str, ...] = ()
    """Known bookies that would be enough if they came back; none if they would not."""
    detail: str = ""
    message = (
        "not enough bookies; start those that are away, or more. "
        "needed={needed} available={available} away={away}"
    )

    def __str__(self) -> str:
        return super().__str__() + (f" detail={self.detail}" if self.detail else "")


class AddQuorumTimeoutError(BookKeeperError):
    """An entry did not reach its ack quorum in time; its writer ended, recovery decides about it."""

    code = -21
    name = "BK_ADD_QUORUM_TIMEOUT"

    ledger_id: int
    timeout_ms: int
    message = (
        "an add did not reach its ack quorum in time; raise add_quorum_timeout_ms or look at the "
        "bookies. ledger_id={ledger_id} timeout_ms={timeout_ms}"
    )


class UnauthorizedError(BookKeeperError):
    """The password does not open this ledger."""

    code = -102
    name = "BK_UNAUTHORIZED"
    definite = True

    ledger_id: int
    message = (
        "wrong ledger password; pass the one the ledger was created with. ledger_id={ledger_id}"
    )


class LedgerRecoveryError(BookKeeperError):
    """Recovery met an answer it may not guess; the ledger stays IN_RECOVERY and loses nothing."""

    code = -10
    name = "BK_LEDGER_RECOVERY"
    retryable = True

    ledger_id: int
    detail: str
    message = (
        "ledger recovery could not finish; retry when its bookies are back: {detail}. "
        "ledger_id={ledger_id}"
    )


class TlsNeededError(BookKeeperError):
    """A bookie takes TLS only, and this client has no files for it; nothing was sent."""

    name = "BK_TLS_NEEDED"
    definite = True

    bookie_id: str
    address: str
    message = (
        "the bookie takes TLS only; set tls_trust_path, and tls_certificate_path if it asks for one "
        "(BOOKKEEPER_TLS_TRUST_PATH for a command, bookkeeper.client.tlsTrustPath in Spark). bookie_id={bookie_id} address={address}"
    )


class TlsNotOfferedError(BookKeeperError):
    """This client sends nothing in clear, and a bookie does not offer TLS; nothing was sent."""

    name = "BK_TLS_NOT_OFFERED"
    definite = True

    bookie_id: str
    address: str
    message = (
        "the bookie does not offer TLS, without which this client sends nothing; give the bookie a certificate, or, "
        "while a cluster is changed over, set tls_only to false. bookie_id={bookie_id} address={address}"
    )
