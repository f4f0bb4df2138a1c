"""Makes one write visible: all of it or nothing, once, whatever replies get lost.

Chunks are written first, unreferenced. Then one multi, guarded by the head's version, sets the
head, the application's transaction and the token; its size does not depend on the number of
partitions. After any refusal or lost reply the token, read after a ``sync``, decides: COMMITTED means
this commit happened, DEAD that it never will, LIVE that it has not and may be tried again. A
delayed multi cannot surprise a later attempt: both are guarded by the same head and token.

A write that adds columns brings its schema in its token; the same multi makes it a schema of the
log, under a number that is the epoch's alone, and the newest one. If another commit gave the log a
newer schema meanwhile, this write goes on only if that begins with its columns: its own is then
stored for its own ranges, and the newest stays.

The rules are in :mod:`spark_bookkeeper.log.rules.commit`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, unique

from bookkeeper_metadata.errors import MetadataConflictError, MetadataUnavailableError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.store.operations import (
    BadVersionError,
    Create,
    NoNodeError,
    Operation,
    Put,
    StoreConflict,
)
from spark_bookkeeper.log.commits.change import change_operations
from spark_bookkeeper.log.errors import (
    CommitRefusedError,
    CommitUnknownError,
    LogConflictError,
    LogHasWriterError,
    SchemaConflictError,
    TxnAppReusedError,
    TxnRegressedError,
)
from spark_bookkeeper.log.format.epoch import (
    Epoch,
    Job,
    StoredTxn,
    TaskMessage,
    Token,
    TokenChild,
    TokenState,
)
from spark_bookkeeper.log.format.model import ChunkRef, LogHead
from spark_bookkeeper.log.format.serde import encode_schema, encode_txn
from spark_bookkeeper.log.nodes.paths import job_name
from spark_bookkeeper.log.nodes.reads import HeadAt, LogNodes, TxnAt
from spark_bookkeeper.log.nodes.site import LogSite
from spark_bookkeeper.log.rules.chunks import ChunkNames
from spark_bookkeeper.log.rules.commit import (
    CommitRequest,
    HeadStatus,
    TxnStatus,
    agree,
    commit_status,
    head_status,
)
from spark_bookkeeper.log.rules.transitions import Transition, append, replace_all

COMMIT_ATTEMPTS_MAX = 100
"""Attempts of one commit, because of concurrent commits or lost replies; about a minute in all."""
CHUNK_WRITES_MAX = 16
"""Chunks of one commit written at a time."""


Covers = Callable[[bytes, bytes], bool]
"""Whether the first schema begins with the columns of the second, types included."""


@unique
class CommitOutcome(Enum):
    """How a successful commit ended."""

    COMMITTED = "its rows are visible now"
    REPLAYED = "its transaction was committed before; this write added nothing"


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """What a commit did; the sweep after it starts from this."""

    outcome: CommitOutcome
    epoch: Epoch
    job: Job
    children: frozenset[TokenChild]
    """What its messages named of what is below its token; visible only if COMMITTED."""
    rows: int
    size_bytes: int
    attempts: int
    elapsed_ms: int
    is_first_of_app: bool
    """The log knew of no transaction of the application before this one."""

    @property
    def ledger_ids(self) -> frozenset[int]:
        """The ledgers its messages named."""
        return frozenset(child.ledger_id for child in self.children)


@dataclass(slots=True)
class _Attempts:
    """State that the attempts of one commit share."""

    names: ChunkNames
    covers: Covers
    is_first_of_app: bool = False
    is_unknown: bool = False
    """A multi was sent and its reply lost: it may have been applied."""


class Committer:
    """Commits to the logs of one cluster."""

    def __init__(self, site: LogSite) -> None:
        self._site = site

    async def commit(
        self, messages: Sequence[TaskMessage | None], *, log: str, covers: Covers = operator.eq
    ) -> CommitSummary:
        """Make what ``messages`` name visible, in partition order.

        Raises:
            SchemaConflictError: it adds columns, and the log got others since it was planned.
            CommitRefusedError: a message is missing, they disagree, or the write was given up.
            TxnRegressedError, TxnAppReusedError: the stored transaction forbids it.
            LogConflictError: an overwrite, and the table changed since it was planned.
            LogHasWriterError, NoSuchLogError: the log cannot be committed to.
            CommitUnknownError: it may have happened, and that cannot be found out any more.
            MetadataConflictError: other writers won every time; nothing was written.
            MetadataUnavailableError: the store did not answer before anything was sent.
        """
        request = agree(messages, log)
        began_ms = self._site.clock_ms()
        attempted = _Attempts(ChunkNames(request.epoch.number), covers)
        outcome, attempts = await self._run(request, attempted)
        return CommitSummary(
            outcome,
            request.epoch,
            request.job,
            request.children,
            sum(written.rows for written in request.written),
            sum(written.size_bytes for written in request.written),
            attempts,
            self._site.clock_ms() - began_ms,
            attempted.is_first_of_app,
        )

    async def _run(self, request: CommitRequest, attempted: _Attempts) -> tuple[CommitOutcome, int]:
        epoch = request.epoch
        nodes = self._site.nodes(epoch.log_id, epoch.log)
        failure: Exception | None = None
        for attempt in range(1, COMMIT_ATTEMPTS_MAX + 1):
            if attempt > 1:
                await self._site.pause(attempt - 1)
            try:
                await nodes.sync()
                outcome = await self._find_outcome(nodes, request) if attempt > 1 else None
                if outcome is not None:
                    return outcome, attempt
                operations = await self._plan_multi(nodes, request, attempted)
            except (StoreConflict, MetadataUnavailableError) as cause:
                failure = cause  # Nothing but unreferenced chunks was sent.
                continue
            if isinstance(operations, CommitOutcome):
                return operations, attempt
            try:
                await self._site.store.multi(operations)
                # Everything in the multi happened together: there is nothing to repair after a
                # crash.
                return CommitOutcome.COMMITTED, attempt
            except StoreConflict as refused:
                failure = refused
            except MetadataUnavailableError as lost:
                failure = lost
                # Sent, and the answer lost. It may be applied now, later (until the session ends)
                # or never: the token will tell, never the head.
                attempted.is_unknown = True
        if attempted.is_unknown:
            raise CommitUnknownError(
                epoch.log, epoch.number, "the metadata service stopped answering"
            ) from failure
        if isinstance(failure, MetadataUnavailableError):
            raise failure
        raise MetadataConflictError(
            f"log {epoch.log}", f"other writers won {COMMIT_ATTEMPTS_MAX} times"
        ) from failure

    async def _plan_multi(
        self, nodes: LogNodes, request: CommitRequest, attempted: _Attempts
    ) -> list[Operation] | CommitOutcome:
        """The multi to send, or the outcome if there is nothing to send.

        With the fate of an earlier multi unknown, what forbids this one may be that very multi,
        applied since the token was read: the token is read once more before a refusal counts. If it
        is LIVE even then, the earlier one can no longer happen, for the head has moved on.
        """
        refusal: BookKeeperError | None = None
        try:
            operations = await self._prepare(nodes, request, attempted)
            if operations is not None:
                return operations
        except (
            LogConflictError,
            SchemaConflictError,
            LogHasWriterError,
            TxnRegressedError,
            TxnAppReusedError,
        ) as refused:
            refusal = refused
        if attempted.is_unknown:
            await nodes.sync()
            outcome = await self._find_outcome(nodes, request)
            if outcome is not None:
                return outcome
        if refusal is not None:
            raise refusal
        return CommitOutcome.REPLAYED

    async def _find_outcome(self, nodes: LogNodes, request: CommitRequest) -> CommitOutcome | None:
        """What became of earlier attempts of this commit; ``None``: they did not happen (yet).

        Raises:
            CommitRefusedError, CommitUnknownError: see :meth:`commit`.
        """
        epoch = request.epoch
        found = await nodes.token(epoch.number)
        # Collections remove a settled token after a grace period. Which way it was settled, the
        # application's transaction still knows; without one it cannot be known any more.
        if found is None:
            return await self._settled_without_token(nodes, request)
        if found.token.state is TokenState.DEAD:
            raise CommitRefusedError(
                epoch.log, epoch.number, "a newer attempt or a clean-up gave this write up"
            )
        return CommitOutcome.COMMITTED if found.token.state is TokenState.COMMITTED else None

    async def _settled_without_token(
        self, nodes: LogNodes, request: CommitRequest
    ) -> CommitOutcome:
        epoch, txn = request.epoch, request.job.txn
        if txn is None:
            raise CommitUnknownError(epoch.log, epoch.number, "its token is gone")
        stored = await nodes.txn(txn.app_id)
        status = _require_txn(request, None if stored is None else stored.txn)
        if status is TxnStatus.NEW:
            raise CommitRefusedError(epoch.log, epoch.number, "its token is gone")
        return CommitOutcome.REPLAYED

    async def _prepare(
        self, nodes: LogNodes, request: CommitRequest, attempted: _Attempts
    ) -> list[Operation] | None:
        """Write the chunks and return the multi that makes them count; ``None``: a replay."""
        found = await nodes.head()
        txn = request.job.txn
        # Read after the head, and not beside it: if another commit changes it later, that changes the head too,
        # and the multi fails. Its own version says less: one forgotten and stored anew has it again.
        stored = await nodes.txn_of(txn)
        if _require_txn(request, None if stored is None else stored.txn) is TxnStatus.STORED:
            return None
        attempted.is_first_of_app = txn is not None and stored is None
        _require_free(request.epoch, found.head)
        head, schema = await _evolve_head(nodes, request.epoch, found.head, attempted.covers)
        # The head read above is what both are decided on; the multi demands that very version.
        change = replace_all if request.epoch.is_overwrite else append
        transition = change(head, request.written, attempted.names, self._site.clock_ms())
        transition = transition.kept_for(self._site.garbage_retention_ms)
        await each(
            lambda chunk: self._write_chunk(nodes, chunk),
            transition.chunks,
            concurrency_max=CHUNK_WRITES_MAX,
        )
        operations = _operations(nodes, request, found, stored, transition)
        if schema is not None:
            operations.append(Create(nodes.tree.schema(request.epoch.schema_id), schema))
        return operations

    async def _write_chunk(self, nodes: LogNodes, chunk: tuple[ChunkRef, bytes]) -> None:
        ref, value = chunk
        await self._site.store.create(nodes.tree.chunk(ref.name), value)


async def _evolve_head(
    nodes: LogNodes, epoch: Epoch, head: LogHead, covers: Covers
) -> tuple[LogHead, bytes | None]:
    """The head with the columns the write adds, and the value of the schema node that needs.

    Raises:
        SchemaConflictError: the log got other columns.
        StoreConflict: what this relies on is gone; the token says why.
    """
    if epoch.evolved_from is None:
        return head, None
    found = await nodes.token(epoch.number)
    if found is None or found.token.state is not TokenState.LIVE:
        raise BadVersionError(nodes.tree.token(epoch.number))
    own = found.token.schema
    # Nobody added columns since the plan: this write's schema becomes the newest.
    if head.schema_id == epoch.evolved_from:
        return replace(head, schema_id=epoch.schema_id), encode_schema(own)
    newest = await nodes.schema(head.schema_id)
    if newest is None:
        raise NoNodeError(nodes.tree.schema(head.schema_id))
    if not covers(newest, own):
        raise SchemaConflictError(epoch.log, epoch.evolved_from, head.schema_id)
    return head, encode_schema(own)


def _operations(
    nodes: LogNodes,
    request: CommitRequest,
    found: HeadAt,
    stored: TxnAt | None,
    transition: Transition,
) -> list[Operation]:
    tree, epoch, job = nodes.tree, request.epoch, request.job
    commit_ms = transition.head.last_commit_ms
    token = Token(
        state=TokenState.COMMITTED,
        job=job_name(job),
        txn=job.txn,
        created_ms=epoch.planned_ms,
        changed_ms=commit_ms,
    )
    operations = change_operations(tree, epoch.number, found, transition, token)
    if job.txn is not None:
        path = tree.txn(job.txn.app_id)
        txn = StoredTxn(job.txn.version, job.txn.query_id, epoch.number, commit_ms)
        value = encode_txn(txn)
        operations.append(
            Create(path, value) if stored is None else Put(path, value, stored.version)
        )
    return operations


def _require_txn(request: CommitRequest, stored: StoredTxn | None) -> TxnStatus:
    """NEW or STORED.

    Raises:
        TxnRegressedError, TxnAppReusedError: the stored transaction forbids the commit.
    """
    status = commit_status(request, stored)
    txn = request.job.txn
    if status is TxnStatus.REGRESSED:
        raise TxnRegressedError(
            request.epoch.log,
            "none" if txn is None else txn.app_id,
            -1 if txn is None else txn.version,
            None if stored is None else stored.version,
        )
    if status is TxnStatus.REUSED and txn is not None and stored is not None:
        raise TxnAppReusedError(
            request.epoch.log, txn.app_id, txn.version, (stored.version, stored.query_id)
        )
    return status


def _require_free(epoch: Epoch, head: LogHead) -> None:
    status = head_status(epoch, head)
    if status is HeadStatus.CONFLICT and epoch.overwritten is not None:
        raise LogConflictError(epoch.log, epoch.overwritten.next_row, head.next_row)
    if status is HeadStatus.HAS_WRITER and head.open_ledger is not None:
        raise LogHasWriterError(epoch.log, head.open_ledger.ledger_id)
