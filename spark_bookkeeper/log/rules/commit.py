"""Whether a commit may happen: every decision of the protocol, pure.

The commit messages alone decide what becomes visible. A stored transaction says what of an
application already is: its batch again is a *replay* and adds nothing, an older one is an error
unless the user chose the transaction id, which asks for older versions to be skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, unique
from itertools import pairwise

from spark_bookkeeper.log.errors import CommitRefusedError
from spark_bookkeeper.log.format.epoch import (
    Epoch,
    Job,
    LedgerWritten,
    SeenTable,
    StoredTxn,
    TaskMessage,
    TokenChild,
    Txn,
)
from spark_bookkeeper.log.format.model import LogHead


@unique
class TxnStatus(Enum):
    """What a stored transaction says about a write."""

    NEW = "not committed yet"
    STORED = "committed already: add nothing, succeed"
    REGRESSED = "older than what is committed: refuse"
    REUSED = "committed by another query: refuse"


@unique
class HeadStatus(Enum):
    """What the head says about a commit."""

    FREE = "may be changed"
    CONFLICT = "shows other rows than the overwrite's plan saw"
    HAS_WRITER = "a writer outside Spark holds the last ledger open"


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What the messages of one write agree on."""

    epoch: Epoch
    job: Job
    written: tuple[LedgerWritten, ...]
    """In partition order."""
    is_already_committed: bool
    """A task found the job's transaction stored and wrote nothing."""
    children: frozenset[TokenChild]
    """What the attempts that wrote have made below their token."""


def agree(messages: Sequence[TaskMessage | None], log: str) -> CommitRequest:
    """The one write all messages belong to.

    Raises:
        CommitRefusedError: a message is missing (Spark's continuous trigger sends none), or they
            disagree.
    """
    present = [message for message in messages if message is not None]
    number = present[0].epoch.number if present else None
    if len(present) < len(messages) or not present:
        missing = f"{len(messages) - len(present)} of {len(messages)}"
        raise CommitRefusedError(log, number, f"{missing} tasks sent no commit message")
    first = present[0]
    for message in present:
        if message.epoch != first.epoch or message.job != first.job:
            found = (
                f"messages belong to different writes, partition {first.partition} to "
                f"epoch {number} and partition {message.partition} to epoch {message.epoch.number}"
            )
            raise CommitRefusedError(log, number, found)
    # Spark hands the messages over in the order of partitions, but promises that nowhere; the order
    # of rows in the log must not hang on it.
    ordered = sorted(present, key=lambda message: message.partition)
    for before, after in pairwise(ordered):
        if before.partition == after.partition:
            raise CommitRefusedError(log, number, f"two messages of partition {after.partition}")
    return CommitRequest(
        first.epoch,
        first.job,
        tuple(message.written for message in ordered if message.written is not None),
        any(message.is_already_committed for message in ordered),
        frozenset(
            TokenChild(message.partition, message.task_attempt_id, message.written.ledger_id)
            for message in ordered
            if message.written is not None
        ),
    )


def txn_status(txn: Txn | None, stored: StoredTxn | None) -> TxnStatus:
    """What ``stored`` says about committing ``txn``.

    A stream's own batch must be the stored one or a later one. A user's transaction id is skipped
    at any version up to the stored one, but only for the query that stored it: another query under
    the same id would lose its rows silently.
    """
    if txn is None or stored is None or stored.version < txn.version:
        return TxnStatus.NEW
    # A stream's batches come one after the other, so only the last one can come again. An older one
    # means that the checkpoint was restored from a copy: its rows would be written twice.
    if txn.is_stream:
        return TxnStatus.STORED if stored.version == txn.version else TxnStatus.REGRESSED
    return TxnStatus.STORED if stored.query_id == txn.query_id else TxnStatus.REUSED


def commit_status(request: CommitRequest, stored: StoredTxn | None) -> TxnStatus:
    """What ``stored`` says about committing all of ``request``.

    A task that found its transaction stored must be explained by what is stored now; if it is not,
    the log it saw is not this one, and the rows the task skipped would be lost.
    """
    status = txn_status(request.job.txn, stored)
    if status is TxnStatus.NEW and request.is_already_committed:
        return TxnStatus.REGRESSED
    return status


def head_status(epoch: Epoch, head: LogHead) -> HeadStatus:
    """What the head says about a commit of ``epoch``."""
    if head.open_ledger is not None:
        return HeadStatus.HAS_WRITER
    # An append can go behind whatever came meanwhile. An overwrite was decided on seeing a certain
    # table, and would delete rows its user never saw. Rows that left since were to go anyway.
    if epoch.overwritten is not None and epoch.overwritten != SeenTable.of(head):
        return HeadStatus.CONFLICT
    return HeadStatus.FREE
