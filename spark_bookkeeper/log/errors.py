"""What can go wrong with a log, said so that its user knows whether data is safe and what to do."""

from __future__ import annotations

from datetime import UTC, datetime

from bookkeeper_metadata.errors import BookKeeperError, LedgerFencedError


class NoSuchLogError(BookKeeperError):
    """No log of this name or id exists, or it is being deleted."""

    name = "BK_NO_SUCH_LOG"
    definite = True

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log

    def __str__(self) -> str:
        return f"no such log; check its name, or create it by a first append. log={self.log}"


class LogExistsError(BookKeeperError):
    """A log of this name exists already; it was not touched."""

    name = "BK_LOG_EXISTS"
    definite = True

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log

    def __str__(self) -> str:
        return f"log exists already and was not touched; open it instead. log={self.log}"


class LogConflictError(BookKeeperError):
    """Another commit came between planning and committing an overwrite; nothing was written."""

    name = "BK_LOG_CONFLICT"
    definite = True

    def __init__(self, log: str, planned_version: int, found_version: int) -> None:
        super().__init__(log, planned_version, found_version)
        self.log = log
        self.planned_version = planned_version
        self.found_version = found_version

    def __str__(self) -> str:
        return (
            "log changed since this overwrite was planned; the log is as the other commit left it "
            f"and nothing of this write is visible; run it again. log={self.log} "
            f"planned_version={self.planned_version} found_version={self.found_version}"
        )


class SchemaConflictError(BookKeeperError):
    """Another commit gave the log columns since this write, which adds some, was planned."""

    name = "BK_SCHEMA_CONFLICT"
    definite = True

    def __init__(self, log: str, planned_schema_id: int, found_schema_id: int) -> None:
        super().__init__(log, planned_schema_id, found_schema_id)
        self.log = log
        self.planned_schema_id = planned_schema_id
        self.found_schema_id = found_schema_id

    def __str__(self) -> str:
        return (
            "log got other columns since this write, which adds columns, was planned; the log is "
            "as the other commit left it and nothing of this write is visible; run it again. "
            f"log={self.log} planned_schema_id={self.planned_schema_id} "
            f"found_schema_id={self.found_schema_id}"
        )


class LogHasWriterError(BookKeeperError):
    """A writer outside Spark holds the log's last ledger open; nothing was written."""

    name = "BK_LOG_HAS_WRITER"
    definite = True

    def __init__(self, log: str, ledger_id: int) -> None:
        super().__init__(log, ledger_id)
        self.log = log
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return (
            "log has a writer outside Spark; nothing was written; close that writer first, or, if "
            "it is dead, take the log from it with `bookkeeper logs recover` or, in Spark, the "
            "option takeOver=true. "
            f"log={self.log} ledger_id={self.ledger_id}"
        )


class LogFencedError(LedgerFencedError):
    """Another writer, a recovery or a deletion took the log over from this writer, for good.

    Appends it acknowledged are in the log. Those it did not may be or may not: the one who took
    over decided, and nothing of them changes any more. Ask the log for a new writer to go on.
    """

    def __init__(self, log: str, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.args = (log, ledger_id)
        self.log = log

    def __str__(self) -> str:
        return (
            "log was taken over from this writer; what it acknowledged is in the log, and what it "
            "did not may be: read the end of the log before appending it again. "
            f"log={self.log} ledger_id={self.ledger_id}"
        )


class LogPayloadError(BookKeeperError):
    """Entries of this log are not plain values, so they are neither written nor read one by one."""

    name = "BK_LOG_PAYLOAD_FORMAT"
    definite = True

    def __init__(self, log: str, payload_format: str) -> None:
        super().__init__(log, payload_format)
        self.log = log
        self.payload_format = payload_format

    def __str__(self) -> str:
        return (
            "only a log of payload format raw is written and read entry by entry; nothing was "
            'changed; read this one\'s rows with spark.read.format("bookkeeper"). '
            f"log={self.log} payload_format={self.payload_format}"
        )


class LogRecreatedError(BookKeeperError):
    """The position belongs to another log than the one this name stands for now."""

    name = "BK_LOG_RECREATED"
    definite = True

    def __init__(self, log: str, expected_log_id: int, found_log_id: int) -> None:
        super().__init__(log, expected_log_id, found_log_id)
        self.log = log
        self.expected_log_id = expected_log_id
        self.found_log_id = found_log_id

    def __str__(self) -> str:
        return (
            "the position belongs to another log: this one was deleted and created again, or the "
            "checkpoint or offsets are those of a log of another name; nothing was read or written; "
            "start with a new checkpoint. "
            f"log={self.log} expected_log_id={self.expected_log_id} "
            f"found_log_id={self.found_log_id}"
        )


class EpochFencedError(BookKeeperError):
    """A newer plan of the same job took over, or this one ended: its tasks may write no more."""

    code = -101
    name = "BK_FENCED"

    def __init__(self, log: str, epoch: int, detail: str) -> None:
        super().__init__(log, epoch, detail)
        self.log = log
        self.epoch = epoch
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"this write was superseded and nothing of this attempt becomes visible: {self.detail}; "
            f"nothing to do, the newer attempt goes on. log={self.log} epoch={self.epoch}"
        )


