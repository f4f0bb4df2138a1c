"""A streaming write as Spark drives it: every micro-batch planned anew, committed once.

Spark makes two kinds of writers. One is made for each micro-batch, pickled to the tasks and never
seen again: it is planned, so it has an epoch. The other is made for the commit or abort alone, in
another process: it has no plan, and everything it knows comes from the messages, which name epoch,
query and batch. So a plan is made when the source knows that tasks will get the writer, at the latest
when it is pickled, and a writer made for a commit draws no token.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bookkeeper_metadata.foundation.invariant import invariant
from spark_bookkeeper.datasource.errors import ContinuousUnsupportedError, source_errors
from spark_bookkeeper.datasource.options.model import WriteOptions
from spark_bookkeeper.datasource.session import Session, open_session
from spark_bookkeeper.datasource.write.finish import WriteMessage, commit_write, say, task_messages
from spark_bookkeeper.datasource.write.plan import WritePlan, make_plan
from spark_bookkeeper.datasource.write.spark_task import stream_task
from spark_bookkeeper.datasource.write.task import WriteTask
from spark_bookkeeper.log.commits.commit import CommitSummary
from spark_bookkeeper.log.errors import CommitRefusedError
from spark_bookkeeper.log.format.epoch import TaskMessage


class BookKeeperStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """One micro-batch's writer, or one commit's."""

    def __init__(self, options: WriteOptions, schema: StructType, *, is_overwrite: bool) -> None:
        self._options = options
        self._schema = schema
        self._is_overwrite = is_overwrite
        self._plan: WritePlan | None = None

    @source_errors()
    def plan(self) -> None:
        """Check the columns and draw the micro-batch's epoch, once; raises as :func:`make_plan`."""
        if self._plan is None:
            session = open_session(self._options)
            self._plan = make_plan(
                session, self._options, self._schema, is_overwrite=self._is_overwrite
            )

    def __getstate__(self) -> dict[str, Any]:
        self.plan()
        return self.__dict__

    @source_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition's rows to a ledger of their own (in a task)."""
        plan = self._plan
        invariant(plan is not None, "tasks get planned writers")
        assert plan is not None
        session = open_session(self._options)
        task = WriteTask(session, plan, stream_task())
        return WriteMessage(task.run(iterator))

    @source_errors()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the micro-batch visible once, also if it is a replay (on the driver)."""
        if not any(messages):
            # Before anything that can fail in another way: Spark calls once and only logs the error.
            raise ContinuousUnsupportedError(self._log, batchId)
        session = open_session(self._options)
        commit_stream(session, self._log, task_messages(messages), batchId)

    @source_errors()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Give up what the messages name unless it is committed; nothing if they name nothing."""
        session = open_session(self._options)
        # This writer has no plan. Where no task lived to name the epoch, the next run's claim ends
        # it, or its time-out. A log that the batch created stays: the query's next run needs it.
        session.run(session.sweeper.abort(task_messages(messages), log=self._log))

    @property
    def _log(self) -> str:
        return self._options.log or ""


def commit_stream(
    session: Session, log: str, messages: Sequence[TaskMessage | None], batch_id: int
) -> CommitSummary:
    """Commit one micro-batch.

    Raises:
        CommitRefusedError: the messages are of another batch.
        BookKeeperError: as :meth:`spark_bookkeeper.log.commits.commit.Committer.commit`.
    """
    for message in messages:
        txn = None if message is None else message.job.txn
        # The number in the messages is the one that is stored. Were it another than Spark's, a
        # replay would not be recognised.
        if txn is not None and txn.version != batch_id:
            raise CommitRefusedError(
                log, None, f"a message is of batch {txn.version}, the commit of batch {batch_id}"
            )
    summary = commit_write(session, log, messages)
    txn = summary.job.txn
    # Only a warning: the rows are visible by now, and a log may have been replaced on purpose.
    if txn is not None and summary.is_first_of_app and batch_id > 0:
        say(
            logging.WARNING,
            "this log has no earlier batch of the query: it was deleted and made again, or earlier "
            "batches went elsewhere; their rows are not here. "
            f"log={log} query={txn.app_id} batch={batch_id}",
        )
    return summary
