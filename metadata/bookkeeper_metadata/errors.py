"""What can go wrong with ledgers' and the cluster's metadata."""

from __future__ import annotations

from bookkeeper_metadata.foundation.errors import BookKeeperError


class NoSuchLedgerError(BookKeeperError):
    """No ledger of this id exists in the metadata."""

    code = -7
    name = "BK_NO_SUCH_LEDGER"
    definite = True

    ledger_id: int
    message = "no such ledger. ledger_id={ledger_id}"


class LedgerExistsError(BookKeeperError):
    """A ledger of this id exists already; choose another id, or none to have one allocated."""

    code = -20
    name = "BK_LEDGER_EXISTS"
    definite = True

    ledger_id: int
    message = "ledger exists already. ledger_id={ledger_id}"


class MetadataConflictError(BookKeeperError):
    """Another client changed the metadata first; read it again before you decide anew."""

    code = -17
    name = "BK_METADATA_CONFLICT"
    retryable = True
    definite = True

    what: str
    detail: str
    message = "metadata changed concurrently: {detail}. what={what}"


class MetadataUnavailableError(BookKeeperError):
    """The metadata store did not answer; a change sent to it may or may not have been applied."""

    code = -9
    name = "BK_METADATA_UNAVAILABLE"
    retryable = True

    service: str
    detail: str
    message = "metadata service unavailable: {detail}. service={service}"


class MetadataAccessError(BookKeeperError):
    """The metadata store answers, but not this user: it is not known to it, or may not do this.

    Never a word about what is there: neither "no such node" nor "deleted". Not definite, for what met it may have
    been sent before, with its reply lost.
    """

    name = "BK_METADATA_ACCESS"

    detail: str
    path: str
    user: str | None
    service: str
    message = "no access to metadata: {detail}. path={path} user={user} service={service}"


class CredentialsFileError(BookKeeperError):
    """A file that says who this process is cannot be used; nothing was connected or served."""

    name = "BK_CREDENTIALS_FILE"
    definite = True

    detail: str
    path: str
    message = "no user and password in the file: {detail}. path={path}"


class MetadataCorruptError(BookKeeperError):
    """A stored metadata value does not parse or breaks its own rules; it was left as it is."""

    code = -107
    name = "BK_METADATA_CORRUPT"

    path: str
    detail: str
    message = "metadata cannot be understood: {detail}. path={path}"


class ClusterNotInitializedError(BookKeeperError):
    """The ledgers root has no LAYOUT: this is no BookKeeper cluster yet."""

    code = -18
    name = "BK_NOT_INITIALIZED"
    definite = True

    root: str
    message = (
        "no BookKeeper cluster at this path of ZooKeeper; check the path in the metadata service "
        "URI, or run `bookkeeper cluster init` to make one here. root={root}"
    )


class ClusterExistsError(BookKeeperError):
    """The ledgers root has a LAYOUT already; nothing was changed."""

    name = "BK_CLUSTER_EXISTS"
    definite = True

    root: str
    message = "a cluster exists here already and is left as it is. root={root}"


class NoSuchCookieError(BookKeeperError):
    """No bookie of this id ever belonged to the cluster."""

    name = "BK_NO_SUCH_COOKIE"
    definite = True

    bookie_id: str
    message = "no such cookie: no bookie of this id ever started here. bookie_id={bookie_id}"


class BookieInUseError(BookKeeperError):
    """Ledgers name a bookie that is to be forgotten; nothing was changed."""

    name = "BK_BOOKIE_IN_USE"
    definite = True

    bookie_id: str
    ledgers: int
    message = (
        "ledgers name this bookie, and may need the copies on its disks, which could never be used "
        "again; with --force it is forgotten all the same. bookie_id={bookie_id} ledgers={ledgers}"
    )


class BookieRunningError(BookKeeperError):
    """A process is registered under this bookie id; nothing was changed."""

    name = "BK_BOOKIE_RUNNING"
    definite = True

    bookie_id: str
    message = (
        "the bookie is running; stop it first (a killed one counts as running until its session "
        "expires). bookie_id={bookie_id}"
    )
