"""What Spark keeps of a stream's progress: a row number, or where a new query was told to begin.

Spark compares offsets as strings and writes them into its checkpoint for every batch, so each has
one spelling, few numbers, and no size that grows. A new query's start is a *symbol*: Spark does not
keep it and asks again after a crash. The row it stood for is kept beside the end of the first batch,
as ``from``, because that end is kept before the batch runs. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from spark_bookkeeper.datasource.errors import OffsetInvalidError
from spark_bookkeeper.datasource.options.model import StreamReadOptions

EARLIEST = "earliest"
LATEST = "latest"
ROW = "row"
TIMESTAMP = "timestamp"
_STARTS = (EARLIEST, LATEST, ROW, TIMESTAMP)
NUMBER_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StartSymbol:
    """Where a new query begins, as its options say it."""

    log_id: int
    start: str
    """One of ``earliest``, ``latest``, ``row``, ``timestamp``."""
    at: int = 0
    """The row, or the time in ms since the epoch."""

    def to_json(self) -> dict[str, int | str]:
        """Its one spelling."""
        if self.start in (ROW, TIMESTAMP):
            return {"at": self.at, "log": self.log_id, "start": self.start}
        return {"log": self.log_id, "start": self.start}


@dataclass(frozen=True, slots=True)
class RowOffset:
    """A place between rows: ``row`` rows of the log lie before it, since its creation."""

    log_id: int
    row: int
    from_row: int | None = None
    """Of a query's first batch: the row it begins with."""

    def to_json(self) -> dict[str, int | str]:
        """Its one spelling."""
        # The order of the keys counts: to Spark another text is another place, and the same rows
        # would come again with every trigger.
        first: dict[str, int | str] = {} if self.from_row is None else {"from": self.from_row}
        return {**first, "log": self.log_id, "row": self.row}


def start_symbol(log_id: int, options: StreamReadOptions) -> StartSymbol:
    """Where the options let a new query begin."""
    if options.starting_timestamp_ms is not None:
        return StartSymbol(log_id, TIMESTAMP, options.starting_timestamp_ms)
    return StartSymbol(log_id, options.starting.symbol, options.starting.row)


def parse_offset(log: str, value: Mapping[str, object]) -> StartSymbol | RowOffset:
    """The offset Spark kept.

    Raises:
        OffsetInvalidError: it is none of ours; ``log`` and the value are in the message.
    """
    found: StartSymbol | RowOffset | None = None
    if isinstance(value, Mapping):
        log_id, row, start = value.get("log"), value.get("row"), value.get("start")
        first, at = value.get("from"), value.get("at", 0)
        if _is_number(log_id) and start in _STARTS and _is_number(at):
            found = StartSymbol(log_id, start, at)
        elif _is_number(log_id) and _is_number(row) and first is None:
            found = RowOffset(log_id, row)
        elif _is_number(log_id) and _is_number(row) and _is_number(first) and first <= row:
            found = RowOffset(log_id, row, first)
    # A key too many is refused as well: a later version may mean something by it.
    if found is None or found.to_json() != value:
        raise OffsetInvalidError(log, json.dumps(value, sort_keys=True))
    return found


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NUMBER_MAX
