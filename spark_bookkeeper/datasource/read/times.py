"""Where a read begins or ends that is told by time: the rows committed since, or before.

A row's time is its range's commit time: of a Spark write when it was committed, of a writer outside
Spark when its ledger ended. So times are as exact as commits are frequent, and rows of an open
ledger have none yet.
"""

from __future__ import annotations

from spark_bookkeeper.datasource.session import Session
from spark_bookkeeper.log.errors import NoMatchingTimestampError
from spark_bookkeeper.log.reader import LATEST, LogView


def row_since(
    session: Session, view: LogView, log: str, timestamp_ms: int, *, is_latest_without_match: bool
) -> int:
    """The first row committed at ``timestamp_ms`` or later.

    Raises:
        NoMatchingTimestampError: there is none, unless ``is_latest_without_match``: then the end.
    """
    found = session.run(view.row_at_time(timestamp_ms))
    if found is not None:
        return found
    if is_latest_without_match:
        return session.run(view.pin(LATEST))
    last_commit_ms = session.run(view.head()).head.last_commit_ms
    raise NoMatchingTimestampError(log, timestamp_ms, last_commit_ms)


def row_before(session: Session, view: LogView, timestamp_ms: int) -> int | None:
    """The end of the rows committed before ``timestamp_ms``; ``None``: the log's end, whatever it is."""
    return session.run(view.row_at_time(timestamp_ms))
