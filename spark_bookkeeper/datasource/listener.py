"""How far a streaming query is behind the logs it reads, from its progress events alone.

Offsets of this format are ``{"log": id, "row": n}``, so lag is a subtraction: nothing is asked of
the cluster, and a dashboard that keeps Spark's progress JSON can do the same sum. It never decides
anything about a query, and an event it cannot read is one without logs, not an error in Spark's
listener bus.

The names of logs are not in the events: Spark describes every Python source and sink by the name of
a class of its own. A listener that is given the cluster asks it once for each log's name.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.streaming import listener as spark

from bookkeeper_metadata.foundation.errors import BookKeeperError

REPORTS_MAX = 1000
"""Micro-batches a listener remembers."""
NAME_RETRY_S = 60.0
"""Pause after a name that the cluster could not give, because asking holds up Spark's listeners."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lag:
    """One log that a query reads, after one micro-batch; rows are counted since its creation."""

    log_id: int
    start_row: int | None
    """First row of the micro-batch; ``None`` where Spark does not say."""
    end_row: int
    """First row after it: everything before has been read."""
    latest_row: int | None
    """End of the log when the batch was planned; ``None`` where Spark does not say."""
    rows: int
    """Rows Spark counted in this micro-batch. More than ``end_row - start_row`` when its plan reads
    the log twice."""
    rows_per_second: float
    log: str | None = None
    """The log's name, where a listener that was given the cluster could ask for it."""

    @property
    def lag_rows(self) -> int | None:
        """Rows of the log that the query has not read yet."""
        return None if self.latest_row is None else max(self.latest_row - self.end_row, 0)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One micro-batch of one query: what it read of logs, and what it committed.

    In a log that the query writes, its commit is the transaction ``query_id`` at ``batch_id``:
    ``bookkeeper logs txns list`` shows the same two.
    """

    query_id: str
    name: str | None
    batch_id: int
    sources: tuple[Lag, ...]
    """The query's logs in Spark's order; its other sources are left out."""
    rows_written: int | None
    """``None`` when the sink does not count."""
    took_ms: int | None = None
    """From its plan to its commit; ``None`` where Spark does not say."""

    def as_line(self) -> str:
        """One line for people."""
        parts = [_source_line(source) for source in self.sources]
        if self.rows_written is not None:
            parts.append(f"wrote {self.rows_written:,} rows")
        name = self.name or self.query_id
        return f"{name} batch {self.batch_id}: {'; '.join(parts) or 'nothing counted'}"


def lag(progress: Mapping[str, Any] | str) -> list[Lag]:
    """The lag of every log that a query reads.

    ``progress`` is ``query.lastProgress``, an event's ``progress``, or its JSON. Empty for a query
    that reads no log.
    """
    return list(batch_report(progress).sources)


def batch_report(progress: Mapping[str, Any] | str) -> BatchReport:
    """One progress event in terms of logs and commits; takes what :func:`lag` takes."""
    document = _document(progress)
    # Spark itself says -1 of a sink that does not count.
    written = int((document.get("sink") or {}).get("numOutputRows", -1))
    return BatchReport(
        query_id=str(document["id"]),
        name=document.get("name"),
        batch_id=int(document["batchId"]),
        sources=tuple(
            found for each in document.get("sources", ()) if (found := _lag(each)) is not None
        ),
        rows_written=written if written >= 0 else None,
        took_ms=document.get("batchDuration"),
    )


class LagListener(spark.StreamingQueryListener):  # type: ignore[misc, unused-ignore]
    """Reports each micro-batch of every query in one line, and keeps the last reports.

    ``spark.streams.addListener(LagListener())``. ``say`` gets the lines; by default they go to
    standard error. With a ``metadata_service_uri`` lines give logs by name, else by id. Spark calls a
    listener from a thread of its own.
    """

    def __init__(
        self, say: Callable[[str], None] | None = None, *, metadata_service_uri: str | None = None
    ) -> None:
        self._say = _to_stderr if say is None else say
        self._names = None if metadata_service_uri is None else LogNames(metadata_service_uri)
        self.reports: deque[BatchReport] = deque(maxlen=REPORTS_MAX)
        """Newest last."""

    def onQueryStarted(self, event: spark.QueryStartedEvent) -> None:  # noqa: N802
        """Nothing has been read yet."""

    def onQueryProgress(self, event: spark.QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch is done."""
        report = batch_report(event.progress)
        if self._names is not None:
            named = [replace(each, log=self._names.name(each.log_id)) for each in report.sources]
            report = replace(report, sources=tuple(named))
        self.reports.append(report)
        self._say(report.as_line())

    def onQueryIdle(self, event: spark.QueryIdleEvent) -> None:  # noqa: N802
        """The query is not behind: had there been rows, there would have been a batch."""

    def onQueryTerminated(self, event: spark.QueryTerminatedEvent) -> None:  # noqa: N802
        """The last report stays what it was."""


