"""What a Spark user can meet: a stable ``BK_…`` name, what happened, is data safe, what to do.

Spark embeds only the text of a Python exception in its own error, so every entry point of the data
source is wrapped by :func:`source_errors`, which puts the name in front of the message and the advice
behind it. The errors of the layers below stay what they are; they are the cause of the reported one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.datasource.explanations import advice


class OptionsError(BookKeeperError, ValueError):
    """Options that cannot be used; every defect is listed, nothing was read or written."""

    name = "BK_OPTION_INVALID"
    definite = True

    defects: tuple[str, ...]
    message = "{defects:; }"


class OptionUnknownError(OptionsError):
    """At least one option is unknown; the message has the nearest valid name."""

    name = "BK_OPTION_UNKNOWN"


class SchemaMismatchError(BookKeeperError, ValueError):
    """The columns do not fit those of the log; nothing was written."""

    name = "BK_SCHEMA_MISMATCH"
    definite = True

    log: str
    differences: tuple[str, ...]
    message = "columns do not fit the log: {differences:; }. log={log}"


class UnsupportedTypeError(BookKeeperError, ValueError):
    """A column's type cannot be stored; cast it, or leave it out."""

    name = "BK_TYPE_UNSUPPORTED"
    definite = True

    columns: tuple[str, ...]
    message = "columns of types that cannot be stored. columns={columns}"


class RowTooLargeError(BookKeeperError, ValueError):
    """One row alone is larger than an entry may be; nothing of this write becomes visible."""

    name = "BK_ROW_TOO_LARGE"
    definite = True

    row: int
    size_bytes: int
    size_bytes_max: int
    message = (
        "one row does not fit into an entry; split its large columns. row_of_partition={row} "
        "size_bytes={size_bytes} size_bytes_max={size_bytes_max}"
    )


class RawNullError(BookKeeperError, ValueError):
    """A value for a raw log is null, which an entry cannot express; nothing becomes visible."""

    name = "BK_RAW_NULL"
    definite = True

    row: int
    message = (
        "payloadFormat=raw cannot store null values; filter or replace them. row_of_partition={row}"
    )


class ValueInvalidError(BookKeeperError, ValueError):
    """A value is not valid for its column's type, so readers would refuse it; nothing becomes visible."""

    name = "BK_VALUE_INVALID"
    definite = True

    column: str
    detail: str
    message = (
        "a value is none of its column's type, so no reader would take it. column={column} "
        "cause={detail}"
    )


class PayloadCorruptError(BookKeeperError):
    """An entry does not hold what the ledger's format says; it was not decoded."""

    name = "BK_PAYLOAD_CORRUPT"

    ledger_id: int
    entry_id: int
    detail: str
    message = "entry cannot be decoded: {detail}. ledger_id={ledger_id} entry_id={entry_id}"


class RowsMissingError(BookKeeperError):
    """A range of the log holds other rows than the log says; the read was stopped, not shortened."""

    name = "BK_ROWS_MISSING"

    ledger_id: int
    expected: int
    found: int
    message = (
        "a ledger does not hold the rows its log names. ledger_id={ledger_id} expected={expected} "
        "found={found}"
    )


class SnapshotExpiredError(BookKeeperError):
    """Rows lie in other ledgers than when the read was planned, and the plan relied on the old ones."""

    name = "BK_SNAPSHOT_EXPIRED"
    retryable = True
    definite = True

    log: str
    ledger_id: int
    message = (
        "rows of this read were moved to other ledgers after it was planned, and the old ones are "
        "gone; no row is lost; read again. log={log} ledger_id={ledger_id}"
    )


class ContinuousUnsupportedError(BookKeeperError):
    """Spark's continuous trigger hands no rows to a Python sink; the query was stopped instead."""

    name = "BK_CONTINUOUS_UNSUPPORTED"
    definite = True

    log: str
    batch_id: int
    message = (
        "no task of this batch sent a message: Spark's continuous trigger drops the rows of every "
        "Python sink; what was committed before is safe, nothing of this batch was written; use "
        "trigger(processingTime=...) or trigger(availableNow=True). log={log} batch_id={batch_id}"
    )


class StreamIdentityError(BookKeeperError):
    """Spark did not give a streaming task its query or micro-batch, which exactly-once needs."""

    name = "BK_STREAM_IDENTITY"
    definite = True

    query_id: str | None
    batch_id: str | None
    message = (
        "Spark did not tell this task its streaming query and micro-batch, so a replay could not "
        "be recognised; nothing was written; this version of Spark is not supported as a streaming "
        "writer. query_id={query_id} batch_id={batch_id}"
    )


class OffsetInvalidError(BookKeeperError, ValueError):
    """A checkpoint holds a position that this source did not write; nothing was read."""

    name = "BK_OFFSET_INVALID"
    definite = True

    log: str
    value: str
    message = (
        "the checkpoint holds a position that is not one of this source, so nothing was read; it "
        "is another source's checkpoint, or damaged; start with a new one, or with "
        "startingOffsets. log={log} offset={value}"
    )


class NotSupportedYetError(BookKeeperError):
    """Part of the interface that this version does not have."""

    name = "BK_NOT_SUPPORTED_YET"
    definite = True

    what: str
    message = "{what} is not supported yet by this version"


class SourceError(Exception):
    """What reaches the Spark user: ``[BK_NAME] message Advice``; the cause is attached."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return f"[{self.name}] {self.message}"


def as_source_error(error: BookKeeperError | ModuleNotFoundError) -> SourceError:
    """The error as a Spark user sees it: name first, then what happened, then what to do.

    A module that is missing is a package that an executor lacks.
    """
    if isinstance(error, BookKeeperError):
        message, added = str(error).rstrip("."), advice(error.name)
        return SourceError(error.name, f"{message}. {added}" if added else message)
    return SourceError(
        "BK_PACKAGE_MISSING",
        f"Spark's Python worker has no package {error.name}; nothing was read or written: "
        "set PYSPARK_PYTHON to the interpreter that has spark-bookkeeper installed. "
        f"python={sys.executable}",
    )


@contextmanager
def source_errors(*, has_cause: bool = True) -> Iterator[None]:
    """Raise a :class:`SourceError` in place of a ``BookKeeperError``; a decorator, or a block.

    Without ``has_cause`` it hides the error it was raised from: Spark prints errors of a streaming
    source's planning with the tracebacks of all causes, which bury the name and what to do.
    Everywhere else it prints the last one only.
    """
    try:
        yield
    except (BookKeeperError, ModuleNotFoundError) as error:
        raise as_source_error(error) from (error if has_cause else None)
