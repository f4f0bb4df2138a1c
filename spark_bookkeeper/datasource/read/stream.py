"""A streaming read as Spark drives it: offsets and plans in one process, rows in tasks.

Spark keeps one Python process per run of a query for everything but the rows, and pickles the reader
for the tasks, which use nothing of its state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_bookkeeper.datasource.errors import source_errors
from spark_bookkeeper.datasource.options.model import StreamReadOptions
from spark_bookkeeper.datasource.read.follow import LogFollower, Offset
from spark_bookkeeper.datasource.read.limits import default_limit
from spark_bookkeeper.datasource.read.readable import Readable, find_readable
from spark_bookkeeper.datasource.read.task import ReadPartition, run_task
from spark_bookkeeper.datasource.session import open_session


def _monotonic_ms() -> int:
    # Not the wall clock: one that is set back would hold rows back longer than maxTriggerDelay.
    return time.monotonic_ns() // 1_000_000


class BookKeeperStreamReader(  # type: ignore[misc, unused-ignore]
    DataSourceStreamReader, SupportsTriggerAvailableNow
):
    """One streaming query's reader; the names are Spark's."""

    def __init__(self, options: StreamReadOptions, readable: Readable, schema: StructType) -> None:
        self._options = options
        self._readable = readable
        self._schema = schema
        self._follower: LogFollower | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks open connections of their own.
        return {**self.__dict__, "_follower": None}

    @source_errors(has_cause=False)
    def initialOffset(self) -> Offset:  # noqa: N802
        """Where the options let a new query begin; resolved by the first ``latestOffset``."""
        return self._follow().initial_offset()

    @source_errors(has_cause=False)
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Pin what this run of the query reads up to."""
        self._follow().pin_target()

    @source_errors(has_cause=False)
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Bounded when any limit option is set."""
        return default_limit(self._options)

    @source_errors(has_cause=False)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Offset:  # noqa: N802
        """Where the next batch ends; ``start`` itself when nothing is to be read."""
        return self._follow().next_offset(start, limit)

    @source_errors(has_cause=False)
    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """The log's end, for the progress' ``latestOffset``."""
        return self._follow().end_offset()

    @source_errors(has_cause=False)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The batch's tasks; none for a batch without rows."""
        return [ReadPartition(pack) for pack in self._follow().plan(start, end)]

    @source_errors(has_cause=False)
    def commit(self, end: dict[str, Any]) -> None:
        """Move the cursor of ``consumer``, if one is named."""
        self._follow().commit(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The partition's rows, cast to exactly the schema (in a task)."""
        return run_task(self._options, self._readable, self._schema, partition)

    def _follow(self) -> LogFollower:
        if self._follower is None:
            session = open_session(self._options)
            self._follower = LogFollower(
                session, self._options, self._readable, clock_ms=_monotonic_ms
            )
        return self._follower


def open_stream_read(options: StreamReadOptions, schema: StructType) -> BookKeeperStreamReader:
    """A streaming reader of the log the options name, giving the columns of ``schema``.

    Raises:
        NoSuchLogError: it is not there; a stream does not create it.
        SchemaMismatchError: a user's own ``.schema(…)`` does not fit.
    """
    readable = find_readable(open_session(options), options)
    readable.check_wanted(options, schema)
    return BookKeeperStreamReader(options, readable, schema)