class LogNames:
    """The names of one cluster's logs, each asked for once; a log's name never changes."""

    def __init__(
        self, metadata_service_uri: str, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._uri = metadata_service_uri
        self._clock_s = clock_s
        self._names: dict[int, str] = {}
        self._ask_again_s = 0.0

    def name(self, log_id: int) -> str | None:
        """The log's name; ``None`` when the cluster does not know it, or does not answer now."""
        if log_id not in self._names and self._clock_s() >= self._ask_again_s:
            try:
                name = self._ask(log_id)
            except (BookKeeperError, ValueError) as cause:
                _log.warning("name of a log is not known. log_id=%d cause=%s", log_id, cause)
                name = None
            if name is None:
                # One pause for all names: the next log would wait for the same cluster.
                self._ask_again_s = self._clock_s() + NAME_RETRY_S
            else:
                self._names[log_id] = name
        return self._names.get(log_id)

    def _ask(self, log_id: int) -> str | None:
        # A listener without a cluster needs no client.
        from spark_bookkeeper.bookkeeper import shared
        from spark_bookkeeper.log.nodes.paths import LogPaths
        from spark_bookkeeper.log.nodes.reads import LogNodes

        client = shared(self._uri)
        cluster = client.ledger_client.cluster
        nodes = LogNodes(cluster.store, LogPaths(cluster.root), log_id)
        found = client.run(nodes.head_or_none())
        return None if found is None else found.head.name


def _document(progress: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """The event as Spark's JSON; PySpark's own object keeps that in ``json``."""
    text = progress if isinstance(progress, str) else getattr(progress, "json", None)
    if text is None:
        assert isinstance(progress, Mapping)
        return progress
    document: dict[str, Any] = json.loads(text)
    return document


def _lag(source: Mapping[str, Any]) -> Lag | None:
    end = _offset(source.get("endOffset"))
    if end is None:
        return None
    start = _offset(source.get("startOffset")) or {}
    latest = _offset(source.get("latestOffset")) or {}
    return Lag(
        log_id=end["log"],
        # The first batch has no start yet; where it began is noted in its end.
        start_row=end.get("from", start.get("row")),
        end_row=end["row"],
        latest_row=latest.get("row"),
        rows=int(source.get("numInputRows", 0)),
        rows_per_second=float(source.get("processedRowsPerSecond", 0.0)),
    )


def _offset(value: object) -> dict[str, Any] | None:
    """An offset of ours, which Spark's JSON holds as an object or as text; ``None`` for others."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None
    # Another source's may have fields of the same names.
    if isinstance(found, dict) and all(type(found.get(name)) is int for name in ("log", "row")):
        return found
    return None


def _source_line(source: Lag) -> str:
    log = source.log_id if source.log is None else f"{source.log} (id {source.log_id})"
    start = "?" if source.start_row is None else f"{source.start_row:,}"
    behind = "unknown lag" if source.lag_rows is None else f"{source.lag_rows:,} rows behind"
    return (
        f"log {log} rows {start} to {source.end_row:,}, {behind}, "
        f"{source.rows_per_second:,.0f} rows/s"
    )


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
