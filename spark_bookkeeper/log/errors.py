"""What can go wrong with a log, said so that its user knows whether data is safe and what to do."""

from __future__ import annotations

from datetime import UTC, datetime

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.ledger.errors import LedgerFencedError


class NoSuchLogError(BookKeeperError):
    """No log of this name or id exists, or it is being deleted."""

    name = "BK_NO_SUCH_LOG"
    definite = True

    log: str
    message = "no such log; check its name, or create it by a first append. log={log}"


class LogExistsError(BookKeeperError):
    """A log of this name exists already; it was not touched."""

    name = "BK_LOG_EXISTS"
    definite = True

    log: str
    message = "log exists already and was not touched; open it instead. log={log}"


class LogConflictError(BookKeeperError):
    """Another commit came between planning and committing an overwrite; nothing was written."""

    name = "BK_LOG_CONFLICT"
    retryable = True
    definite = True

    log: str
    planned_row: int
    found_row: int
    message = (
        "log changed since this overwrite was planned; the log is as the other commit left it and "
        "nothing of this write is visible; run it again. log={log} "
        "planned_end_row={planned_row} found_end_row={found_row}"
    )


class SchemaConflictError(BookKeeperError):
    """Another commit gave the log columns since this write, which adds some, was planned."""

    name = "BK_SCHEMA_CONFLICT"
    retryable = True
    definite = True

    log: str
    planned_schema_id: int
    found_schema_id: int
    message = (
        "log got other columns since this write, which adds columns, was planned; the log is as "
        "the other commit left it and nothing of this write is visible; run it again. log={log} "
        "planned_schema_id={planned_schema_id} found_schema_id={found_schema_id}"
    )


class LogHasWriterError(BookKeeperError):
    """A writer outside Spark holds the log's last ledger open; nothing was written."""

    name = "BK_LOG_HAS_WRITER"
    definite = True

    log: str
    ledger_id: int
    message = (
        "log has a writer outside Spark; nothing was written; close that writer first, or, if it "
        "is dead, take the log from it with `bookkeeper logs recover` or, in Spark, the option "
        "takeOver=true. log={log} ledger_id={ledger_id}"
    )


class LogFencedError(LedgerFencedError):
    """Another writer, a recovery or a deletion took the log over from this writer, for good.

    Appends it acknowledged are in the log. Those it did not may be or may not: the one who took
    over decided, and nothing of them changes any more. Ask the log for a new writer to go on.
    """

    log: str
    message = (
        "log was taken over from this writer; what it acknowledged is in the log, and what it did "
        "not may be: read the end of the log before appending it again. log={log} "
        "ledger_id={ledger_id}"
    )


class LogPayloadError(BookKeeperError):
    """Entries of this log are not plain values, so they are neither written nor read one by one."""

    name = "BK_LOG_PAYLOAD_FORMAT"
    definite = True

    log: str
    payload_format: str
    message = (
        "only a log of payload format raw is written and read entry by entry; nothing was changed; "
        'read this one\'s rows with spark.read.format("bookkeeper"). log={log} '
        "payload_format={payload_format}"
    )


class LogRecreatedError(BookKeeperError):
    """The position belongs to another log than the one this name stands for now."""

    name = "BK_LOG_RECREATED"
    definite = True

    log: str
    expected_log_id: int
    found_log_id: int
    message = (
        "the position belongs to another log: this one was deleted and created again, or the "
        "checkpoint or offsets are those of a log of another name; nothing was read or written; "
        "start with a new checkpoint. log={log} expected_log_id={expected_log_id} "
        "found_log_id={found_log_id}"
    )


class EpochFencedError(BookKeeperError):
    """A newer plan of the same job took over, or this one ended: its tasks may write no more."""

    code = -101
    name = "BK_FENCED"

    log: str
    epoch: int
    detail: str
    message = (
        "this write was superseded and nothing of this attempt becomes visible: {detail}; nothing "
        "to do, the newer attempt goes on. log={log} epoch={epoch}"
    )


class TxnRegressedError(BookKeeperError):
    """A batch older than the last committed one came to commit; nothing was written."""

    name = "BK_TXN_REGRESSED"
    definite = True

    log: str
    app_id: str
    version: int
    stored_version: int | None
    message = (
        "batch does not follow the last committed one: an older checkpoint was restored or a "
        "second driver runs; committed data is safe and nothing was written; stop the other "
        "driver, or start with a new checkpoint. log={log} app_id={app_id} version={version} "
        "stored_version={stored_version}"
    )


