"""Logging from Spark's Python workers, which configure none.

A logger there has no handler until the session sets ``spark.sql.pyspark.worker.logging.enabled``, and
the handler that makes leaves the level at WARNING. So a line is logged wherever there is a handler,
whatever level the root logger has.
"""

from __future__ import annotations

import logging

_READS = logging.getLogger("spark_bookkeeper.reads")


def log_if_handled(logger: logging.Logger, level: int, line: str) -> bool:
    """Log the line if the logger has a handler; returns whether it has."""
    if not logger.hasHandlers():
        return False
    if logger.level == logging.NOTSET and not logger.isEnabledFor(level):
        logger.setLevel(level)
    logger.log(level, line)
    return True


def log_read(line: str) -> None:
    """Log a line about a read at INFO: when it is planned, and when one of its tasks ends.

    With worker logging enabled the lines are in Spark's ``python_worker_logs()``; without a handler
    nothing is written, because there are many tasks.
    """
    log_if_handled(_READS, logging.INFO, line)
