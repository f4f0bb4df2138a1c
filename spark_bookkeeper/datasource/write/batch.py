"""A batch write as Spark drives it: plan on the driver, tasks on executors, commit or abort.

The writer is planned before any task, pickled to every task attempt and back to the driver's
commit, so all it holds is the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.datasource.errors import source_errors
from spark_bookkeeper.datasource.options.model import WriteOptions
from spark_bookkeeper.datasource.session import Session, open_session
from spark_bookkeeper.datasource.write.finish import WriteMessage, commit_write, task_messages
from spark_bookkeeper.datasource.write.plan import WritePlan, make_plan
from spark_bookkeeper.datasource.write.spark_task import batch_task
from spark_bookkeeper.datasource.write.task import WriteTask
from spark_bookkeeper.log.format.epoch import TaskMessage

_log = logging.getLogger(__name__)


class BookKeeperBatchWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """One planned batch write."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    @source_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition's rows to a ledger of their own (in a task)."""
        session = open_session(self._plan.options)
        task = WriteTask(session, self._plan, batch_task(self._plan))
        return WriteMessage(task.run(iterator))

    @source_errors()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible at once, then clean up (on the driver)."""
        session = open_session(self._plan.options)
        commit_write(session, self._plan.epoch.log, task_messages(messages))

    @source_errors()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give this write up unless it is committed: Spark calls this after a failed commit too."""
        abort_batch(open_session(self._plan.options), self._plan, task_messages(messages))


def plan_batch_write(
    options: WriteOptions, schema: StructType, *, is_overwrite: bool
) -> BookKeeperBatchWriter:
    """A planned write; raises as :func:`make_plan`."""
    session = open_session(options)
    return BookKeeperBatchWriter(make_plan(session, options, schema, is_overwrite=is_overwrite))


def abort_batch(session: Session, plan: WritePlan, messages: list[TaskMessage | None]) -> None:
    """Give up the plan's own epoch, also when no task lived to name it.

    The writer that aborts a batch is the one its tasks got, so its epoch is theirs. A log that was
    created for this write alone is deleted too: its user would not know why it is there.
    """
    # A failed task has sent no message, and all may have failed: the plan knows its epoch anyway.
    own = TaskMessage(epoch=plan.epoch, job=plan.batch_job(""), partition=0, task_attempt_id=0)
    session.run(session.sweeper.abort([*messages, own], log=plan.epoch.log))
    # Behind the sweep, which removes this write's token: any token left keeps the log, for it may
    # be another write's.
    if plan.has_created_log:
        try:
            session.run(session.catalog.delete_unused(plan.epoch.log, plan.epoch.log_id))
        except BookKeeperError as cause:
            # Why the write failed is what Spark must show.
            _log.warning("empty log not deleted. log=%s cause=%s", plan.epoch.log, cause)