class TxnAppReusedError(BookKeeperError):
    """A transaction id came again from another query; skipping it would drop its rows."""

    name = "BK_TXN_APP_REUSED"
    definite = True

    log: str
    app_id: str
    version: int
    stored: tuple[int, str]
    message = (
        "txnAppId was used by another query for this version or a later one; nothing was written "
        "and nothing was skipped silently; choose another txnAppId, or forget the stored one. "
        "log={log} app_id={app_id} version={version} stored_version={stored[0]} "
        "stored_query_id={_stored_query_id}"
    )

    @property
    def _stored_query_id(self) -> str | None:
        return self.stored[1] or None


class CommitUnknownError(BookKeeperError):
    """The answer to a commit was lost and cannot be found out any more: all of it or nothing."""

    name = "BK_COMMIT_UNKNOWN"

    log: str
    epoch: int
    detail: str
    message = (
        "cannot tell whether the commit happened: {detail}; either all of its rows are visible or "
        "none; count them before writing again, or use txnAppId and txnVersion, which make a "
        "repeat safe. log={log} epoch={epoch}"
    )


class CommitRefusedError(BookKeeperError):
    """The commit may not go ahead; nothing of it is or becomes visible."""

    name = "BK_COMMIT_REFUSED"
    retryable = True
    definite = True

    log: str
    epoch: int | None
    detail: str
    message = (
        "commit refused and nothing of it becomes visible: {detail}; run the write again. "
        "log={log} epoch={epoch}"
    )


class NoConsumerError(BookKeeperError):
    """No live consumer says how far the log is read, so nothing was dropped."""

    name = "BK_NO_CONSUMER"
    definite = True

    log: str
    expired: tuple[str, ...]
    message = (
        "no live consumer says how far the log was read, and nothing was dropped; start the "
        "queries that name one with Spark's option consumer, or drop rows by number, with --before. "
        "log={log} expired={expired}"
    )


class LogOverwrittenError(BookKeeperError):
    """Rows a stream had not read yet were replaced by an overwrite."""

    name = "BK_LOG_OVERWRITTEN"
    definite = True

    log: str
    wanted_row: int
    first_row: int
    message = (
        "log was overwritten before this stream had read it to the end; what replaced it is safe; "
        "set ignoreOverwrites=true to go on with the first row of that, or start with a new "
        "checkpoint. log={log} wanted_row={wanted_row} first_row={first_row}"
    )


class DataLossError(BookKeeperError):
    """Rows that were asked for are not in the log (any more)."""

    name = "BK_DATA_LOSS"

    log: str
    wanted_row: int
    available: tuple[int, int]
    detail: str
    message = (
        "wanted rows are not in the log: {detail}; rows outside this gap are safe; {_action}. "
        "log={log} wanted_row={wanted_row} first_row={available[0]} next_row={available[1]}"
    )

    @property
    def _action(self) -> str:
        # Behind the end there is nothing to go on with, whatever failOnDataLoss says.
        if self.wanted_row > self.available[1]:
            return "ask for rows up to next_row"
        return (
            "start from a later row, or, in Spark, set failOnDataLoss=false to go on after the gap"
        )


class NoMatchingTimestampError(BookKeeperError):
    """Nothing was committed at or after the time a read was to begin at."""

    name = "BK_NO_MATCHING_TIMESTAMP"
    definite = True

    log: str
    timestamp_ms: int
    last_commit_ms: int
    message = (
        "nothing was committed at startingTimestamp or later; no data is missing; {_begin}, or "
        "at the log's end with startingTimestampStrategy=latest. "
        "log={log} starting_timestamp={_starting_timestamp} last_commit={_last_commit}"
    )

    @property
    def _begin(self) -> str:
        return "begin earlier" if self.last_commit_ms else "begin when it has rows"

    @property
    def _starting_timestamp(self) -> str:
        return iso8601(self.timestamp_ms)

    @property
    def _last_commit(self) -> str | None:
        return iso8601(self.last_commit_ms) if self.last_commit_ms else None


def iso8601(time_ms: int) -> str:
    """A time as people write it, UTC, to the millisecond; as a number where years run out."""
    try:
        found = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms}ms"
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
