"""Which task this is, as Spark's task context gives it (in an executor's Python worker).

A streaming query's id and the number of the micro-batch are local properties that only tasks see;
they are what makes a replay recognisable, so without them a streaming task fails and nothing is put
in their place.
"""

from __future__ import annotations

from pyspark import TaskContext

from spark_bookkeeper.datasource.errors import StreamIdentityError
from spark_bookkeeper.datasource.write.plan import WritePlan
from spark_bookkeeper.datasource.write.task import TaskIdentity
from spark_bookkeeper.log.format.epoch import Job

QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Set for tasks of a streaming query, ``foreachBatch`` included."""
BATCH_ID_PROPERTY = "streaming.sql.batchId"
RUN_ID_PROPERTY = "spark.jobGroup.id"
"""The run's id in a streaming query: new at every start."""


def batch_task(plan: WritePlan) -> TaskIdentity:
    """This task of a batch write."""
    context = _context()
    # Stored beside txnAppId, the query tells a repeat from a new query that took the same id.
    job = plan.batch_job(context.getLocalProperty(QUERY_ID_PROPERTY) or "")
    return _identity(job, context)


def stream_task() -> TaskIdentity:
    """This task of a streaming write.

    Raises:
        StreamIdentityError: Spark did not say which query or micro-batch it belongs to.
    """
    context = _context()
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
    batch_id = context.getLocalProperty(BATCH_ID_PROPERTY)
    if not query_id or not batch_id or not batch_id.isdigit():
        raise StreamIdentityError(query_id, batch_id)
    job = Job.of_stream(query_id, int(batch_id))
    return _identity(job, context)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "called in a task"
    return context


def _identity(job: Job, context: TaskContext) -> TaskIdentity:
    run_id = context.getLocalProperty(RUN_ID_PROPERTY) or ""
    # Not attemptNumber, which begins at 0 again whenever a batch is run again. This number only
    # grows within a SparkContext, so earlier attempts of an epoch can be told by it.
    return TaskIdentity(job, context.partitionId(), context.taskAttemptId(), run_id)