class TxnRegressedError(BookKeeperError):
    """A batch older than the last committed one came to commit; nothing was written."""

    name = "BK_TXN_REGRESSED"
    definite = True

    def __init__(self, log: str, app_id: str, version: int, stored_version: int | None) -> None:
        super().__init__(log, app_id, version, stored_version)
        self.log = log
        self.app_id = app_id
        self.version = version
        self.stored_version = stored_version

    def __str__(self) -> str:
        return (
            "batch does not follow the last committed one: an older checkpoint was restored or a "
            "second driver runs; committed data is safe and nothing was written; stop the other "
            f"driver, or start with a new checkpoint. log={self.log} app_id={self.app_id} "
            f"version={self.version} stored_version={self.stored_version}"
        )


class TxnAppReusedError(BookKeeperError):
    """A transaction id came again from another query; skipping it would drop its rows."""

    name = "BK_TXN_APP_REUSED"
    definite = True

    def __init__(self, log: str, app_id: str, version: int, stored: tuple[int, str]) -> None:
        super().__init__(log, app_id, version, stored)
        self.log = log
        self.app_id = app_id
        self.version = version
        self.stored = stored

    def __str__(self) -> str:
        return (
            "txnAppId was used by another query for this version or a later one; nothing was "
            "written and nothing was skipped silently; choose another txnAppId, or forget the "
            f"stored one. log={self.log} app_id={self.app_id} version={self.version} "
            f"stored_version={self.stored[0]} stored_query_id={self.stored[1] or 'none'}"
        )


class CommitUnknownError(BookKeeperError):
    """The answer to a commit was lost and cannot be found out any more: all of it or nothing."""

    name = "BK_COMMIT_UNKNOWN"

    def __init__(self, log: str, epoch: int, detail: str) -> None:
        super().__init__(log, epoch, detail)
        self.log = log
        self.epoch = epoch
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"cannot tell whether the commit happened: {self.detail}; either all of its rows are "
            "visible or none; count them before writing again, or use txnAppId and txnVersion, "
            f"which make a repeat safe. log={self.log} epoch={self.epoch}"
        )


class CommitRefusedError(BookKeeperError):
    """The commit may not go ahead; nothing of it is or becomes visible."""

    name = "BK_COMMIT_REFUSED"
    definite = True

    def __init__(self, log: str, epoch: int | None, detail: str) -> None:
        super().__init__(log, epoch, detail)
        self.log = log
        self.epoch = epoch
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"commit refused and nothing of it becomes visible: {self.detail}; run the write again. "
            f"log={self.log} epoch={self.epoch}"
        )


class NoConsumerError(BookKeeperError):
    """No live consumer says how far the log is read, so nothing was dropped."""

    name = "BK_NO_CONSUMER"
    definite = True

    def __init__(self, log: str, expired: tuple[str, ...]) -> None:
        super().__init__(log, expired)
        self.log = log
        self.expired = expired

    def __str__(self) -> str:
        return (
            "no live consumer says how far the log was read, and nothing was dropped; start the "
            "queries that name one with the option consumer, or drop rows by number. "
            f"log={self.log} expired={','.join(self.expired) or 'none'}"
        )


class LogOverwrittenError(BookKeeperError):
    """Rows a stream had not read yet were replaced by an overwrite."""

    name = "BK_LOG_OVERWRITTEN"
    definite = True

    def __init__(self, log: str, wanted_row: int, first_row: int) -> None:
        super().__init__(log, wanted_row, first_row)
        self.log = log
        self.wanted_row = wanted_row
        self.first_row = first_row

    def __str__(self) -> str:
        return (
            "log was overwritten before this stream had read it to the end; what replaced it is "
            "safe; set ignoreOverwrites=true to go on with the first row of that, or start with a "
            f"new checkpoint. log={self.log} wanted_row={self.wanted_row} first_row={self.first_row}"
        )


class DataLossError(BookKeeperError):
    """Rows that were asked for are not in the log (any more)."""

    name = "BK_DATA_LOSS"

    def __init__(self, log: str, wanted_row: int, available: tuple[int, int], detail: str) -> None:
        super().__init__(log, wanted_row, available, detail)
        self.log = log
        self.wanted_row = wanted_row
        self.available = available
        self.detail = detail

    def __str__(self) -> str:
        # Behind the end there is nothing to go on with, whatever failOnDataLoss says.
        action = (
            "ask for rows up to next_row"
            if self.wanted_row > self.available[1]
            else "start from a later row, or set failOnDataLoss=false to go on after the gap"
        )
        return (
            f"wanted rows are not in the log: {self.detail}; rows outside this gap are safe; "
            f"{action}. log={self.log} wanted_row={self.wanted_row} first_row={self.available[0]} "
            f"next_row={self.available[1]}"
        )


class NoMatchingTimestampError(BookKeeperError):
    """Nothing was committed at or after the time a read was to begin at."""

    name = "BK_NO_MATCHING_TIMESTAMP"
    definite = True

    def __init__(self, log: str, timestamp_ms: int, last_commit_ms: int) -> None:
        super().__init__(log, timestamp_ms, last_commit_ms)
        self.log = log
        self.timestamp_ms = timestamp_ms
        self.last_commit_ms = last_commit_ms

    def __str__(self) -> str:
        begin = "begin earlier" if self.last_commit_ms else "begin when it has rows"
        return (
            f"nothing was committed at startingTimestamp or later; no data is missing; {begin}, or "
            "at the log's end with startingTimestampStrategy=latest. "
            f"log={self.log} starting_timestamp={iso8601(self.timestamp_ms)} "
            f"last_commit={iso8601(self.last_commit_ms) if self.last_commit_ms else 'none'}"
        )


def iso8601(time_ms: int) -> str:
    """A time as people write it, UTC, to the millisecond; as a number where years run out."""
    try:
        found = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms}ms"
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
