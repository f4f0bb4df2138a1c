"""How much one micro-batch of a stream reads: every limit that is set counts, in rows in the end.

Spark can only carry one limit between asking and using it, so the one it is given says *that* there
are limits; all of them apply whenever it comes back. Spark asks for everything (``ReadAllAvailable``)
with ``trigger(once=True)`` also where limits are set, and then none applies. Pure: which row a number
of bytes reaches is the caller's to find out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql.streaming import datasource as spark

from spark_bookkeeper.datasource.errors import NotSupportedYetError
from spark_bookkeeper.datasource.options.model import StreamReadOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """Bounds of one micro-batch; ``None``: there is none."""

    rows_max: int | None = None
    """Exact."""
    bytes_max: int | None = None
    """Stored bytes, about; at least one entry is read."""
    rows_min: int | None = None
    """Fewer rows wait for more, until they are due."""


def default_limit(options: StreamReadOptions) -> spark.ReadLimit:
    """The limit that Spark is to ask with: bounded as soon as any limit is set."""
    if options.trigger_rows_max is not None:
        return spark.ReadMaxRows(options.trigger_rows_max)
    if options.trigger_bytes_max is not None:
        return spark.ReadMaxBytes(options.trigger_bytes_max)
    if options.trigger_rows_min is not None:
        return spark.ReadMinRows(options.trigger_rows_min)
    return spark.ReadAllAvailable()


def trigger_limits(options: StreamReadOptions, limit: spark.ReadLimit) -> TriggerLimits:
    """The bounds under the limit Spark asks with: the options', and its own where it is tighter.

    Raises:
        NotSupportedYetError: it counts what a log does not have, such as files.
    """
    if isinstance(limit, spark.ReadAllAvailable):
        return TriggerLimits()
    found = TriggerLimits(
        rows_max=options.trigger_rows_max,
        bytes_max=options.trigger_bytes_max,
        rows_min=options.trigger_rows_min,
    )
    if isinstance(limit, spark.ReadMaxRows):
        return replace(found, rows_max=min(limit.max_rows, found.rows_max or limit.max_rows))
    if isinstance(limit, spark.ReadMaxBytes):
        return replace(found, bytes_max=min(limit.max_bytes, found.bytes_max or limit.max_bytes))
    if isinstance(limit, spark.ReadMinRows):
        return replace(found, rows_min=max(limit.min_rows, found.rows_min or 0))
    raise NotSupportedYetError(f"a read limit of the kind {type(limit).__name__}")


def is_waiting(limits: TriggerLimits, rows: int, *, is_due: bool) -> bool:
    """Whether ``rows`` that could be read wait for more; never once they ``is_due``."""
    return limits.rows_min is not None and rows < limits.rows_min and not is_due


def end_by_rows(limits: TriggerLimits, first_row: int, end_row: int) -> int:
    """The end of a batch from ``first_row`` on, before bytes are looked at."""
    return end_row if limits.rows_max is None else min(end_row, first_row + limits.rows_max)
