"""Whether anybody hears a logger, and a line for whoever does.

Spark's Python workers configure no logging: a logger there has no handler until the session sets
``spark.sql.pyspark.worker.logging.enabled``, and the handler that makes leaves the level at WARNING.
So a handler counts as an audience, whatever level the root has.
"""

from __future__ import annotations

import logging


def has_heard(logger: logging.Logger, level: int, line: str) -> bool:
    """Log the line; ``False``, and nothing logged, when nobody listens."""
    if not logger.hasHandlers():
        return False
    if logger.level == logging.NOTSET and not logger.isEnabledFor(level):
        logger.setLevel(level)
    logger.log(level, line)
    return True
