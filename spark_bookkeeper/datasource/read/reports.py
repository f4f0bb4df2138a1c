"""What reads tell about themselves: one line when a read is planned, and one when a task ends.

They go to the logger ``spark_bookkeeper.reads`` at INFO. Spark's Python workers have no handler for
it until the session sets ``spark.sql.pyspark.worker.logging.enabled``; then the lines are in Spark's
``python_worker_logs()``. Reads without an audience are silent: there are many tasks.
"""

from __future__ import annotations

import logging

from spark_bookkeeper.datasource.audience import has_heard

_log = logging.getLogger("spark_bookkeeper.reads")


def tell(line: str) -> None:
    """Log the line, if anybody listens."""
    has_heard(_log, logging.INFO, line)
