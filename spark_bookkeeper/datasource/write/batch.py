"""A batch write as Spark drives it: plan on the driver, tasks on executors, commit or abort.

``plan_batch_write`` runs before any task: the log exists, the columns fit, an epoch is drawn. The
writer is pickled to every task attempt and back to the driver's commit, so all it holds is the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from metadata.errors import BookKeeperError
from metadata.model import DigestType
from spark_bookkeeper.datasource.errors import (
    OptionsError,
    SchemaMismatchError,
    reported,
)
from spark_bookkeeper.datasource.options.model import WriteOptions
from spark_bookkeeper.datasource.schema import (
    LogSchema,
    check_fits,
    check_raw,
    log_schema_of,
    parse_log_schema,
)
from spark_bookkeeper.datasource.session import Session, open_session
from spark_bookkeeper.datasource.write.task import TaskIdentity, WritePlan, WriteTask
from spark_bookkeeper.log.commit import CommitOutcome, CommitSummary
from spark_bookkeeper.log.epoch import TaskMessage
from spark_bookkeeper.log.errors import NoSuchLogError
from spark_bookkeeper.log.model import LogSettings
from spark_bookkeeper.log.nodes import LogNodes
from spark_bookkeeper.log.settings import RetentionSettings

QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Local property Spark sets for tasks of a streaming query, ``foreachBatch`` included."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriteMessage(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    """A finished task's word to the commit."""

    task: TaskMessage


class BookKeeperBatchWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """One planned batch write."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    @reported
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition's rows to a ledger of their own (in a task)."""
        context = TaskContext.get()
        assert context is not None
        task = TaskIdentity(
            context.partitionId(),
            context.taskAttemptId(),
            context.getLocalProperty(QUERY_ID_PROPERTY) or "",
        )
        session = open_session(self._plan.options)
        return WriteMessage(WriteTask(session, self._plan, task, session.clock_ms).run(iterator))

    @reported
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible at once, then clean up (on the driver)."""
        commit_batch(self._session(), self._plan, _task_messages(messages))

    @reported
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give this write up unless it is committed: Spark calls this after a failed commit too."""
        abort_batch(self._session(), self._plan, _task_messages(messages))

    def _session(self) -> Session:
        options = self._plan.options
        return open_session(
            options,
            RetentionSettings(
                deleted_ledger_retention_ms=options.deleted_ledger_retention_ms,
                job_timeout_ms=options.job_timeout_ms,
            ),
        )


@dataclass(frozen=True, slots=True)
class _Target:
    """The log a write goes to."""

    nodes: LogNodes
    settings: LogSettings
    schema: LogSchema


def plan_batch_write(
    options: WriteOptions, schema: StructType, *, is_overwrite: bool
) -> BookKeeperBatchWriter:
    """Everything that can be refused before a task runs is refused here.

    Raises:
        SchemaMismatchError, UnsupportedTypeError: the columns do not fit; no ledger was created.
        NoSuchLogError: there is no such log and ``createLog`` is false.
        LogHasWriterError: a writer outside Spark holds the log's last ledger open.
    """
    session = open_session(options)
    return BookKeeperBatchWriter(make_plan(session, options, schema, is_overwrite=is_overwrite))


def make_plan(
    session: Session, options: WriteOptions, schema: StructType, *, is_overwrite: bool
) -> WritePlan:
    """The plan of one write, with its epoch drawn; raises as :func:`plan_batch_write`."""
    target = _open_target(session, options, schema)
    settings = overridden(target.settings, options)
    job_id = session.draw_job_id()
    epoch = session.run(
        session.jobs.plan(target.nodes.log_id, target.nodes.log, is_overwrite=is_overwrite)
    )
    positions = tuple(schema.names.index(field.name) for field in target.schema.spark)
    return WritePlan(
        options=options,
        epoch=epoch,
        job_id=job_id,
        settings=settings,
        schema=target.schema,
        positions=positions,
    )


