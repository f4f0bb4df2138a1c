"""Planned writes: the epoch a plan draws, the token behind it, what its tasks send to the driver.

Values only, checked on construction; picklable, for they travel between Spark's processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

from bookkeeper_metadata.foundation.defects import raise_all
from spark_bookkeeper.log.format.columns import ColumnRange
from spark_bookkeeper.log.format.model import LogHead

APP_ID_BYTES_MAX = 255
"""Longest transaction application id, bytes of UTF-8."""
SCHEMA_BYTES_MAX = 512 * 1024
"""A schema is one node; ZooKeeper refuses requests of 1 MiB."""


@unique
class TokenState(Enum):
    """A LIVE token becomes COMMITTED by its own commit or DEAD by a clean-up, once and for good."""

    LIVE = 1
    COMMITTED = 2
    DEAD = 3


@dataclass(frozen=True, slots=True)
class Txn:
    """What makes a write idempotent: an application's id and a version that only grows."""

    app_id: str
    """Spark's query id for a stream, else the user's ``txnAppId``."""
    version: int
    """Spark's batch id for a stream, else the user's ``txnVersion``."""
    query_id: str = ""
    """Which streaming query it came from; empty outside one."""
    is_stream: bool = False
    """A stream's own batches: an older one coming again means a restored checkpoint."""

    def __post_init__(self) -> None:
        found = []
        if not 1 <= len(self.app_id.encode(errors="replace")) <= APP_ID_BYTES_MAX:
            found.append(f"app_id must have 1..{APP_ID_BYTES_MAX} bytes")
        if not 0 <= self.version < 2**63:
            found.append("version must be in 0..2^63-1")
        raise_all(found, self)


@dataclass(frozen=True, slots=True)
class StoredTxn:
    """The last committed transaction of an application."""

    version: int
    query_id: str
    epoch: int
    commit_ms: int


@dataclass(frozen=True, slots=True)
class Job:
    """What all attempts at one write share, replays included: the scope of fencing.

    Streams: the query and batch. Writes with a transaction: that. Others: a UUID.
    """

    job_id: str
    txn: Txn | None = None

    @classmethod
    def of_stream(cls, query_id: str, batch_id: int) -> Job:
        """The job of one micro-batch."""
        return cls("", Txn(query_id, batch_id, query_id, is_stream=True))

    @classmethod
    def of_batch(cls, job_id: str, txn: Txn | None = None) -> Job:
        """The job of one batch write; ``job_id`` is unique unless ``txn`` names the job."""
        return cls("" if txn else job_id, txn)


@dataclass(frozen=True, slots=True)
class PlannedSchema:
    """Which schema the rows of a planned write will have."""

    schema_id: int
    """A schema of the log: the one the columns were compared with."""
    evolved: bytes | None = None
    """That schema with columns added, to become the log's newest by this write's commit."""

    def __post_init__(self) -> None:
        if self.evolved is not None and not 1 <= len(self.evolved) <= SCHEMA_BYTES_MAX:
            defect = f"a schema has 1..{SCHEMA_BYTES_MAX} bytes, not {len(self.evolved)}"
            raise_all([defect], None)


@dataclass(frozen=True, slots=True)
class SeenTable:
    """The table an overwrite was decided on. Not a version of the head: retention and rewrites of
    ranges move the head at any moment, and neither adds a row nor changes one."""

    next_row: int
    overwritten_row: int
    schema_id: int

    @classmethod
    def of(cls, head: LogHead) -> SeenTable:
        """The table as this head shows it."""
        return cls(head.next_row, head.overwritten_row, head.schema_id)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One planned write: pickled to all its task attempts, named by all their messages."""

    log_id: int
    log: str
    """The log's name, for messages to people."""
    number: int
    """Sequence number of the token; a later plan's is higher."""
    planned_ms: int
    schema_id: int = 0
    """Schema of this write's rows."""
    overwritten: SeenTable | None = None
    """What this write replaces, as its plan saw it; ``None``: it appends."""
    evolved_from: int | None = None
    """The schema this write's one adds columns to; it becomes a schema of the log by the commit.
    ``None``: the write's schema is the log's already."""

    @property
    def is_overwrite(self) -> bool:
        return self.overwritten is not None


def evolved_schema_id(epoch: int) -> int:
    """The number of the schema that the commit of ``epoch`` adds.

    No two epochs share a number, so no two commits give the same one, and none is 0, creation's.
    """
    return epoch + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Whether the ledgers created under an epoch may still become visible."""

    state: TokenState = TokenState.LIVE
    job: str = ""
    """Node name of the job, if the plan or the commit knew it."""
    txn: Txn | None = None
    created_ms: int = 0
    changed_ms: int = 0
    """When it left LIVE."""
    timeout_ms: int | None = None
    """Age at which a LIVE token is given up, chosen by its writer; ``None``: the collector's."""
    schema: bytes = b""
    """What the commit adds as a schema of the log; empty if it adds none, and once COMMITTED.
    It lies here until then, because a commit may run in a process that knows no plan."""


@dataclass(frozen=True, slots=True, order=True)
class TokenChild:
    """A ledger created under a token, by one task attempt."""

    partition: int
    task_attempt_id: int
    """Spark's taskAttemptId: unique in an application, later attempts have larger ones."""
    ledger_id: int

    @property
    def name(self) -> str:
        """The child's node name: says all, so that a listing needs no reads."""
        return f"{self.partition}-{self.task_attempt_id}-{self.ledger_id}"


@dataclass(frozen=True, slots=True)
class LedgerWritten:
    """What one task attempt wrote: a closed ledger's data entries ``0..last_entry``."""

    ledger_id: int
    last_entry: int
    """Last entry that holds rows; a footer behind it is not counted."""
    rows: int
    size_bytes: int
    schema_id: int = 0
    columns: tuple[ColumnRange, ...] = ()

    def __post_init__(self) -> None:
        if self.last_entry < 0 or self.rows < 1 or self.size_bytes < 0:
            raise_all(["a written ledger holds at least one row in one entry"], None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage:
    """What a finished task attempt sends to the driver; only ledgers in messages become visible."""

    epoch: Epoch
    job: Job
    partition: int
    task_attempt_id: int
    run_id: str = ""
    written: LedgerWritten | None = None
    """``None``: the partition had no rows, so it claimed nothing."""
    is_already_committed: bool = False
    """The job's transaction was stored when the task began; it read no input."""
    bookies_missed: tuple[str, ...] = ()
    """Members of the ledger's ensembles that lack entries of it; for the commit's line alone."""
