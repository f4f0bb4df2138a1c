"""Optimize as a Spark job: a task for each group, on classic Spark and through Spark Connect alike."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from spark_bookkeeper.datasource.errors import OptionsError
from spark_bookkeeper.datasource.optimize.rewrite import GroupRewriter
from spark_bookkeeper.datasource.optimize.run import (
    OptimizeReport,
    Outcome,
    optimize_log,
    rewrite_one,
)
from spark_bookkeeper.datasource.options.model import WriteOptions
from spark_bookkeeper.datasource.options.parse import parse_write_options
from spark_bookkeeper.datasource.options.values import parse_size_bytes
from spark_bookkeeper.datasource.session import open_session
from spark_bookkeeper.log.cleaning.optimize import Instalment
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.rules.grouping import GroupLimits

TASKS_MAX = 1_000
"""Tasks of one instalment; beyond that some get several groups."""


def optimize(
    spark: SparkSession,
    log: str,
    *,
    target_size: str | int = "128m",
    min_ranges: int = 4,
    **options: str,
) -> OptimizeReport:
    """Rewrite ranges of small ledgers of ``log`` into large ones, as a Spark job.

    Rows, their numbers and what they say of themselves stay; ``_ledger`` and ``_entry`` say where a
    row lies now. Others go on writing and reading meanwhile; the old ledgers are deleted after
    ``deletedLedgerRetention``.

    Args:
        spark: The session whose tasks do the work.
        log: Name of the log.
        target_size: Payload bytes of a rewritten ledger at most, a number or ``128m`` say; ranges of
            this size are left alone.
        min_ranges: Fewer neighbouring ranges are not worth a rewrite.
        options: As of a batch write: ``metadataServiceUri``, ``password``, and so on.

    Raises:
        OptionsError: an option is unknown or wrong.
        BookKeeperError: see :func:`spark_bookkeeper.datasource.optimize.run.optimize_log`.
    """
    given = parse_write_options({"log": log, **options}, os.environ)
    try:
        limits = GroupLimits(target_bytes=parse_size_bytes(str(target_size)), ranges_min=min_ranges)
    except ValueError as error:
        raise OptionsError((f"{error}; {target_size=} {min_ranges=}",)) from error

    def rewrite(instalment: Instalment, settings: LogSettings) -> Sequence[Outcome]:
        count = len(instalment.groups)
        tasks = spark.range(0, count, 1, numPartitions=min(count, TASKS_MAX))
        # Not mapInArrow, which wants pandas on the driver. Not deterministic: called once for each.
        work = _udf_of(tasks)(_Work(given, settings, instalment), "binary", useArrow=False)
        rows = tasks.select(work.asNondeterministic()("id").alias("outcome")).collect()
        return [pickle.loads(bytes(row.outcome)) for row in rows]

    return optimize_log(open_session(given), log, limits, rewrite)


def _udf_of(frame: DataFrame) -> Callable[..., Any]:
    """The ``udf`` of the frame's kind: PySpark's own asks the environment, which may know no session."""
    if type(frame).__module__.startswith("pyspark.sql.connect."):
        from pyspark.sql.connect.functions import udf as connect_udf

        return connect_udf
    return udf


class _Work:
    """What a task does with the number of a group."""

    def __init__(
        self, options: WriteOptions, settings: LogSettings, instalment: Instalment
    ) -> None:
        self._options = options
        self._settings = settings
        self._instalment = instalment

    def __call__(self, number: int) -> bytes:
        session = open_session(self._options)
        rewriter = GroupRewriter(session, self._options, self._settings, self._instalment)
        context: Any = TaskContext.get()
        return pickle.dumps(
            rewrite_one(rewriter, self._instalment, number, context.taskAttemptId())
        )
