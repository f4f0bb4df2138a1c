"""Where a read begins or ends that is told by time: the rows committed since, or before.

A row's time is its range's commit time: of a Spark write when it was committed, of a writer outside
Spark when its ledger ended. So times are as exact as commits are frequent, and rows of an open
ledger have none yet.
"""

from __future__ import annotations

from spark_bookkeeper.datasource.session import Session
from spark_bookkeeper.log.errors import NoMatchingTimestampError
from spark_bookkeeper.log.reading.view import LATEST, LogView, RowAtTime


def row_since(
    session: Session, view: LogView, log: str, timestamp_ms: int, *, is_latest_without_match: bool
) -> int:
    """The first row committed at ``timestamp_ms`` or later.

    Raises:
        NoMatchingTimestampError: there is none, unless ``is_latest_without_match``: then the end.
    """
    found = session.run(view.row_at_time(timestamp_ms))
    row = _row(session, timestamp_ms, found)
    if row is not None:
        return row
    if is_latest_without_match:
        return session.run(view.pin(LATEST))
    raise NoMatchingTimestampError(log, timestamp_ms, found.head.last_commit_ms)


def row_before(session: Session, view: LogView, timestamp_ms: int) -> int | None:
    """The end of the rows committed before ``timestamp_ms``; ``None``: the log's end, whatever it is."""
    return _row(session, timestamp_ms, session.run(view.row_at_time(timestamp_ms)))


def _row(session: Session, timestamp_ms: int, found: RowAtTime) -> int | None:
    """The row that was found; else, of a time that is past, the first row of the open ledger.

    Its rows get their time when it ends, which will be later.
    """
    opened = found.head.open_ledger
    if found.row is None and opened is not None and timestamp_ms <= session.clock_ms():
        return opened.first_row
    return found.row