def _open_target(session: Session, options: WriteOptions, schema: StructType) -> _Target:
    assert options.log is not None
    try:
        nodes = session.run(session.catalog.open(options.log))
    except NoSuchLogError:
        if not options.creates_log:
            raise
        nodes = _create(session, options, options.log, schema)
    head = session.run(nodes.head()).head
    stored = session.run(nodes.schema(head.schema_id))
    if stored is None:
        raise NoSuchLogError(options.log)
    log_schema = parse_log_schema(stored)
    if head.settings.payload_format == "raw":
        check_raw(options.log, schema)
    check_fits(options.log, log_schema.spark, schema)
    return _Target(nodes, head.settings, log_schema)


def _create(session: Session, options: WriteOptions, log: str, schema: StructType) -> LogNodes:
    settings = overridden(LogSettings(), options, is_new=True)
    if len(set(schema.names)) != len(schema.names):
        raise SchemaMismatchError(log, ("a column name stands twice",))
    if settings.payload_format == "raw":
        check_raw(log, schema)
    encoded = log_schema_of(schema).encode()
    # Whoever creates the log at the same time may have given it other columns: checked again.
    try:
        return session.run(session.catalog.open_or_create(log, settings, encoded))
    except ValueError as error:
        if isinstance(error, BookKeeperError):
            raise
        raise OptionsError((f"log {log} cannot be created: {error}",)) from error


def overridden(
    settings: LogSettings, options: WriteOptions, *, is_new: bool = False
) -> LogSettings:
    """The log's settings with what this write asks for; its payload format is fixed for good.

    Raises:
        OptionsError: another payload format, or quorums that do not fit together.
    """
    given: dict[str, Any] = {
        "ensemble_size": options.ensemble_size,
        "write_quorum": options.write_quorum,
        "ack_quorum": options.ack_quorum,
        "digest_type": options.digest_type and DigestType[options.digest_type],
        "payload_format": options.payload_format,
        "compression": options.compression,
        "entry_bytes": options.entry_bytes,
    }
    wanted = {name: value for name, value in given.items() if value is not None}
    payload_format = wanted.get("payload_format", settings.payload_format)
    if not is_new and payload_format != settings.payload_format:
        raise OptionsError(
            (f"option payloadFormat: the log has {settings.payload_format}, not {payload_format}",)
        )
    try:
        return replace(settings, **wanted)
    except ValueError as error:
        raise OptionsError((str(error).partition("; LogSettings")[0],)) from error


def commit_batch(
    session: Session, plan: WritePlan, messages: list[TaskMessage | None]
) -> CommitSummary:
    """Commit and sweep; one line says what happened.

    Raises: as :meth:`spark_bookkeeper.log.commit.Committer.commit`.
    """
    summary = session.run(session.committer.commit(messages, log=plan.epoch.log))
    report = session.run(session.sweeper.after_commit(summary))
    facts = (
        f"log={plan.epoch.log} epoch={plan.epoch.number} ledgers={len(summary.ledger_ids)} "
        f"rows={summary.rows} size_bytes={summary.size_bytes} elapsed_ms={summary.elapsed_ms} "
        f"swept={len(report.ledgers_deleted)}"
    )
    if summary.outcome is CommitOutcome.REPLAYED:
        _log.warning(
            "skipped: txnAppId committed this txnVersion or a later one before. "
            "txn_app_id=%s txn_version=%s %s",
            plan.options.txn_app_id,
            plan.options.txn_version,
            facts,
        )
    else:
        _log.info("committed. %s", facts)
    return summary


def abort_batch(session: Session, plan: WritePlan, messages: list[TaskMessage | None]) -> None:
    """Give up the plan's own epoch, also when no task lived to name it.

    The writer that aborts a batch is the one its tasks got, so its epoch is theirs.
    """
    own = TaskMessage(epoch=plan.epoch, job=plan.job(""), partition=0, task_attempt_id=0)
    session.run(session.sweeper.abort([*messages, own], log=plan.epoch.log))


def _task_messages(messages: list[WriterCommitMessage | None]) -> list[TaskMessage | None]:
    return [message.task if isinstance(message, WriteMessage) else None for message in messages]
