"""What is known of columns before any row is read: bounds of ranges, and of entries by the footer.

Pure. Columns that ``includeMetadata`` adds have bounds too: a range knows its ledger, rows and
commit time. What was not recorded, or not as the column's type says, is unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from spark_bookkeeper.datasource.payload.footer import Footer, as_python
from spark_bookkeeper.datasource.read.pruning import Bounds, Predicate
from spark_bookkeeper.log.format.model import LedgerRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ranges_that_may_hold(
    ranges: Collection[LedgerRange], predicate: Predicate, stored: Collection[str]
) -> list[LedgerRange]:
    """The ranges in which some row could satisfy the predicate, in their order.

    ``stored`` are the names of the log's own columns.
    """
    if not predicate.conditions:
        return list(ranges)
    return [
        found
        for found in ranges
        if predicate.may_hold(lambda name, found=found: _range_bounds(found, name, stored))  # type: ignore[misc]
    ]


def _range_bounds(of: LedgerRange, name: str, stored: Collection[str]) -> Bounds:
    # Stored ones first: a log may have a column of its own that is called _entry.
    if name in stored:
        column = of.column(name)
        if column is None:
            return Bounds(of.rows)
        return Bounds(of.rows, column.minimum, column.maximum, column.nulls)
    match name:
        case "_ledger":
            return Bounds(of.rows, of.ledger_id, of.ledger_id, 0)
        case "_entry":
            return Bounds(of.rows, of.first_entry, of.last_entry, 0)
        case "_position":
            return Bounds(of.rows, of.first_row, of.next_row - 1, 0)
        # Rows without a time may be among them: it is null then.
        case "_timestamp" if of.commit_ms and of.committed_since_ms:
            first = _EPOCH + timedelta(milliseconds=of.committed_since_ms)
            last = _EPOCH + timedelta(milliseconds=of.commit_ms)
            return Bounds(of.rows, first, last, 0)
        case _:
            return Bounds(of.rows)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rows each data entry of a ledger holds, as its footer says."""

    footer: Footer
    origin: int
    """Row number in the log of the ledger's row 0."""

    def rows_of(self, entry_id: int) -> tuple[int, int]:
        """The entry's first row and the row behind its last, as row numbers of the log."""
        first_rows = self.footer.first_rows
        is_last = entry_id + 1 == len(first_rows)
        end = self.footer.rows if is_last else first_rows[entry_id + 1]
        return self.origin + first_rows[entry_id], self.origin + end

    def holds(self, of: LedgerRange) -> bool:
        """Whether the footer says of the range's rows what the log says."""
        return (
            of.last_entry < len(self.footer.first_rows)
            and self.rows_of(of.first_entry)[0] == of.first_row
            and self.rows_of(of.last_entry)[1] == of.next_row
        )

    def runs(
        self, first_entry: int, last_entry: int, predicate: Predicate, schema: pa.Schema
    ) -> list[tuple[int, int]]:
        """Runs, first and last entry, of those entries in which some row could satisfy it."""
        bounds = _EntryBounds(self, schema, predicate.columns)
        found: list[tuple[int, int]] = []
        for entry_id in range(first_entry, last_entry + 1):
            if not predicate.may_hold(lambda name, at=entry_id: bounds.of(at, name)):  # type: ignore[misc]
                continue
            if found and found[-1][1] == entry_id - 1:
                found[-1] = (found[-1][0], entry_id)
            else:
                found.append((entry_id, entry_id))
        return found


class _EntryBounds:
    """The footer's bounds of some columns as Python values, an item per entry."""

    def __init__(self, layout: Layout, schema: pa.Schema, columns: Collection[str]) -> None:
        self._layout = layout
        self._stored = set(schema.names)
        self._lists: dict[str, tuple[list[Any], list[Any], list[Any]]] = {}
        recorded = layout.footer.bounds
        for name in self._stored.intersection(columns):
            at = schema.get_field_index(name)
            of = schema.field(at).type
            wanted = {f"min_{at}": of, f"max_{at}": of, f"nulls_{at}": pa.int64()}
            # A footer brings its types along. Values of another type than the column's would
            # compare wrongly, and prune rows that are wanted.
            if all(_type_of(recorded, column) == kind for column, kind in wanted.items()):
                low, high, nulls = (
                    [as_python(bound) for bound in recorded.column(column)] for column in wanted
                )
                self._lists[name] = (low, high, nulls)

    def of(self, entry_id: int, name: str) -> Bounds:
        """Bounds of one column over one entry."""
        first_row, end_row = self._layout.rows_of(entry_id)
        rows = end_row - first_row
        if name in self._lists:
            minima, maxima, nulls = self._lists[name]
            return Bounds(rows, minima[entry_id], maxima[entry_id], nulls[entry_id])
        if name not in self._stored and name == "_position":
            return Bounds(rows, first_row, end_row - 1, 0)
        if name not in self._stored and name == "_entry":
            return Bounds(rows, entry_id, entry_id, 0)
        return Bounds(rows)


def _type_of(batch: pa.RecordBatch, column: str) -> pa.DataType | None:
    at = batch.schema.get_field_index(column)
    return batch.schema.field(at).type if at >= 0 else None
