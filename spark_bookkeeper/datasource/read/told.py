"""What reads tell about themselves: one line when a read is planned, and one when a task ends.

They go to the logger ``spark_bookkeeper.reads`` at INFO. Spark's Python workers have no handler for
it until the session sets ``spark.sql.pyspark.worker.logging.enabled``; then the lines are in Spark's
``python_worker_logs()``. Reads without an audience are silent: there are many tasks.
"""

from __future__ import annotations

import logging

_log = logging.getLogger("spark_bookkeeper.reads")


def tell(line: str) -> None:
    """Log the line, if anybody listens: a handler counts, whatever level the root has."""
    if not _log.hasHandlers():
        return
    if _log.level == logging.NOTSET:
        _log.setLevel(logging.INFO)
    _log.info(line)
